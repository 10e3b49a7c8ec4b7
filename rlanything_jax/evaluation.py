"""Success on fixed panels of held-out tasks, and how good the reward model is there: always the same tasks and random streams."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from rlanything_jax.dialogue import Speaker
from rlanything_jax.loop import Setting, State, Streams, play, vote
from rlanything_jax.reward.arrays import to_arrays
from rlanything_jax.rollouts import Trajectory


class Panel(NamedTuple):
    split: str
    share: float  # of eval.tasks
    greedy: bool


# By the metric that each panel gives.
PANELS = {
    "eval/success": Panel("valid_seen", 1.0, greedy=False),
    "eval/success_greedy": Panel("valid_seen", 0.5, greedy=True),
    "eval/success_ood": Panel("valid_unseen", 0.5, greedy=False),
}


def evaluate(
    setting: Setting,
    state: State,
    progress: Callable[[str, int, int], None],
    panels: Mapping[str, Panel] = PANELS,
) -> tuple[dict[str, float], list[Trajectory]]:
    """Plays each panel once a task, and has the judge's votes measured on the first `eval.judged` tasks of 'valid_seen'.

    Returns the metrics and the first panel's episodes.
    """
    config = setting.config
    policy = setting.policy.speaker(state.policy.params)
    metrics: dict[str, float] = {}
    episodes: list[Trajectory] = []
    for name, (split, share, greedy) in panels.items():
        tasks = setting.world.tasks(split)[: max(1, round(share * config.eval.tasks))]
        played = [
            trajectory
            for trajectory in play(
                setting,
                policy,
                tasks,
                1,
                sampler=dataclasses.replace(setting.sampler, temperature=0.0) if greedy else setting.sampler,
                seed=Streams.seed(config.seed, Streams.EVALUATE, 0),
                version=int(state.policy.step),
                progress=functools.partial(progress, f"evaluate {split}"),
            )
            if not trajectory.error
        ]
        metrics[name] = float(np.mean([t.won for t in played])) if played else 0.0
        if not episodes:
            steps = [step for trajectory in played for step in trajectory.steps]
            metrics["eval/inadmissible"] = float(np.mean([not step.admissible for step in steps]))
            episodes = played
    if config.eval.judged:
        metrics |= _judged(setting, state, policy, progress)
    return metrics, episodes


def _judged(
    setting: Setting, state: State, policy: Speaker, progress: Callable[[str, int, int], None]
) -> dict[str, float]:
    """The reward model's metrics, under eval/, on as many rollouts and votes as in training."""
    config = setting.config
    tasks = setting.world.tasks("valid_seen")[: config.eval.judged]
    seed = Streams.seed(config.seed, Streams.EVALUATE, 1)
    n, m = config.rollouts_per_task, config.votes_per_step
    trajectories = play(
        setting,
        policy,
        tasks,
        n,
        seed=seed,
        version=int(state.policy.step),
        progress=functools.partial(progress, "evaluate the judge: episodes"),
    )
    votes = vote(
        setting,
        setting.judge.speaker(state.judge.params),
        trajectories,
        n,
        {},
        seed=seed,
        progress=functools.partial(progress, "evaluate the judge: votes"),
    )
    arrays = to_arrays(trajectories, votes, n, m, tasks=len(tasks), steps=config.world.max_steps)
    measured = setting.reward.metrics(arrays)
    return {f"eval/{name.removeprefix('judge/')}": value for name, value in measured.items()}
