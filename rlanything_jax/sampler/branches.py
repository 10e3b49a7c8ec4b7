"""Sampling many short continuations of one long text: the judge's votes.

The trunk is a trajectory, read once into `Sessions`; a branch is one evaluation of one step. All R branches
of a trajectory decode together: each attends to the shared trunk up to its branch point and to its own few
tokens, as two parts of one softmax. No branch copies the trunk, so T * m evaluations cost one reading of the
trajectory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from rlanything_jax.models.attention import attend_part, merge_parts
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
from rlanything_jax.sampler.draw import Sampling
from rlanything_jax.sampler.session import Sampled, Sessions, no_samples, record

QUESTION_AT_ONCE = 8  # tokens, where the scores of the whole question would not fit


@functools.partial(jax.jit, static_argnames=("config", "chunk"))
def decode_branches(
    params: Params,
    config: ModelConfig,
    trunk: Sessions,
    point: Array,
    question: Array,
    sampling: Sampling,
    chunk: int,
) -> Sampled:
    """Samples R continuations of each of B trunks.

    Args:
      params: unstacked parameters.
      trunk: B sessions, already extended with the whole text of each trunk.
      point: [B,R] tokens of the trunk that a branch may see; its own positions go on from there.
      question: [Q] ids that open every branch.
      sampling: rows flattened, B * R; a budget of 0 leaves a branch out.
      chunk: most sampled tokens of a branch; no branch can be longer.

    Returns:
      Sampled with B * R rows.
    """
    b, r = point.shape
    n_question = question.shape[0]
    room = n_question + chunk - 1
    shape = (b * r, config.kv_heads, room, config.head_dim)
    keys = [jnp.zeros(shape, config.jax_dtype) for _ in range(config.layers)]
    values = [jnp.zeros(shape, config.jax_dtype) for _ in range(config.layers)]
    base = point.reshape(-1)
    visible = jnp.arange(trunk.capacity) < point[:, :, None]  # [B,R,S]
    budget = jnp.minimum(sampling.budget, chunk)

    def read(
        keys: list[Array], values: list[Array], tokens: Array, start: Array
    ) -> tuple[list[Array], list[Array], Array]:
        """Runs tokens [B*R,T] at offset `start` of every branch: (new caches, the last hidden row)."""
        t = tokens.shape[1]
        offset = start + jnp.arange(t)
        positions = base[:, None] + offset
        own = jnp.broadcast_to(jnp.arange(room) <= offset[:, None], (b * r, t, room))
        shared = jnp.repeat(visible, t, axis=1)  # rows of a trunk in the order [R,T]
        own_masks = layer_masks(config, own, offset, jnp.arange(room))
        shared_masks = layer_masks(config, shared, positions.reshape(b, r * t), jnp.arange(trunk.capacity))
        x = embed(params, config, tokens)
        new_keys, new_values = [], []
        for i, layer in enumerate(params["layers"]):
            q, k, v = block_qkv(layer, config, x, positions)
            new_keys.append(jax.lax.dynamic_update_slice_in_dim(keys[i], k, start, axis=2))
            new_values.append(jax.lax.dynamic_update_slice_in_dim(values[i], v, start, axis=2))
            mine = attend_part(q, new_keys[-1], new_values[-1], own_masks[i])
            flat = q.reshape(b, r * t, config.heads, config.head_dim)
            out, lse = attend_part(flat, trunk.keys[i], trunk.values[i], shared_masks[i])
            theirs = out.reshape(q.shape), lse.reshape(b * r, t, config.heads)
            x = block_finish(layer, config, x, merge_parts(theirs, mine))
        return new_keys, new_values, x[:, -1]

    def body(carry: tuple) -> tuple:
        step, keys, values, last, done, out = carry
        keys, values, x = read(keys, values, last[:, None], n_question + step - 1)
        logits = unembed(params, config, x)
        token, done, out = record(logits, step, base + n_question + step, sampling, budget, done, out)
        return step + 1, keys, values, token, done, out

    zero = jnp.zeros((), jnp.int32)
    keys, values, x = _read_question(read, keys, values, question, r * trunk.capacity, config)
    token, done, out = record(
        unembed(params, config, x),
        zero,
        base + n_question,
        sampling,
        budget,
        budget <= 0,
        no_samples(budget, chunk),
    )
    carry = (zero + 1, keys, values, token, done, out)
    return jax.lax.while_loop(lambda c: ~jnp.all(c[4]), body, carry)[-1]


def _read_question(
    read: Callable[..., tuple[list[Array], list[Array], Array]],
    keys: list[Array],
    values: list[Array],
    question: Array,
    seen: int,
    config: ModelConfig,
) -> tuple[list[Array], list[Array], Array]:
    """Reads the question [Q] into every branch, whole or in pieces; `seen`: keys of a trunk times its branches."""
    n, rows = question.shape[0], keys[0].shape[0]

    def piece(keys: list[Array], values: list[Array], start: Array, size: int) -> tuple:
        tokens = jax.lax.dynamic_slice_in_dim(question, start, size)
        return read(keys, values, jnp.broadcast_to(tokens, (rows, size)), start)

    if n <= QUESTION_AT_ONCE or scores_fit(config, n, seen):
        return piece(keys, values, jnp.zeros((), jnp.int32), n)
    # The last piece is as long as the others, and so reads some tokens again.
    last = n - QUESTION_AT_ONCE

    def body(i: Array, carry: tuple) -> tuple:
        keys, values, _ = carry
        return piece(keys, values, jnp.minimum(i * QUESTION_AT_ONCE, last), QUESTION_AT_ONCE)

    x = jnp.zeros((rows, config.embed_dim), config.jax_dtype)
    return jax.lax.fori_loop(0, -(-n // QUESTION_AT_ONCE), body, (keys, values, x))
