"""Generates functions: `generate(seed, split=..., **knobs)` is a pure function of its arguments.

The splits share no sequence of steps, whatever the knobs. 'valid_unseen' has those with a pair of operations in a row that the
other two never show; of the rest, a hash says which belong to 'valid_seen'.
"""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rlanything_jax.envs.code.functions.function import (
    CLOSINGS,
    MOST_STEPS,
    OPENINGS,
    Function,
    Step,
    flaw,
    signature,
)
from rlanything_jax.envs.code.functions.ops import OPS, TYPES

SPLITS = ("train", "valid_seen", "valid_unseen")
_UNSEEN_SHARE = 8  # one pair of operations in so many is unseen
_VALID_SHARE = 6  # of the rest, one sequence of steps in so many is 'valid_seen'
_ATTEMPTS = 5000


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What a generated function looks like and how hard it is. ValueError names a value that cannot be."""

    steps: Sequence[int] = (2, 4)  # fewest and most; every number in between is as likely
    types: Sequence[str] = TYPES  # of the argument and of all values on the way
    largest: int = 5  # constant
    varied: bool = True  # say the same in different words; else always in the first
    example: bool = False  # show an example in the statement

    def __post_init__(self) -> None:
        low, high = self.steps
        if not 1 <= low <= high <= MOST_STEPS:
            raise ValueError(
                f"steps={tuple(self.steps)}: give the fewest and the most, from 1 to {MOST_STEPS}"
            )
        if not self.types or not set(self.types) <= set(TYPES):
            raise ValueError(f"types={tuple(self.types)}: choose some of {', '.join(TYPES)}")


def generate(seed: int, *, split: str = "train", **knobs: Any) -> Function:
    """Generates one function; equal arguments give equal functions.

    `knobs` are the fields of `Knobs`. Raises ValueError where no function of the split fits them.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    settings = Knobs(**knobs)
    low, high = settings.steps
    if split == "valid_unseen":
        if high < 2:
            raise ValueError(
                f"steps={tuple(settings.steps)}: a {split} function has a pair of steps, allow 2"
            )
        low = max(low, 2)
    rng = random.Random(f"{split} {seed}")
    length = rng.randint(low, high)
    for _ in range(_ATTEMPTS):
        argument = rng.choice(settings.types)
        steps = _draw_steps(rng, argument, length, settings)
        if steps and split_of(argument, steps) == split and not flaw(argument, steps):
            wording = (rng.randrange(len(OPENINGS[argument])), rng.randrange(len(CLOSINGS)))
            return Function(argument, steps, wording if settings.varied else (0, 0), settings.example, split)
    raise ValueError(f"no {split} function fits {settings}: allow more steps or types")


def split_of(argument: str, steps: Sequence[Step]) -> str:
    """The only split that a sequence of steps may be in."""
    if any(is_unseen(a.op.name, b.op.name) for a, b in pairwise(steps)):
        return "valid_unseen"
    held_out = zlib.crc32(signature(argument, steps).encode()) % _VALID_SHARE == 0
    return "valid_seen" if held_out else "train"


def is_unseen(first: str, second: str) -> bool:
    """Whether the operation `second` follows `first` in 'valid_unseen' alone."""
    return zlib.crc32(f"{first} {second}".encode()) % _UNSEEN_SHARE == 0


def draw_step(rng: random.Random, type: str, before: Step | None, knobs: Knobs) -> Step | None:
    """A step that goes after `before` on a value of `type`: never of the same family, which would be one step in two words."""
    ops = [
        op
        for op in OPS.values()
        if op.takes == type and op.gives in knobs.types and (before is None or op.family != before.op.family)
    ]
    if not ops:
        return None
    op = rng.choice(ops)
    constants = [k for k in op.constants if not isinstance(k, int) or k <= knobs.largest]
    if not constants:
        return None
    return Step(op, rng.choice(constants), rng.randrange(len(op.sentences)) if knobs.varied else 0)


def _draw_steps(rng: random.Random, argument: str, length: int, knobs: Knobs) -> tuple[Step, ...]:
    """`length` steps that follow each other, () where the drawing ran into a dead end."""
    steps: list[Step] = []
    type = argument
    for _ in range(length):
        step = draw_step(rng, type, steps[-1] if steps else None, knobs)
        if step is None:
            return ()
        steps.append(step)
        type = step.op.gives
    return tuple(steps)
