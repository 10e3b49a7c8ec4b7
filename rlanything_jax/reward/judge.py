"""The generative reward model: reads a trajectory once, gives m verdicts on each of its steps.

A vote is a short rationale and a verdict, sampled as a branch that leaves the trajectory behind the
observation that followed the step. Votes that cannot be parsed score 0; the rationales of votes that said -1
are the critique that rewrites tasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from rlanything_jax.dialogue import Speaker, Transcript
from rlanything_jax.reward.verdicts import UNPARSED
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.sampler import (
    Sampling,
    bucket,
    decode_branches,
    extend,
    new_sessions,
    pad_rows,
)

# Tokens of a trajectory: attention scores take memory for each of them times the longest trajectory.
READ_AT_ONCE = 512


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """Limits of judging. Every combination of buckets that occurs is compiled once."""

    temperature: float = 1.0
    max_tokens: int = 10
    rows: int = 16  # trajectories read together
    branch_buckets: tuple[int, ...] = (32, 64, 128)  # votes of one trajectory
    length_buckets: tuple[int, ...] = (256, 512)  # tokens of one trajectory
    early: bool = False  # episodes that are over are judged while others play


@dataclasses.dataclass(frozen=True)
class Vote:
    """One verdict: its text, its score in {-1, 0, +1} (0: not parsed) and why, and its tokens as sampled."""

    text: str
    score: int
    rationale: str
    tokens: list[int]
    logprobs: list[float]


_VOTE_BITS = 16  # of a request's 32; the others number the trajectory


def judge(
    speaker: Speaker,
    trajectories: Sequence[Trajectory],
    m: int,
    config: JudgeConfig,
    *,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[list[list[Vote]]]:
    """m votes on every step of every trajectory: [trajectory][step][m].

    Args:
      speaker: the judge.
      seed: with the trajectory's request it names the random streams: which trajectories are judged together does not matter.

    Raises:
      ValueError: a trajectory that is longer than `config.length_buckets` as the judge reads it.
    """
    if not m:  # nothing reads them
        return [[[] for _ in trajectory.steps] for trajectory in trajectories]
    votes: list[list[list[Vote]]] = [[] for _ in trajectories]
    transcripts = [trajectory.transcript(speaker.dialogue) for trajectory in trajectories]
    order = sorted(range(len(transcripts)), key=lambda i: len(transcripts[i].tokens))
    for at in range(0, len(order), config.rows):
        group = order[at : at + config.rows]
        requests = [trajectories[i].request << _VOTE_BITS for i in group]
        judged = _judge_group(speaker, [transcripts[i] for i in group], m, config, seed, requests)
        for i, result in zip(group, judged, strict=True):
            votes[i] = result
        progress(at + len(group), len(order))
    return votes


def _judge_group(
    speaker: Speaker,
    transcripts: Sequence[Transcript],
    m: int,
    config: JudgeConfig,
    seed: int,
    requests: Sequence[int],
) -> list[list[list[Vote]]]:
    params, model, dialogue = speaker
    capacity = bucket(max(len(t.tokens) for t in transcripts), config.length_buckets)
    width = bucket(max(len(t.points) for t in transcripts) * m, config.branch_buckets)
    filler: list[list[int]] = [[]] * (config.rows - len(transcripts))
    tokens, count = pad_rows([*(t.tokens for t in transcripts), *filler], capacity)
    trunk = new_sessions(model, config.rows, capacity)
    for start in range(0, capacity, READ_AT_ONCE):
        piece = tokens[:, start : start + READ_AT_ONCE]
        trunk = extend(params, model, trunk, piece, np.clip(count - start, 0, piece.shape[1]))
    shape = (config.rows, width)
    point, budget, request = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.uint32)
    for row, transcript in enumerate(transcripts):
        n = len(transcript.points) * m
        point[row, :n] = np.repeat(transcript.points, m)
        budget[row, :n] = config.max_tokens
        request[row, :n] = requests[row] + np.arange(n)
    size = config.rows * width
    sampling = Sampling(
        temperature=np.full(size, config.temperature, np.float32),
        budget=budget.reshape(-1),
        stop=np.tile(np.array(dialogue.stop, np.int32), (size, 1)),
        request=request.reshape(-1),
        seed=np.uint32(seed),
    )
    opening = np.array(dialogue.question, np.int32)
    sampled = decode_branches(params, model, trunk, point, opening, sampling, config.max_tokens)
    ids, logprobs, counts, _ = (np.asarray(x).reshape(*shape, *x.shape[1:]) for x in sampled)

    def vote(row: int, column: int) -> Vote:
        n = counts[row, column]
        new = ids[row, column, :n].tolist()
        text = dialogue.text(new)
        score, rationale = dialogue.verdict(text) if new[-1] in dialogue.stop else UNPARSED
        return Vote(text, score, rationale, new, logprobs[row, column, :n].tolist())

    return [
        [[vote(row, step * m + j) for j in range(m)] for step in range(len(transcript.points))]
        for row, transcript in enumerate(transcripts)
    ]
