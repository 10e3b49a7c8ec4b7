"""The workloads that all systems are given, as token ids: numpy alone, so that every environment can import it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Generate = Callable[
    [list[list[int]], int], list[list[int]]
]  # prompts and a number of tokens -> the new tokens


@dataclasses.dataclass(frozen=True)
class Shape:
    """Lengths in tokens, and counts, of all workloads at one size of model."""

    vocabulary: int
    batch: int = 32
    # Multi-turn rollouts: each turn reads an observation and writes an action.
    episodes: int = 32
    turns: int = 16
    observation: int = 40
    action: int = 12
    # One-turn generation.
    prompt: int = 128
    response: int = 64
    # Training.
    train_rows: int = 8
    train_length: int = 256
    # Judging: an opening, then steps of an observation and an action; m votes on each step, all tokens sampled.
    trajectories: int = 32
    steps: int = 16
    votes: int = 3
    opening: int = 120
    step_observation: int = 80
    step_action: int = 16
    question: int = 4
    rationale: int = 24
    # What a system that re-reads is given of the above, where all of it would take hours: its rate is the same.
    sample: int = 32  # episodes of a system that takes one prompt at a time
    judged: int = 4  # trajectories of a system that is called for every vote, one on each step

    def shrunk(self, by: int) -> Shape:
        counts = (
            "batch",
            "episodes",
            "turns",
            "trajectories",
            "steps",
            "sample",
            "judged",
            "train_rows",
            "response",
        )
        return dataclasses.replace(self, **{name: max(2, getattr(self, name) // by) for name in counts})

    @property
    def turn(self) -> int:
        return self.observation + self.action

    @property
    def trunk(self) -> int:
        return self.opening + self.steps * (self.step_observation + self.step_action)

    def points(self) -> list[int]:
        """Tokens of a trajectory up to what followed each step."""
        return [
            self.opening + (i + 1) * (self.step_observation + self.step_action) for i in range(self.steps)
        ]


SHAPES = {
    "tiny": Shape(vocabulary=4096),
    "135m": Shape(vocabulary=49152, sample=2, trajectories=8, judged=1, train_rows=4),
}


def shape_of(job: dict[str, Any]) -> Shape:
    shape = SHAPES[job["size"]]
    return shape.shrunk(job["shrink"]) if job["shrink"] > 1 else shape


def texts(shape: Shape, count: int, length: int, seed: int) -> list[list[int]]:
    """Random ids, without the special ones; the first is the id that opens a text."""
    ids = np.random.default_rng(seed).integers(3, shape.vocabulary, (count, length))
    ids[:, 0] = 1
    return ids.tolist()


def multi_turn(generate: Generate, shape: Shape, episodes: int, at_once: int) -> None:
    """Plays episodes by sending the whole history at every turn, `at_once` of them in a call."""
    read = [texts(shape, episodes, shape.observation, turn) for turn in range(shape.turns)]
    for start in range(0, episodes, at_once):
        histories: list[list[int]] = [[] for _ in range(start, min(start + at_once, episodes))]
        for observations in read:
            for history, observation in zip(histories, observations[start:], strict=False):
                history += observation
            new = generate(histories, shape.action)
            for history, action in zip(histories, new, strict=True):
                history += action


def evaluations(shape: Shape, trajectories: int) -> list[list[int]]:
    """The prompt of one vote on each step: the trajectory so far and the question. Sorted by length, to be batched."""
    trunks = texts(shape, trajectories, shape.trunk, 100)
    question = texts(shape, 1, shape.question, 101)[0]
    prompts = [trunk[:point] + question for trunk in trunks for point in shape.points()]
    return sorted(prompts, key=len)


def in_batches(generate: Generate, prompts: list[list[int]], tokens: int, at_once: int) -> None:
    for start in range(0, len(prompts), at_once):
        generate(prompts[start : start + at_once], tokens)
