"""From ragged sequences to dense arrays: packing, with plain and tree-shaped sequences in the same form.

A sequence is a trunk of tokens and, for the judge, branches that leave the trunk at some point. All of it
lies in one row, trunk first. Who sees whom follows from four integers a token, so that one mask function
serves both models:

    token          t0 t1 t2 t3 | a0 a1 | b0 b1 b2      branch a leaves after t1, branch b after t3
    branch          0  0  0  0 |  1  1 |  2  2  2
    position        0  1  2  3 |  2  3 |  4  5  6      positions go on from the branch point
    limit           -  -  -  - |  2  2 |  4  4  4      a branch sees trunk positions below its limit

Several sequences share a row and are kept apart by `segment`; 0 is padding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlanything_jax.models.spans import Spans


@dataclasses.dataclass
class Piece:
    """A run of tokens with what is learned from each: the trunk, or one branch."""

    tokens: list[int]
    weight: list[float]  # of each token in the loss; 0 for what was read and not written
    advantage: list[float]
    logprobs: list[float]  # of the behaviour that sampled them; 0 where weight is 0
    point: int = 0  # branches only: how many trunk tokens they see


@dataclasses.dataclass
class TrainSequence:
    trunk: Piece
    branches: list[Piece] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.trunk.tokens) + sum(len(branch.tokens) for branch in self.branches)


class Batch(NamedTuple):
    """Packed rows, each array [R,S]. Row-wise independent, so it may be cut along R into micro-batches."""

    tokens: np.ndarray | Array
    position: np.ndarray | Array
    segment: np.ndarray | Array
    branch: np.ndarray | Array
    limit: np.ndarray | Array
    weight: np.ndarray | Array
    advantage: np.ndarray | Array
    logprobs: np.ndarray | Array  # the sampler's
    old: np.ndarray | Array  # the trainer's before the first update; zeros until they are needed


_DTYPES = (*(np.int32,) * 5, *(np.float32,) * 4)


def spans(batch: Batch) -> Spans:
    """Who sees whom, [R,S]: see the picture at the top of this file."""
    index = jnp.broadcast_to(jnp.arange(batch.tokens.shape[1]), batch.tokens.shape)

    def start_of_run(*ids: Array) -> Array:
        """The index at which the run of tokens with these ids begins, for every token of it."""
        new = functools.reduce(
            jnp.logical_or, (x != jnp.pad(x, ((0, 0), (1, 0)), constant_values=-1)[:, :-1] for x in ids)
        )
        return jax.lax.cummax(jnp.where(new, index, 0), axis=1)

    segment, branch = jnp.asarray(batch.segment), jnp.asarray(batch.branch)
    start = start_of_run(segment)
    last = jnp.where(segment > 0, index, -1)  # padding sees nothing
    return Spans(start, start + jnp.where(segment > 0, batch.limit, 0), start_of_run(segment, branch), last)


def attention_mask(batch: Batch) -> Array:
    """`spans` as a mask, [R,S,S] bool."""
    return spans(batch).sees(jnp.arange(batch.tokens.shape[1]))


def normalise(sequences: Sequence[TrainSequence]) -> list[TrainSequence]:
    """Scales the weights in place to a sum of 1 over all sequences; those without weight are left out."""
    pieces = [piece for sequence in sequences for piece in (sequence.trunk, *sequence.branches)]
    total = sum(sum(piece.weight) for piece in pieces)
    for piece in pieces:
        piece.weight = [w / total if w else 0.0 for w in piece.weight]
    return [s for s in sequences if any(any(piece.weight) for piece in (s.trunk, *s.branches))]


def split_branches(sequence: TrainSequence, length: int) -> list[TrainSequence]:
    """Cuts a tree longer than `length` into several that repeat its trunk, trained in the first only."""
    if len(sequence) <= length:
        return [sequence]
    trunk = sequence.trunk
    parts = [TrainSequence(trunk)]
    for branch in sequence.branches:
        if len(parts[-1]) + len(branch.tokens) > length:
            parts.append(TrainSequence(dataclasses.replace(trunk, weight=[0.0] * len(trunk.tokens))))
        parts[-1].branches.append(branch)
    return [part for part in parts if part.branches or any(part.trunk.weight)]


def pack(
    sequences: Sequence[TrainSequence], *, tokens: int, lengths: tuple[int, ...], shards: int = 1
) -> list[Batch]:
    """Packs sequences into micro-batches, first fit, longest first.

    Args:
      sequences: what to pack; a tree that is longer than the longest row is cut by its branches.
      tokens: of a micro-batch; rows of S tokens make batches of max(1, tokens // S) rows, or of the next multiple of
        `shards`.
      lengths: row lengths to choose from, ascending. A sequence that fits no open row opens the shortest that
        holds it, since what is left of the row is padding.
      shards: parts into which a batch is cut along its rows, one for each group of devices.

    Raises:
      ValueError: a sequence that fits no row. Dropping it here would leave its advantage without its tokens.
    """
    whole = [part for sequence in sequences for part in split_branches(sequence, lengths[-1])]
    rows: list[tuple[int, list[TrainSequence]]] = []
    room: list[int] = []
    for sequence in sorted(whole, key=len, reverse=True):
        size = len(sequence)
        home = next((i for i, free in enumerate(room) if free >= size), None)
        if home is None:
            length = next((n for n in lengths if n >= size), None)
            if length is None:
                raise ValueError(
                    f"a sequence of {size} tokens fits no row of trainer.length_buckets={lengths}"
                )
            home = len(rows)
            rows.append((length, []))
            room.append(length)
        rows[home][1].append(sequence)
        room[home] -= size
    batches = []
    for length in lengths:
        alike = [row for n, row in rows if n == length]
        count = -(-max(1, tokens // length) // shards) * shards
        batches += [_fill(alike[i : i + count], length, count) for i in range(0, len(alike), count)]
    return batches


def _fill(bins: Sequence[Sequence[TrainSequence]], length: int, rows: int) -> Batch:
    batch = Batch(*(np.zeros((rows, length), dtype) for dtype in _DTYPES))
    for row, sequences in enumerate(bins):
        at = 0
        for segment, sequence in enumerate(sequences, start=1):
            for branch, piece in enumerate([sequence.trunk, *sequence.branches]):
                n = len(piece.tokens)
                here = (row, slice(at, at + n))
                start = piece.point if branch else 0
                batch.tokens[here] = piece.tokens
                batch.position[here] = np.arange(start, start + n)
                batch.segment[here] = segment
                batch.branch[here] = branch
                batch.limit[here] = start
                batch.weight[here] = piece.weight
                batch.advantage[here] = piece.advantage
                batch.logprobs[here] = piece.logprobs
                at += n
    return batch
