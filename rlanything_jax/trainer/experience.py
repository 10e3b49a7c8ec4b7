"""From trajectories, votes and advantages to what the train step packs.

A sample is one step's response (policy) or one vote (judge). A sample whose advantage is 0 has no gradient:
it is read, where others need it as context, and not trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlanything_jax.dialogue import Transcript
from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.trainer.batches import Piece, TrainSequence


def policy_sequences(
    trajectory: Trajectory, advantage: np.ndarray, aggregation: str = "sequence"
) -> list[TrainSequence]:
    """One sequence for each of the trajectory's contexts, with one advantage a step, `advantage` [T].

    Tokens that were read have weight 0.
    """
    sequences = []
    for number, segment in enumerate(trajectory.segments):
        steps = [
            (s, a) for s, a in zip(trajectory.steps, advantage.tolist(), strict=False) if s.segment == number
        ]
        n = steps[-1][0].end if steps else 0  # nothing is learned from the last observation
        piece = Piece(segment.tokens[:n], [0.0] * n, [0.0] * n, segment.full_logprobs[:n])
        for step, value in steps:
            if value:
                _fill(piece, step.start, step.end, value, aggregation)
        if n:
            sequences.append(TrainSequence(piece))
    return sequences


def judge_sequence(
    transcript: Transcript,
    votes: Sequence[Sequence[Vote]],
    advantage: np.ndarray,
    question: Sequence[int],
    aggregation: str = "sequence",
) -> TrainSequence:
    """An episode as the trunk, the votes with nonzero `advantage` [T,M] as branches behind `question`."""
    tokens, points = transcript
    branches = [
        _branch(question, vote.tokens, vote.logprobs, value, point, aggregation)
        for point, values, cast in zip(points, advantage.tolist(), votes, strict=False)
        for value, vote in zip(values, cast, strict=True)
        if value
    ]
    return TrainSequence(_read_only(tokens[: points[-1]]), branches)


def response_tree(
    prompt: Sequence[int],
    responses: Sequence[tuple[Sequence[int], Sequence[float]]],
    advantage: np.ndarray,
    aggregation: str = "sequence",
) -> TrainSequence:
    """A prompt as the trunk, the responses (tokens, logprobs) with nonzero `advantage` [M] as its branches."""
    *read, last = prompt  # every branch has the token that its first one is predicted from
    branches = [
        _branch([last], tokens, logprobs, value, len(read), aggregation)
        for (tokens, logprobs), value in zip(responses, advantage.tolist(), strict=True)
        if value
    ]
    return TrainSequence(_read_only(read), branches)


def _read_only(tokens: Sequence[int]) -> Piece:
    n = len(tokens)
    return Piece(list(tokens), [0.0] * n, [0.0] * n, [0.0] * n)


def _branch(
    opening: Sequence[int],
    tokens: Sequence[int],
    logprobs: Sequence[float],
    advantage: float,
    point: int,
    aggregation: str,
) -> Piece:
    """`tokens` as sampled behind `opening`, which is read, behind the first `point` tokens of a trunk."""
    asked, size = len(opening), len(opening) + len(tokens)
    piece = Piece([*opening, *tokens], [0.0] * size, [0.0] * size, [*[0.0] * asked, *logprobs], point)
    _fill(piece, asked, size, advantage, aggregation)
    return piece


def _fill(piece: Piece, start: int, end: int, advantage: float, aggregation: str) -> None:
    """Marks one sample: 'sequence' weighs every sample alike, 'token' every token."""
    weight = 1.0 / (end - start) if aggregation == "sequence" else 1.0
    piece.weight[start:end] = [weight] * (end - start)
    piece.advantage[start:end] = [advantage] * (end - start)
