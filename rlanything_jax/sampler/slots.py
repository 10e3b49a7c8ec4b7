"""Continuous batching: a table of cache rows that sessions enter and leave while the others go on.

The batch is as large as the smallest bucket that holds who is in it, the cache as long as the smallest bucket that holds
the longest of them, so that attention reads little more than what is there. A prompt that several sessions share is
read once and copied into their rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params
from rlanything_jax.sampler.draw import Sampling
from rlanything_jax.sampler.session import (
    Sessions,
    bucket,
    decode,
    extend,
    forget,
    new_sessions,
    pad_rows,
    place,
    rewind,
    select,
)

EMPTY = -1  # who is in a row that only fills the batch


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Sizes to choose from, ascending. Every combination that occurs is compiled once."""

    batch: tuple[int, ...]  # rows
    turn: tuple[int, ...]  # tokens read at once
    length: tuple[int, ...]  # tokens of a row of the cache


class Response(NamedTuple):
    tokens: list[int]
    logprobs: list[float]  # of the distribution that was sampled
    kept: list[float]  # log of the mass that top-k and top-p left


class Slots:
    """Sessions by name, a number that the caller gives each.

    Args:
      room: tokens that a session samples at most in a turn, for which the cache has room behind the longest session.
    """

    def __init__(self, params: Params, model: ModelConfig, buckets: Buckets, room: int) -> None:
        self._params, self._model, self._buckets, self._room = params, model, buckets, room
        self._sessions: Sessions | None = None
        self._prompts: dict[tuple[int, ...], tuple[Sessions, int]] = {}
        self._rows: list[int] = []

    def arrange(self, stay: Mapping[int, int], come: Mapping[int, list[int]]) -> None:
        """Lets in the sessions `come`, with the prompt of each, and drops all but those and `stay`, with their lengths.

        Raises ValueError where a prompt or a session fits no bucket.
        """
        self._read_prompts([tuple(prompt) for prompt in come.values()])
        longest = max([*stay.values(), *map(len, come.values())])
        capacity = bucket(longest + self._room, self._buckets.length)
        size = bucket(len(stay) + len(come), self._buckets.batch)
        sessions = self._sessions
        if sessions is None or not stay:
            rows = [EMPTY] * size
            if sessions is None or (len(self._rows), sessions.capacity) != (size, capacity):
                sessions = new_sessions(self._model, size, capacity)
        elif (len(self._rows), sessions.capacity) == (size, capacity):
            rows = [who if who in stay else EMPTY for who in self._rows]
        else:
            rows = [*stay, *[EMPTY] * (size - len(stay))]
            old = [self._rows.index(who) if who != EMPTY else 0 for who in rows]
            sessions = select(sessions, np.array(old, np.int32), capacity)
        free = (row for row, who in enumerate(rows) if who == EMPTY)
        homes = {who: next(free) for who in come}
        for prompts in {id(p): p for p, _ in self._prompts.values()}.values():
            source = np.full(size, EMPTY, np.int32)
            for who, prompt in come.items():
                read, row = self._prompts[tuple(prompt)]
                if read is prompts:
                    source[homes[who]] = row
            sessions = place(sessions, prompts, source)
        for who, row in homes.items():
            rows[row] = who
        self._sessions, self._rows = sessions, rows
        # Sessions come in the order of their prompts: only the last one may be asked for again.
        self._prompts = {p: self._prompts[p] for p in [*map(tuple, come.values())][-1:]} or self._prompts

    def _read_prompts(self, prompts: list[tuple[int, ...]]) -> None:
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._prompts]
        if not new:
            return
        width = bucket(max(map(len, new)), self._buckets.turn)
        size = bucket(len(new), self._buckets.batch)
        tokens, count = pad_rows([*map(list, new), *[[]] * (size - len(new))], width)
        read = extend(self._params, self._model, new_sessions(self._model, size, width), tokens, count)
        self._prompts |= {prompt: (read, row) for row, prompt in enumerate(new)}

    def read(self, tokens: Mapping[int, list[int]], restart: set[int]) -> None:
        """Reads tokens into each session named, of which those in `restart` begin anew."""
        assert self._sessions is not None
        if restart:
            self._sessions = forget(self._sessions, np.array([who in restart for who in self._rows]))
        width = bucket(max(map(len, tokens.values())), self._buckets.turn)
        padded, count = pad_rows([tokens.get(who, []) for who in self._rows], width)
        count[[who not in tokens for who in self._rows]] = -1
        self._sessions = extend(self._params, self._model, self._sessions, padded, count)

    def sample(
        self,
        requests: Mapping[int, int],
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        stop: tuple[int, ...],
        seed: int,
        cut: Callable[[list[int]], int] | None = None,
    ) -> dict[int, Response]:
        """A response of each session named, whose random stream is its request.

        Args:
          stop: ids that end a response and are part of it.
          cut: says how many of a response's tokens count; the session goes on behind the last of them.
        """
        assert self._sessions is not None
        size = len(self._rows)
        how = Sampling(
            temperature=np.full(size, temperature, np.float32),
            budget=np.array([self._room if who in requests else 0 for who in self._rows], np.int32),
            stop=np.tile(np.array(stop, np.int32), (size, 1)),
            request=np.array([requests.get(who, 0) for who in self._rows], np.uint32),
            seed=np.uint32(seed),
            top_k=np.full(size, top_k, np.int32),
            top_p=np.full(size, top_p, np.float32),
        )
        self._sessions, sampled = decode(self._params, self._model, self._sessions, how, self._room)
        tokens, logprobs, count, kept = (np.asarray(x) for x in sampled)
        keep = count.copy()
        if cut is not None:
            for row, who in enumerate(self._rows):
                if who in requests:
                    keep[row] = cut(tokens[row, : count[row]].tolist())
            last = tokens[np.arange(size), np.maximum(keep - 1, 0)]
            self._sessions = rewind(self._sessions, count - keep, last)
        return {
            who: Response(*(x[row, : keep[row]].tolist() for x in (tokens, logprobs, kept)))
            for row, who in enumerate(self._rows)
            if who in requests
        }
