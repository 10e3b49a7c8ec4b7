"""JAX's splash attention kernel for TPU, over the runs of keys of `models.spans`.

The kernel takes masks that are known when it is traced, and its masks as a function get one integer a query. A run of
keys fits into one: 15 bits each for its first and last key. So each of the two runs of `Spans` is one pass, and the two
softmaxes are merged. Their gradient follows from the kernels of the backward pass, which need of the forward pass nothing
but the result and the log-sum-exp: given those of the union, each pass yields its part of the gradient. These kernels have
no public name; they are those of the pinned version of JAX.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info import MaskInfo

LANES = 128  # queries and keys of a block are a multiple
BITS = 15
LONGEST = 2**BITS  # keys
MASKED = kernel.DEFAULT_MASK_VALUE


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def splash(q: Array, k: Array, v: Array, runs: tuple[Array, ...], block: int, interpret: bool) -> Array:
    """Attention of one row, softmax over the union of two disjoint runs of keys.

    Args:
      q: [N,T,H] queries, scaled.
      k, v: [K,S,H] keys and values, S at most LONGEST.
      runs: first and last key of the one run, and of the other, each [T]; a run that ends before it begins is empty.
      block: queries and keys of a block, a multiple of LANES that divides T and S.
      interpret: runs the kernel anywhere, slowly.
    """
    return _forward(q, k, v, runs, block, interpret)[0]


def _forward(
    q: Array, k: Array, v: Array, runs: tuple[Array, ...], block: int, interpret: bool
) -> tuple[Array, tuple]:
    parts = []
    for first, last in (runs[:2], runs[2:]):
        info, _ = _masks(first, last, k.shape[1], block)
        out, (lse,) = kernel._splash_attention_forward(
            info, q, k, v, None, None, MASKED, False, _blocks(block), None, True, _inside, interpret=interpret
        )
        seen = first <= last
        parts.append((jnp.where(seen[:, None], out, 0), jnp.where(seen, lse, MASKED)))
    (out, lse), (other, other_lse) = parts
    weight = jax.nn.sigmoid(lse - other_lse)[..., None]
    merged = (weight * out + (1 - weight) * other).astype(q.dtype)
    return merged, (q, k, v, runs, merged, jnp.logaddexp(lse, other_lse))


def _backward(
    block: int, interpret: bool, saved: tuple, gradient: Array
) -> tuple[Array, Array, Array, tuple[None, ...]]:
    q, k, v, runs, out, lse = saved
    lse = jnp.maximum(lse, -1e30)  # of queries that see nothing: what is masked must stay below it
    total: Any = None
    for first, last in (runs[:2], runs[2:]):
        by_query, by_key = _masks(first, last, k.shape[1], block)
        residuals = (q, k, v, None, None, out, lse, by_query, by_key)
        part = kernel._splash_attention_bwd(
            True, MASKED, False, _blocks(block), None, _inside, None, interpret, residuals, gradient
        )[3:6]
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    return (*total, (None,) * 4)


splash.defvjp(_forward, _backward)


def _masks(first: Array, last: Array, keys: int, block: int) -> tuple[MaskInfo, MaskInfo]:
    """What the kernels that go through the keys of a block of queries need, and those that go through its queries."""
    seen = first <= last
    low = jnp.min(jnp.where(seen, first, keys).reshape(-1, block), axis=1, keepdims=True) // block
    high = jnp.max(jnp.where(seen, last, -1).reshape(-1, block), axis=1, keepdims=True) // block
    number = jnp.arange(keys // block)
    visited = ((low <= number) & (number <= high)).astype(jnp.int32)[None]
    # A block that is not visited names one that is, which is or will be there: nothing is fetched for it.
    nearest = jnp.clip(number, jnp.minimum(low, keys // block - 1), jnp.maximum(high, 0))[None]
    queries = jnp.broadcast_to(jnp.arange(visited.shape[1])[:, None], visited.shape[1:])[None]
    run = jnp.where(seen, first << BITS | last, 1 << BITS)

    def info(next_block: Array) -> MaskInfo:
        return MaskInfo(next_block.astype(jnp.int32), None, visited, None, run)  # type: ignore[arg-type]

    return info(nearest), info(queries)


def _inside(run: Array, key: Array) -> Array:
    return (run >> BITS <= key) & (key <= run & LONGEST - 1)


def _blocks(block: int) -> kernel.BlockSizes:
    return kernel.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
