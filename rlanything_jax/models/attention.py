"""Attention over a head-major cache, the one place where queries meet keys.

Keys and values are `[B,K,S,H]`: with heads before positions the batched matrix product needs no transposed
copy of the cache. `attend` gives a normalised result; `attend_part` gives what two parts need to be merged by
`merge_parts`, which is how a branch attends to a shared trunk that nobody copies.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from rlanything_jax.models.spans import MASKED, Spans, attend_spans


def attend(q: Array, k: Array, v: Array, mask: Array | Spans) -> Array:
    """Softmax attention with grouped queries.

    Args:
      q: [B,T,N,H] queries.
      k, v: [B,K,S,H] keys and values, N a multiple of K.
      mask: [B,T,S] bool, True where query t may see key s; or the same as spans, which go block by block.

    Returns:
      [B,T,N,H], in the dtype of q. A query that sees nothing has a result that means nothing, for callers to mask out.
    """
    if isinstance(mask, Spans):
        return attend_spans(q, k, v, mask)
    scores = _scores(q, k, mask)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return _weighted(weights, v, q)


def within(mask: Array, query: Array, key: Array, window: int) -> Array:
    """The mask [...,T,S], cut to keys less than `window` positions behind; query [...,T], key [...,S] positions."""
    return mask & (query[..., :, None] - key[..., None, :] < window)


def attend_part(q: Array, k: Array, v: Array, mask: Array) -> tuple[Array, Array]:
    """One part of a softmax over several sets of keys: (normalised result [B,T,N,H], log-sum-exp [B,T,N])."""
    scores = _scores(q, k, mask)
    top = jnp.max(scores, axis=-1, keepdims=True)
    exp = jnp.exp(scores - top)
    total = jnp.sum(exp, axis=-1, keepdims=True)
    out = _weighted((exp / total).astype(v.dtype), v, q)
    b, t, n, _ = q.shape
    lse = (top + jnp.log(total))[..., 0]  # [B,K,G,T]
    return out, lse.reshape(b, n, t).swapaxes(1, 2)


def merge_parts(a: tuple[Array, Array], b: tuple[Array, Array]) -> Array:
    """The softmax over the union of two disjoint sets of keys, from its two parts."""
    (out_a, lse_a), (out_b, lse_b) = a, b
    weight = jax.nn.sigmoid(lse_a - lse_b)[..., None].astype(out_a.dtype)
    return weight * out_a + (1 - weight) * out_b


def _scores(q: Array, k: Array, mask: Array) -> Array:
    """Masked, scaled scores [B,K,G,T,S] in float32, where query head n = k * G + g."""
    b, t, n, h = q.shape
    kv, s = k.shape[1:3]
    # One matrix of all the queries of a kv-head: with a single query, separate axes cost copies of the keys.
    rows = q.reshape(b, t, kv, n // kv, h).transpose(0, 2, 3, 1, 4).reshape(b, kv, -1, h)
    scores = jnp.einsum("bkqh,bksh->bkqs", rows, k, preferred_element_type=jnp.float32) * h**-0.5
    return jnp.where(mask[:, None, None], scores.reshape(b, kv, n // kv, t, s), MASKED)


def _weighted(weights: Array, v: Array, q: Array) -> Array:
    b, kv, group, t, s = weights.shape
    rows = weights.reshape(b, kv, group * t, s)
    out = jnp.einsum("bkqs,bksh->bkqh", rows, v, preferred_element_type=jnp.float32)
    return out.reshape(b, kv, group, t, -1).transpose(0, 3, 1, 2, 4).reshape(q.shape).astype(q.dtype)
