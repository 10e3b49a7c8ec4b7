"""Step 5 of Algorithm 1: tasks that are too easy or too hard are rewritten from the judge's critiques.

A proposal waits in the pool until the updated policy has played it in the next iteration; those rollouts decide, and train both
models either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from rlanything_jax.envs.base import Refused, World
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params
from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.sampler.generate import generate
from rlanything_jax.tasks.critique import summarise
from rlanything_jax.tasks.pool import TaskPool
from rlanything_jax.tasks.task import Task


def adapt(
    rewriter: Params,
    model: ModelConfig,
    tokenizer: Tokenizer,
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
      rewriter: unstacked parameters; frozen, as in the paper.
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
    directions = ["harder" if accuracy[task.id] > config.high else "easier" for task in chosen]
    critiques = [
        summarise(_complaints(groups[task.id], direction))
        for task, direction in zip(chosen, directions, strict=True)
    ]
    prompts = [
        world.rewrite_prompt(task, direction, critique)
        for task, direction, critique in zip(chosen, directions, critiques, strict=True)
    ]
    edits = generate(
        rewriter,
        model,
        tokenizer,
        prompts,
        config.attempts,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        length_buckets=tuple(config.length_buckets),
        seed=seed,
        rows=config.max_pending,
    )
    for task, direction, critique, attempts in zip(chosen, directions, critiques, edits, strict=True):
        for edit in dict.fromkeys(attempts):
            common: dict[str, Any] = {
                "direction": direction,
                "critique": critique,
                "edit": edit,
                "accuracy_before": accuracy[task.id],
                "iteration": iteration,
            }
            try:
                rewritten = world.rewrite(task, edit, pool.fingerprints())
            except Refused as reason:
                pool.refuse(task.id, reason=str(reason), **common)
                continue
            if pool.propose(rewritten, **common):
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
