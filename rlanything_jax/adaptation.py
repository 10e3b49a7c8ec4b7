"""Step 5 of Algorithm 1: tasks that are too easy or too hard are rewritten from the judge's critiques.

A proposal waits in the pool until the updated policy has played it in the next iteration; those rollouts decide, and train both
models either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from rlanything_jax.dialogue import Speaker
from rlanything_jax.envs.base import Refused, World
from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.sampler.generate import generate
from rlanything_jax.tasks.critique import summarise
from rlanything_jax.tasks.pool import TaskPool
from rlanything_jax.tasks.task import Task


def adapt(
    rewriter: Speaker,
    world: World,
    pool: TaskPool,
    tasks: Sequence[Task],
    trajectories: Sequence[Trajectory],
    votes: Sequence[Sequence[Sequence[Vote]]],
    config: ConfigDict,
    *,
    iteration: int,
    seed: int,
) -> dict[str, int]:
    """Settles the pending tasks among `tasks`, then proposes rewrites of those that are too easy or too hard.

    Args:
      rewriter: frozen, as in the paper.
      tasks, trajectories, votes: the episodes of this iteration, in the order [task, rollout].
      config: low, high (thresholds of the success rate), max_pending, attempts, temperature, max_tokens, length_buckets.

    Returns:
      How many tasks were proposed, refused and accepted in this iteration, and accepted in all.
    """
    groups = {
        task.id: [
            (t, v) for t, v in zip(trajectories, votes, strict=True) if t.task.id == task.id and not t.error
        ]
        for task in tasks
    }
    accuracy = {id: sum(t.won for t, _ in group) / len(group) for id, group in groups.items() if group}
    before = len(pool.events())
    waiting = {task.id for task in pool.pending()}
    pool.settle(
        iteration, {id: acc for id, acc in accuracy.items() if id in waiting}, config.low, config.high
    )
    for id, acc in accuracy.items():
        if id in pool:
            pool.record(id, iteration=iteration, wins=round(acc * len(groups[id])), rollouts=len(groups[id]))

    outside = [
        task
        for task in tasks
        if task.id not in waiting
        and task.id in accuracy
        and not config.low <= accuracy[task.id] <= config.high
    ]
    # Those furthest out of range first.
    outside.sort(key=lambda task: -abs(accuracy[task.id] - (config.low + config.high) / 2))
    room = config.max_pending - len(pool.pending())  # where rollouts were lost, proposals wait on
    chosen = list({task.id: task for task in outside}.values())[:room]
    requests = []
    for task in chosen:
        direction = "harder" if accuracy[task.id] > config.high else "easier"
        critique = summarise(_complaints(groups[task.id], direction))
        prompt = world.rewrite_prompt(task, direction, critique)
        common: dict[str, Any] = {
            "direction": direction,
            "critique": critique,
            "accuracy_before": accuracy[task.id],
            "iteration": iteration,
        }
        requests.append((task, prompt, common))
    edits = generate(
        rewriter,
        [prompt for _, prompt, _ in requests],
        config.attempts,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        length_buckets=tuple(config.length_buckets),
        seed=seed,
        rows=config.max_pending,
    )
    for (task, _, common), attempts in zip(requests, edits, strict=True):
        if not attempts:
            reason = f"what the rewriter reads does not fit adapt.length_buckets={config.length_buckets}"
            pool.refuse(task.id, edit="", reason=reason, **common)
        for edit in dict.fromkeys(world.edit(attempt) for attempt in attempts):
            try:
                rewritten = world.rewrite(task, edit, pool.fingerprints())
            except Refused as reason:
                pool.refuse(task.id, edit=edit, reason=str(reason), **common)
                continue
            if pool.propose(rewritten, edit=edit, **common):
                break
    events = [event["event"] for event in pool.events_since(before)]
    return {name: events.count(name) for name in ("proposed", "refused", "accepted")} | {
        "accepted_total": len(pool.accepted())
    }


def _complaints(group: Sequence[tuple[Trajectory, Sequence[Sequence[Vote]]]], direction: str) -> list[str]:
    """Rationales of the votes that said -1 about failed trajectories; about all of them where the task is too easy."""
    return [
        vote.rationale
        for trajectory, steps in group
        if direction == "harder" or not trajectory.won
        for of_step in steps
        for vote in of_step
        if vote.score == -1
    ]
