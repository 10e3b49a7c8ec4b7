"""Generation over a cache kept across turns: `extend` reads, `decode` writes, `select` forks and compacts.

The state is a pytree of arrays, one row a session. A turn of an agent is one `extend` (the observation) and
one `decode` (the action); nothing that was read is read again. Rows are independent: a row's result depends
on its own tokens, request id and temperature alone, never on its place in the batch, its neighbours or the
size of the cache.

The last sampled token of a turn is not run through the model when it is sampled, since nobody needs its
successor: it waits in `last` and is read together with the next observation.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlanything_jax.models.attention import attend
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import (
    Params,
    block_finish,
    block_qkv,
    embed,
    layer_masks,
    scores_fit,
    unembed,
)
from rlanything_jax.models.spans import Spans
from rlanything_jax.parallel.layout import DECODE, constrain
from rlanything_jax.sampler.draw import Sampling, draw


class Sessions(NamedTuple):
    """B sessions with room for S tokens each."""

    keys: list[Array]  # L x [B,K,S,H]
    values: list[Array]  # L x [B,K,S,H]
    length: Array  # [B] tokens in the cache
    logits: Array  # [B,V] float32, of the token after what was extended last
    last: Array  # [B] the sampled token that still has to be read
    pending: Array  # [B] bool, whether there is one

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]


class Sampled(NamedTuple):
    tokens: Array  # [B,C]
    logprobs: Array  # [B,C] of the distribution that was sampled, float32
    count: Array  # type: ignore[assignment]  # [B] how many of the C are real; hides tuple.count
    kept: Array  # [B,C] log of the mass that top-k and top-p left, float32: see `draw`


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def new_sessions(config: ModelConfig, batch: int, capacity: int) -> Sessions:
    """Empty sessions."""
    shape = (batch, config.kv_heads, capacity, config.head_dim)
    return pinned(
        Sessions(
            keys=[jnp.zeros(shape, config.jax_dtype) for _ in range(config.layers)],
            values=[jnp.zeros(shape, config.jax_dtype) for _ in range(config.layers)],
            length=jnp.zeros(batch, jnp.int32),
            logits=jnp.zeros((batch, config.vocab_size), jnp.float32),
            last=jnp.zeros(batch, jnp.int32),
            pending=jnp.zeros(batch, bool),
        )
    )


def pinned(sessions: Sessions) -> Sessions:
    """The sessions, on a mesh by rows and kv-heads."""

    def rows(x: Array, *axes: str | None) -> Array:
        return constrain(x, "rows", *axes, *[None] * (x.ndim - 1 - len(axes)), layout=DECODE)

    return Sessions(
        [rows(k, "kv_heads") for k in sessions.keys],
        [rows(v, "kv_heads") for v in sessions.values],
        rows(sessions.length),
        rows(sessions.logits, "vocab"),
        rows(sessions.last),
        rows(sessions.pending),
    )


@functools.partial(jax.jit, static_argnames="capacity")
def select(sessions: Sessions, rows: Array, capacity: int) -> Sessions:
    """The sessions at `rows`, with room for `capacity` tokens.

    Repeating a row forks it (N rollouts read their task once), leaving rows out compacts the batch, a larger
    capacity grows it. The caller sees to it that no selected session is longer than the new capacity.
    """

    def resize(cache: Array) -> Array:
        cache = cache[rows, :, :capacity]
        return jnp.pad(cache, ((0, 0), (0, 0), (0, capacity - cache.shape[2]), (0, 0)))

    return pinned(
        Sessions(
            [resize(k) for k in sessions.keys],
            [resize(v) for v in sessions.values],
            *(x[rows] for x in sessions[2:]),
        )
    )


@functools.partial(jax.jit, donate_argnames="sessions")
def forget(sessions: Sessions, rows: Array) -> Sessions:
    """Empties the sessions where `rows` [B] bool says so."""
    return sessions._replace(length=jnp.where(rows, 0, sessions.length), pending=sessions.pending & ~rows)


@functools.partial(jax.jit, donate_argnames="sessions")
def place(sessions: Sessions, prompts: Sessions, source: Array) -> Sessions:
    """Copies row `source[b]` of `prompts` into each row b, which keeps its own where that is negative.

    What is in those rows of `prompts` fits the cache of `sessions`.
    """
    taken = source >= 0

    def copy(mine: Array, theirs: Array) -> Array:
        return jnp.where(taken.reshape(-1, *[1] * (mine.ndim - 1)), theirs[source], mine)

    def copy_cache(mine: Array, theirs: Array) -> Array:
        width = min(mine.shape[2], theirs.shape[2])
        return mine.at[:, :, :width].set(copy(mine[:, :, :width], theirs[:, :, :width]))

    return pinned(
        Sessions(
            [copy_cache(*pair) for pair in zip(sessions.keys, prompts.keys, strict=True)],
            [copy_cache(*pair) for pair in zip(sessions.values, prompts.values, strict=True)],
            *(copy(*pair) for pair in zip(sessions[2:], prompts[2:], strict=True)),
        )
    )


@functools.partial(jax.jit, donate_argnames="sessions")
def rewind(sessions: Sessions, back: Array, last: Array) -> Sessions:
    """Takes back the last `back` [B] sampled tokens, in front of which `last` [B] was sampled.

    Only of the turn that was decoded last, and never all of it.
    """
    return sessions._replace(length=sessions.length - back, last=jnp.where(back > 0, last, sessions.last))


@functools.partial(jax.jit, static_argnames="config", donate_argnames="sessions")
def extend(params: Params, config: ModelConfig, sessions: Sessions, tokens: Array, count: Array) -> Sessions:
    """Reads `count[b]` tokens into each session, behind the sampled token that waits; a negative count leaves a row alone.

    Args:
      params: unstacked parameters.
      sessions: donated.
      tokens: [B,T] ids, the real ones first.
      count: [B] number of real tokens; with 0 only the token that waits is read, and a turn goes on where it ended.

    The caller sees to it that length + pending + count <= capacity; what would not fit is dropped and its
    logits are undefined.
    """
    carry = sessions.pending & (count >= 0)
    tokens = jnp.concatenate([tokens, jnp.zeros_like(tokens[:, :1])], axis=1)
    tokens = jnp.where(
        carry[:, None], jnp.concatenate([sessions.last[:, None], tokens[:, :-1]], axis=1), tokens
    )
    count = jnp.maximum(count, 0) + carry
    keys, values, x = _read(params, config, sessions, tokens, count)
    final = jnp.take_along_axis(x, jnp.maximum(count - 1, 0)[:, None, None], axis=1)[:, 0]
    logits = jnp.where(count[:, None] > 0, unembed(params, config, final), sessions.logits)
    return pinned(
        Sessions(keys, values, sessions.length + count, logits, sessions.last, sessions.pending & ~carry)
    )


@functools.partial(jax.jit, static_argnames=("config", "chunk"), donate_argnames="sessions")
def decode(
    params: Params, config: ModelConfig, sessions: Sessions, sampling: Sampling, chunk: int
) -> tuple[Sessions, Sampled]:
    """Samples until every row has met a stop id, its budget, or the end of its cache.

    Args:
      params: unstacked parameters.
      sessions: donated; rows with a positive budget must have been extended since they last decoded.
      chunk: most tokens of one call, the size of the returned arrays; larger budgets are cut to it.
    """
    budget = jnp.minimum(jnp.minimum(sampling.budget, chunk), sessions.capacity - sessions.length)
    idle = budget <= 0

    def body(carry: tuple) -> tuple:
        step, keys, values, length, last, done, out = carry
        read = sessions._replace(keys=keys, values=values, length=length)
        keys, values, x = _read(params, config, read, last[:, None], (~done).astype(jnp.int32))
        length = length + ~done
        token, now_done, out = record(
            unembed(params, config, x[:, 0]), step, length, sampling, budget, done, out
        )
        return step + 1, keys, values, length, jnp.where(done, last, token), now_done, out

    zero = jnp.zeros((), jnp.int32)
    token, done, out = record(
        sessions.logits, zero, sessions.length, sampling, budget, idle, no_samples(budget, chunk)
    )
    last = jnp.where(idle, sessions.last, token)
    carry = (zero + 1, sessions.keys, sessions.values, sessions.length, last, done, out)
    _, keys, values, length, last, _, out = jax.lax.while_loop(lambda c: ~jnp.all(c[5]), body, carry)
    return pinned(Sessions(keys, values, length, sessions.logits, last, sessions.pending | ~idle)), out


def no_samples(budget: Array, chunk: int) -> Sampled:
    shape = (*budget.shape, chunk)
    return Sampled(
        jnp.zeros(shape, jnp.int32), jnp.zeros(shape), jnp.zeros(budget.shape, jnp.int32), jnp.zeros(shape)
    )


def record(
    logits: Array,
    step: Array,
    position: Array,
    sampling: Sampling,
    budget: Array,
    done: Array,
    out: Sampled,
) -> tuple[Array, Array, Sampled]:
    """Draws a token of every row and writes it down as the `step`-th, but for rows [B] that are done.

    Returns the tokens [B], the rows that are done now [B], and the samples so far.
    """
    token, logprob, kept = draw(logits, sampling, position)
    chunk = out.tokens.shape[1]
    here = jnp.arange(len(done)), jnp.where(done, chunk, step)
    out = Sampled(
        out.tokens.at[here].set(token, mode="drop"),
        out.logprobs.at[here].set(logprob, mode="drop"),
        out.count + ~done,
        out.kept.at[here].set(kept, mode="drop"),
    )
    stopped = jnp.any(token[:, None] == sampling.stop, axis=1) | (out.count >= budget)
    return token, done | stopped, out


def _read(
    params: Params, config: ModelConfig, sessions: Sessions, tokens: Array, count: Array
) -> tuple[list[Array], list[Array], Array]:
    """Writes tokens [B,T] behind each session's cache and returns (keys, values, hidden [B,T,D])."""
    b, t = tokens.shape
    offset = jnp.arange(t)
    positions = sessions.length[:, None] + offset
    # Padding and idle rows write out of range, where `drop` discards them.
    slot = jnp.where(offset < count[:, None], positions, sessions.capacity)
    cached = jnp.arange(sessions.capacity)  # positions of the cache
    mask: Array | Spans = cached <= positions[:, :, None]
    if not scores_fit(config, t, sessions.capacity):
        nothing = jnp.zeros_like(positions)
        mask = Spans(nothing, nothing, nothing, positions)
    masks = layer_masks(config, mask, positions, cached)
    batch, heads = jnp.arange(b)[:, None, None], jnp.arange(config.kv_heads)[None, :, None]
    x = embed(params, config, tokens)
    keys, values = [], []
    for layer, mask, cache_k, cache_v in zip(
        params["layers"], masks, sessions.keys, sessions.values, strict=True
    ):
        q, k, v = block_qkv(layer, config, x, positions)
        keys.append(cache_k.at[batch, heads, slot[:, None]].set(k, mode="drop"))
        values.append(cache_v.at[batch, heads, slot[:, None]].set(v, mode="drop"))
        x = block_finish(layer, config, x, attend(q, keys[-1], values[-1], mask))
    return keys, values, x


def bucket(size: int, buckets: tuple[int, ...]) -> int:
    """The smallest bucket that holds `size`. Raises ValueError when none does."""
    for candidate in buckets:
        if size <= candidate:
            return candidate
    raise ValueError(f"{size} does not fit the largest bucket of {buckets}; raise the configured limit")


def pad_rows(rows: list[list[int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Ragged ids as (tokens [B,width], count [B])."""
    tokens = np.zeros((len(rows), width), np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    return tokens, np.array([len(row) for row in rows], np.int32)
