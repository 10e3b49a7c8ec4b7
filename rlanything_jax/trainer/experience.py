"""From trajectories, votes and advantages to what the train step packs.

A sample is one step's response (policy) or one vote (judge). A sample whose advantage is 0 has no gradient:
it is read, where others need it as context, and not trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.trainer.batches import Piece, TrainSequence


def policy_sequence(
    trajectory: Trajectory, advantage: np.ndarray, aggregation: str = "sequence"
) -> TrainSequence:
    """A trajectory with one advantage a step, `advantage` [T]; tokens that were read have weight 0."""
    n = trajectory.steps[-1].end  # nothing is learned from the last observation
    piece = Piece(trajectory.tokens[:n], [0.0] * n, [0.0] * n, trajectory.logprobs[:n])
    for step, value in zip(trajectory.steps, advantage.tolist(), strict=False):
        if value:
            _fill(piece, step.start, step.end, value, aggregation)
    return TrainSequence(piece)


def judge_sequence(
    trajectory: Trajectory,
    votes: Sequence[Sequence[Vote]],
    advantage: np.ndarray,
    question: int,
    aggregation: str = "sequence",
) -> TrainSequence:
    """A trajectory as the trunk, its votes with nonzero `advantage` [T,M] as branches behind `question`."""
    n = trajectory.steps[-1].point
    trunk = Piece(trajectory.tokens[:n], [0.0] * n, [0.0] * n, [0.0] * n)
    branches = []
    for step, values, cast in zip(trajectory.steps, advantage.tolist(), votes, strict=False):
        for value, vote in zip(values, cast, strict=True):
            if value:
                size = 1 + len(vote.tokens)
                piece = Piece(
                    [question, *vote.tokens], [0.0] * size, [0.0] * size, [0.0, *vote.logprobs], step.point
                )
                _fill(piece, 1, size, value, aggregation)
                branches.append(piece)
    return TrainSequence(trunk, branches)


def _fill(piece: Piece, start: int, end: int, advantage: float, aggregation: str) -> None:
    """Marks one sample: 'sequence' weighs every sample alike, 'token' every token."""
    weight = 1.0 / (end - start) if aggregation == "sequence" else 1.0
    piece.weight[start:end] = [weight] * (end - start)
    piece.advantage[start:end] = [advantage] * (end - start)
