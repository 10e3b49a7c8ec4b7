"""Step 5 of Algorithm 1: tasks that are too easy or too hard are rewritten from the judge's critiques.

A proposal waits in the pool until the updated policy has played it in the next iteration; those rollouts decide, and train both
models either way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from typing import cast as cast_to

import numpy as np
from ml_collections import ConfigDict

from rlanything_jax.dialogue import Speaker
from rlanything_jax.envs.base import Refused, World, WorldOfListedEdits
from rlanything_jax.reward.model import Cast
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.sampler.generate import Response, generate
from rlanything_jax.tasks.pool import TaskPool
from rlanything_jax.tasks.task import Task

_SECOND = 1 << 20  # first request of the second opinions


def adapt(
    rewriter: Speaker,
    world: World,
    critique: Callable[[Task, list[Trajectory], Cast, str], str],
    pool: TaskPool,
    tasks: Sequence[Task],
    trajectories: Sequence[Trajectory],
    votes: Cast,
    config: ConfigDict,
    *,
    iteration: int,
    seed: int,
) -> dict[str, int]:
    """Settles the pending tasks among `tasks`, then proposes rewrites of those that are too easy or too hard.

    Args:
      rewriter: frozen, as in the paper; where a rewrite needs a second opinion, it gives that too, in a context of its own.
      critique: of the reward model, see `RewardModel`.
      tasks, trajectories, votes: the episodes of this iteration, in the order [task, rollout].
      config: source ('critique': of the rewriter's edits; 'random': any valid one, whichever way it leads, verified likewise),
        low, high (thresholds of the success rate), max_pending, attempts, temperature, max_tokens, length_buckets.

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
        played, cast = map(list, zip(*groups[task.id], strict=True))
        common: dict[str, Any] = {
            "direction": direction,
            "critique": critique(task, played, cast, direction) if config.source == "critique" else "",
            "accuracy_before": accuracy[task.id],
            "iteration": iteration,
        }
        requests.append((task, common))
    ask = functools.partial(
        generate,
        rewriter,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        length_buckets=tuple(config.length_buckets),
        rows=config.max_pending,
    )
    if config.source == "critique":
        prompts = [world.rewrite_prompt(task, how["direction"], how["critique"]) for task, how in requests]
        attempts = ask(prompts, config.attempts, seed=seed)
        edits = [list(dict.fromkeys(world.edit(attempt.text) for attempt in of_task)) for of_task in attempts]
    else:
        edits = _any_edits(cast_to(WorldOfListedEdits, world), [task for task, _ in requests], seed)
    seconds = _second_opinions(
        ask, world, [(task, e) for (task, _), es in zip(requests, edits, strict=True) for e in es], seed
    )
    for (task, common), of_task in zip(requests, edits, strict=True):
        if not of_task:
            reason = f"what the rewriter reads does not fit adapt.length_buckets={config.length_buckets}"
            pool.refuse(task.id, edit="", reason=reason, **common)
        for edit in of_task:
            try:
                rewritten = world.rewrite(task, edit, pool.fingerprints(), seconds.get((task.id, edit), ""))
            except Refused as reason:
                pool.refuse(task.id, edit=edit, reason=str(reason), **common)
                continue
            if pool.propose(rewritten, edit=edit, **common):
                break
    events = [event["event"] for event in pool.events_since(before)]
    return {name: events.count(name) for name in ("proposed", "refused", "accepted")} | {
        "accepted_total": len(pool.accepted())
    }


def _any_edits(world: WorldOfListedEdits, tasks: Sequence[Task], seed: int) -> list[list[str]]:
    """All edits of each task in random order: the first that is valid is a uniform draw from those that are.

    Not in the paper, but what its critiques are measured against.
    """
    rng = np.random.default_rng(seed)
    return [[edits[i] for i in rng.permutation(len(edits))] for edits in map(world.edits, tasks)]


def _second_opinions(
    ask: Callable[..., list[list[Response]]], world: World, rewrites: Sequence[tuple[Task, str]], seed: int
) -> dict[tuple[str, str], str]:
    """What an independent solver says to those of the rewrites that want one, by task and edit."""
    prompts = {(task.id, edit): world.second_prompt(task, edit) for task, edit in rewrites}
    prompts = {key: prompt for key, prompt in prompts.items() if prompt}
    # The same seed, but other requests: none has the random stream of the rewriter that it checks.
    answers = ask(list(prompts.values()), 1, seed=seed, first_request=_SECOND) if prompts else []
    return {key: answer[0].text for key, answer in zip(prompts, answers, strict=True) if answer}
