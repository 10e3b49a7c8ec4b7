"""A trajectory as a row of trajectories/*.jsonl, for people and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Trajectory


def trajectory_row(
    iteration: int,
    kind: str,
    trajectory: Trajectory,
    votes: Sequence[Sequence[Vote]] = (),
    reward: np.ndarray | None = None,
    advantage: np.ndarray | None = None,
) -> dict[str, Any]:
    """One episode of kind 'train', 'verify' or 'eval'; votes [T][m], reward and advantage [T] where it was judged."""
    task = trajectory.task
    steps = []
    for t, step in enumerate(trajectory.steps):
        row = {
            "observation": step.observation,
            "response": step.response,
            "action": step.response,
            "admissible": step.admissible,
            "label": step.label,
        }
        if votes:
            row["verdicts"] = [{"text": vote.text, "score": vote.score} for vote in votes[t]]
        if reward is not None and advantage is not None:
            row |= {"reward": float(reward[t]), "advantage": float(advantage[t])}
        steps.append(row)
    return {
        "iteration": iteration,
        "kind": kind,
        "task": task.id,
        "parent": task.parent,
        "generation": task.generation,
        "instruction": task.instruction,
        "rollout": trajectory.rollout,
        "outcome": trajectory.outcome,
        "error": trajectory.error,
        "steps": steps,
    }
