"""The generative reward model: reads a trajectory once, gives m verdicts on each of its steps.

A vote is a short rationale and a verdict, sampled as a branch that leaves the trajectory behind the
observation that followed the step. Votes that cannot be parsed score 0; the rationales of votes that said -1
are the critique that rewrites tasks.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np
from tokenizers import Tokenizer

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params
from rlanything_jax.models.tokenizer import END, JUDGE, special_id
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.sampler import (
    Sampling,
    bucket,
    decode_branches,
    extend,
    new_sessions,
    pad_rows,
)

# A rationale that says "Verdict:" itself hedges between two.
_VERDICT = re.compile(r"(?P<rationale>(?=\S)(?:(?!Verdict:).)+) Verdict: (?P<verdict>[+-]1)")


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """Limits of judging. Every combination of buckets that occurs is compiled once."""

    temperature: float = 1.0
    max_tokens: int = 10
    rows: int = 16  # trajectories read together
    branch_buckets: tuple[int, ...] = (32, 64, 128)  # votes of one trajectory
    length_buckets: tuple[int, ...] = (256, 512)  # tokens of one trajectory


@dataclasses.dataclass(frozen=True)
class Vote:
    """One verdict: its text, its score in {-1, 0, +1} (0: not parsed), and its tokens as sampled."""

    text: str
    score: int
    tokens: list[int]
    logprobs: list[float]

    @property
    def rationale(self) -> str:
        match = _VERDICT.fullmatch(self.text)
        return match["rationale"] if match else ""


def format_verdict(rationale: str, score: int) -> str:
    """The text of a vote that `parse_verdict` reads back."""
    return f"{rationale} Verdict: {score:+d}"


def parse_verdict(text: str) -> int:
    """+1 or -1 for a rationale followed by exactly one verdict at the end of the text, else 0."""
    match = _VERDICT.fullmatch(text)
    return int(match["verdict"]) if match else 0


def judge(
    params: Params,
    model: ModelConfig,
    tokenizer: Tokenizer,
    trajectories: Sequence[Trajectory],
    m: int,
    config: JudgeConfig,
    *,
    seed: int,
    first_request: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[list[list[Vote]]]:
    """m votes on every step of every trajectory: [trajectory][step][m].

    Args:
      params: unstacked parameters of the judge.
      seed, first_request: name the random streams; they do not depend on how trajectories are grouped.
    """
    votes: list[list[list[Vote]]] = [[] for _ in trajectories]
    order = sorted(range(len(trajectories)), key=lambda i: len(trajectories[i].tokens))
    most_steps = max((len(t.steps) for t in trajectories), default=0)
    for at in range(0, len(order), config.rows):
        group = order[at : at + config.rows]
        members = [trajectories[i] for i in group]
        requests = [first_request + i * most_steps * m for i in group]
        for i, result in zip(
            group, _judge_group(params, model, tokenizer, members, m, config, seed, requests), strict=True
        ):
            votes[i] = result
        progress(at + len(group), len(order))
    return votes


def _judge_group(
    params: Params,
    model: ModelConfig,
    tokenizer: Tokenizer,
    trajectories: Sequence[Trajectory],
    m: int,
    config: JudgeConfig,
    seed: int,
    requests: Sequence[int],
) -> list[list[list[Vote]]]:
    end, question = special_id(tokenizer, END), special_id(tokenizer, JUDGE)
    capacity = bucket(max(len(t.tokens) for t in trajectories), config.length_buckets)
    width = bucket(max(len(t.steps) for t in trajectories) * m, config.branch_buckets)
    filler: list[list[int]] = [[]] * (config.rows - len(trajectories))
    tokens, count = pad_rows([*(t.tokens for t in trajectories), *filler], capacity)
    trunk = extend(params, model, new_sessions(model, config.rows, capacity), tokens, count)
    shape = (config.rows, width)
    point, budget, request = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.uint32)
    for row, trajectory in enumerate(trajectories):
        n = len(trajectory.steps) * m
        point[row, :n] = np.repeat([step.point for step in trajectory.steps], m)
        budget[row, :n] = config.max_tokens
        request[row, :n] = requests[row] + np.arange(n)
    size = config.rows * width
    sampling = Sampling(
        temperature=np.full(size, config.temperature, np.float32),
        budget=budget.reshape(-1),
        stop=np.full((size, 1), end, np.int32),
        request=request.reshape(-1),
        seed=np.uint32(seed),
    )
    opening = np.array([question], np.int32)
    sampled = decode_branches(params, model, trunk, point, opening, sampling, config.max_tokens)
    ids, logprobs, counts = (np.asarray(x).reshape(*shape, *x.shape[1:]) for x in sampled)

    def vote(row: int, column: int) -> Vote:
        n = counts[row, column]
        new = ids[row, column, :n].tolist()
        finished = new[-1] == end
        text = tokenizer.decode(new[:-1] if finished else new)
        score = parse_verdict(text) if finished else 0
        return Vote(text, score, new, logprobs[row, column, :n].tolist())

    return [
        [[vote(row, step * m + j) for j in range(m)] for step in range(len(trajectory.steps))]
        for row, trajectory in enumerate(trajectories)
    ]
