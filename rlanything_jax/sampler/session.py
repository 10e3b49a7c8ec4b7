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
from rlanything_jax.models.decoder import Params, block_finish, block_qkv, embed, layer_masks, unembed


class Sessions(NamedTuple):
    """B sessions with room for S tokens each."""

    keys: list[Array]  # L x [B,K,S,H]
    values: list[Array]  # L x [B,K,S,H]
    length: Array  # [B] tokens in the cache
    logits: Array  # [B,V] float32, of the token after the cache
    last: Array  # [B] the sampled token that still has to be read
    pending: Array  # [B] bool, whether there is one

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]


class Sampling(NamedTuple):
    """What may differ from row to row; all arrays, so that no value of them compiles anything anew."""

    temperature: np.ndarray | Array  # [B] float32; 0 takes the likeliest token
    budget: np.ndarray | Array  # [B] tokens to sample at most; 0 leaves the row alone
    stop: np.ndarray | Array  # [B,E] ids that end a turn (they are kept); -1 stands for none
    request: np.ndarray | Array  # [B] uint32, names the row's random stream
    seed: np.uint32 | Array  # []


class Sampled(NamedTuple):
    tokens: Array  # [B,C]
    logprobs: Array  # [B,C] of the distribution that was sampled, float32
    count: Array  # type: ignore[assignment]  # [B] how many of the C are real; hides tuple.count


def new_sessions(config: ModelConfig, batch: int, capacity: int) -> Sessions:
    """Empty sessions."""
    shape = (batch, config.kv_heads, capacity, config.head_dim)
    return Sessions(
        keys=[jnp.zeros(shape, config.jax_dtype) for _ in range(config.layers)],
        values=[jnp.zeros(shape, config.jax_dtype) for _ in range(config.layers)],
        length=jnp.zeros(batch, jnp.int32),
        logits=jnp.zeros((batch, config.vocab_size), jnp.float32),
        last=jnp.zeros(batch, jnp.int32),
        pending=jnp.zeros(batch, bool),
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

    return Sessions(
        [resize(k) for k in sessions.keys],
        [resize(v) for v in sessions.values],
        *(x[rows] for x in sessions[2:]),
    )


@functools.partial(jax.jit, donate_argnames="sessions")
def forget(sessions: Sessions, rows: Array) -> Sessions:
    """Empties the sessions where `rows` [B] bool says so."""
    return sessions._replace(length=jnp.where(rows, 0, sessions.length), pending=sessions.pending & ~rows)


@functools.partial(jax.jit, static_argnames="config", donate_argnames="sessions")
def extend(params: Params, config: ModelConfig, sessions: Sessions, tokens: Array, count: Array) -> Sessions:
    """Reads `count[b]` tokens into each session; a row with count 0 stays as it is.

    Args:
      params: unstacked parameters.
      sessions: donated.
      tokens: [B,T] ids, the real ones first.
      count: [B] number of real tokens.

    The caller sees to it that length + pending + count <= capacity; what would not fit is dropped and its
    logits are undefined.
    """
    live = count > 0
    carry = sessions.pending & live
    tokens = jnp.concatenate([tokens, jnp.zeros_like(tokens[:, :1])], axis=1)
    tokens = jnp.where(
        carry[:, None], jnp.concatenate([sessions.last[:, None], tokens[:, :-1]], axis=1), tokens
    )
    count = count + carry
    keys, values, x = _read(params, config, sessions, tokens, count)
    final = jnp.take_along_axis(x, jnp.maximum(count - 1, 0)[:, None, None], axis=1)[:, 0]
    logits = jnp.where(live[:, None], unembed(params, config, final), sessions.logits)
    return Sessions(keys, values, sessions.length + count, logits, sessions.last, sessions.pending & ~live)


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
    b = sessions.length.shape[0]
    budget = jnp.minimum(jnp.minimum(sampling.budget, chunk), sessions.capacity - sessions.length)
    rows = jnp.arange(b)

    def draw(
        step: Array, position: Array, logits: Array, done: Array, out: Sampled
    ) -> tuple[Array, Array, Sampled]:
        token, logprob = sample_token(logits, sampling, position)
        slot = jnp.where(done, chunk, step)
        out = Sampled(
            out.tokens.at[rows, slot].set(token, mode="drop"),
            out.logprobs.at[rows, slot].set(logprob, mode="drop"),
            out.count + ~done,
        )
        stopped = jnp.any(token[:, None] == sampling.stop, axis=1) | (out.count >= budget)
        return token, done | stopped, out

    def body(carry: tuple) -> tuple:
        step, sessions, done, out = carry
        keys, values, x = _read(params, config, sessions, sessions.last[:, None], (~done).astype(jnp.int32))
        logits = jnp.where(done[:, None], sessions.logits, unembed(params, config, x[:, 0]))
        length = sessions.length + ~done
        token, now_done, out = draw(step, length, logits, done, out)
        last = jnp.where(done, sessions.last, token)
        return step + 1, Sessions(keys, values, length, logits, last, sessions.pending), now_done, out

    idle = budget <= 0
    out = Sampled(jnp.zeros((b, chunk), jnp.int32), jnp.zeros((b, chunk)), jnp.zeros(b, jnp.int32))
    token, done, out = draw(jnp.zeros((), jnp.int32), sessions.length, sessions.logits, idle, out)
    sessions = sessions._replace(
        last=jnp.where(idle, sessions.last, token), pending=jnp.where(idle, sessions.pending, True)
    )
    carry = (jnp.ones((), jnp.int32), sessions, done, out)
    _, sessions, _, out = jax.lax.while_loop(lambda c: ~jnp.all(c[2]), body, carry)
    return sessions, out


def sample_token(logits: Array, sampling: Sampling, position: Array) -> tuple[Array, Array]:
    """One token a row from softmax(logits / temperature), and its log-probability there.

    The key is folded from (seed, request, position) only, so that a sample does not depend on the row's slot
    or neighbours.
    """
    greedy = sampling.temperature <= 0
    scaled = logits / jnp.where(greedy, 1.0, sampling.temperature)[:, None]

    def noise(request: Array, position: Array) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(sampling.seed), request), position)
        return jax.random.gumbel(key, logits.shape[-1:])

    gumbel = jax.vmap(noise)(jnp.asarray(sampling.request), position)
    token = jnp.argmax(jnp.where(greedy[:, None], logits, scaled + gumbel), axis=-1).astype(jnp.int32)
    logprob = jnp.take_along_axis(jax.nn.log_softmax(scaled), token[:, None], axis=-1)[:, 0]
    return token, jnp.where(greedy, 0.0, logprob)


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
    masks = layer_masks(config, cached <= positions[:, :, None], positions, cached)
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
