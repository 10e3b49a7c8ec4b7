"""Success on fixed panels of held-out tasks: the same tasks and the same random streams at every evaluation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from rlanything_jax.loop import Setting, Streams
from rlanything_jax.models.decoder import Params
from rlanything_jax.rollouts import Trajectory, rollout


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
    params: Params,
    progress: Callable[[str, int, int], None],
    panels: Mapping[str, Panel] = PANELS,
) -> tuple[dict[str, float], list[Trajectory]]:
    """Plays each panel once a task, with the `params` of a train state; returns the metrics and the first panel's episodes."""
    config = setting.config
    policy = setting.policy.speaker(params)
    metrics: dict[str, float] = {}
    episodes: list[Trajectory] = []
    for name, (split, share, greedy) in panels.items():
        tasks = setting.world.tasks(split)[: max(1, round(share * config.eval.tasks))]
        played = [
            trajectory
            for trajectory in rollout(
                policy,
                setting.envs,
                setting.world,
                tasks,
                1,
                dataclasses.replace(setting.sampler, temperature=0.0) if greedy else setting.sampler,
                seed=Streams.seed(config.seed, Streams.EVALUATE, 0),
                progress=functools.partial(progress, f"evaluate {split}"),
            )
            if not trajectory.error
        ]
        metrics[name] = float(np.mean([t.won for t in played])) if played else 0.0
        if not episodes:
            steps = [step for trajectory in played for step in trajectory.steps]
            metrics["eval/inadmissible"] = float(np.mean([not step.admissible for step in steps]))
            episodes = played
    return metrics, episodes
