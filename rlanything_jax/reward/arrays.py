"""From trajectories and votes to the arrays over [task, rollout, step, m] of the equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Trajectory


class Votes(NamedTuple):
    outcome: np.ndarray  # [Q,N] int32 in {-1,+1}
    score: np.ndarray  # [Q,N] float32 in [0,1], the environment's own measure
    scores: np.ndarray  # [Q,N,T,M] int32 in {-1,0,+1}
    step_mask: np.ndarray  # [Q,N,T] bool
    state: np.ndarray  # [Q,N,T+1] int32, equal within a task where the state is, -1 where there is none
    labels: np.ndarray  # [Q,N,T] int32 in {-1,0,+1}, 0 where the world gives none


def to_arrays(
    trajectories: Sequence[Trajectory],
    votes: Sequence[Sequence[Sequence[Vote]]],
    n: int,
    m: int,
    *,
    tasks: int,
    steps: int,
) -> Votes:
    """Arrays of `tasks` x `n` x `steps` x `m`, padded by masked entries.

    The size is fixed, so that the number of tasks compiles nothing anew. Episodes
    that the environment lost are masked as a whole: their outcome means nothing.
    """
    arrays = Votes(
        np.full((tasks, n), -1, np.int32),
        np.zeros((tasks, n), np.float32),
        np.zeros((tasks, n, steps, m), np.int32),
        np.zeros((tasks, n, steps), bool),
        np.full((tasks, n, steps + 1), -1, np.int32),
        np.zeros((tasks, n, steps), np.int32),
    )
    numbers: dict[tuple[int, str], int] = {}  # of the states of each task
    for i, (trajectory, cast) in enumerate(zip(trajectories, votes, strict=True)):
        if trajectory.error:
            continue
        here = divmod(i, n)
        arrays.outcome[here], arrays.score[here] = trajectory.outcome, trajectory.score
        for t, state in enumerate(trajectory.states):
            arrays.state[here][t] = numbers.setdefault((here[0], state), len(numbers))
        for t, (step, of_step) in enumerate(zip(trajectory.steps, cast, strict=True)):
            arrays.step_mask[here][t] = True
            arrays.scores[here][t] = [vote.score for vote in of_step]
            arrays.labels[here][t] = step.label or 0
    return arrays
