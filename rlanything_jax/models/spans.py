"""Attention over packed rows and trees, without a mask or scores of [T,S].

In a packed row a token sees two runs of keys: of its segment's trunk up to its branch point, and of its own piece up to
itself. Four integers a query say which, and both a mask and the blocks to visit follow from them:

    trunk t0 t1 t2 t3, branches a0 a1 behind t1 and b0 b1 behind t3        query   start stop   own last
                                                                            t2       0    0      0   2
    index  0  1  2  3  4  5  6  7                                           a1       0    2      4   5
           t0 t1 t2 t3 a0 a1 b0 b1                                          b0       0    4      6   6

`attend_spans` goes through the keys in blocks, keeps a running softmax (FlashAttention, arXiv 2205.14135), and visits
those blocks alone that hold a key which some query of its block may see: causality, packing and branches all save work.
On a TPU JAX's splash kernel does the same (`models.splash`); the plain form here serves every other device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from rlanything_jax.models import splash
from rlanything_jax.parallel.layout import auto_mesh, split

BLOCK = 512  # queries and keys of one product
CPU_BLOCK = 64  # on a CPU, where their scores stay in a core's cache
MASKED = -1e30  # large enough to silence a position, small enough to stay finite in float32


class Spans(NamedTuple):
    """The keys that each query [B,T] sees, by their index: start <= s < stop, and own <= s <= last."""

    start: Array
    stop: Array
    own: Array
    last: Array

    def sees(self, keys: Array) -> Array:
        """[B,T,S] bool, for keys of these indices [S]."""
        start, stop, own, last = (x[..., None] for x in self)
        return ((start <= keys) & (keys < stop)) | ((own <= keys) & (keys <= last))

    def within(self, positions: Array, window: int) -> Spans:
        """Only keys less than `window` positions behind their query, whose position is [B,T]."""
        return self._replace(
            start=jnp.maximum(self.start, self.start + positions - window + 1),  # of position 0 at start
            own=jnp.maximum(self.own, self.last - window + 1),
        )


Attend = Callable[[Array, Array, Array, Spans, int], Array]


def attend_spans(
    q: Array, k: Array, v: Array, spans: Spans, *, block: int = BLOCK, attend: Attend | None = None
) -> Array:
    """Softmax attention with grouped queries, as `attention.attend`; memory grows with T + S.

    On a mesh that is set every device attends with the queries and heads that it has, and all keys of its rows.

    Args:
      q: [B,T,N,H] queries.
      k, v: [B,K,S,H] keys and values, N a multiple of K.
      spans: what each query sees; nothing gives 0.
      block: queries and keys of one product.
      attend: `by_blocks` or `by_kernel`; by default the one that suits the device.
    """
    local = functools.partial(_padded, block=block, attend=attend or by_device)
    mesh = auto_mesh()
    if mesh is None:
        return local(q, k, v, spans)
    tensor = mesh.shape.get("tensor", 1)
    copies = math.lcm(k.shape[1], tensor) // k.shape[1]
    # Fewer kv-heads than devices: each gets a copy of those that it needs.
    if q.shape[2] % (copies * k.shape[1]) == 0:
        k, v = (jnp.repeat(x, copies, axis=1) for x in (k, v))
    rows, _, heads = split(("rows", None, "kv_heads"), (k.shape[0], 1, k.shape[1]), mesh)
    positions = split(("positions",), q.shape[1:2], mesh)[0]
    of_queries, of_keys = PartitionSpec(rows, positions, heads), PartitionSpec(rows, heads)
    of_spans = jax.tree.map(lambda _: PartitionSpec(rows, positions), spans)
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(of_queries, of_keys, of_keys, of_spans),
        out_specs=of_queries,
        check_vma=False,  # which would have to be told of every loop's carry
    )(q, k, v, spans)


def by_device(q: Array, k: Array, v: Array, spans: Spans, block: int) -> Array:
    ways = {"cpu": functools.partial(by_blocks, block=math.gcd(block, CPU_BLOCK))}
    if k.shape[2] <= splash.LONGEST and block % splash.LANES == 0:
        ways["tpu"] = functools.partial(by_kernel, block=block)
    default = functools.partial(by_blocks, block=block)
    return jax.lax.platform_dependent(q, k, v, spans, **ways, default=default)


def by_kernel(q: Array, k: Array, v: Array, spans: Spans, block: int, *, interpret: bool = False) -> Array:
    """`attend_spans` of whole blocks on one device, row by row."""
    q = (q * q.shape[-1] ** -0.5).swapaxes(1, 2)
    runs = (spans.start, spans.stop - 1, spans.own, spans.last)
    out = jax.lax.map(lambda row: splash.splash(*row, block, interpret), (q, k, v, runs))
    return out.swapaxes(1, 2)


def _padded(q: Array, k: Array, v: Array, spans: Spans, block: int, attend: Attend) -> Array:
    """Pads queries and keys to whole blocks; a query of the padding sees nothing, nobody sees its keys."""
    t, s = q.shape[1], k.shape[2]
    size = block_of(max(t, s), block)
    more, more_keys = -t % size, -s % size
    if more:
        q = jnp.pad(q, ((0, 0), (0, more), (0, 0), (0, 0)))
        start, stop, own, last = (jnp.pad(x, ((0, 0), (0, more))) for x in spans)
        spans = Spans(start, stop, own, jnp.where(jnp.arange(t + more) < t, last, -1))
    k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, more_keys), (0, 0))) for x in (k, v))
    return attend(q, k, v, spans, size)[:, :t]


def block_of(length: int, block: int = BLOCK) -> int:
    """Queries and keys of one product in rows of `length`: a short row is a block of its own."""
    return min(block, -(-length // splash.LANES) * splash.LANES)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def by_blocks(q: Array, k: Array, v: Array, spans: Spans, block: int) -> Array:
    """`attend_spans` of whole blocks on one device."""
    return _forward(q, k, v, spans, block)[0]


def _forward(q: Array, k: Array, v: Array, spans: Spans, block: int) -> tuple[Array, tuple]:
    def of_block(xs: tuple[Array, Spans]) -> tuple[Array, Array]:
        queries, seen = xs  # [B,K,G,Q,H], [B,Q]
        shape = queries.shape[:-1]

        def step(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            top, total, out = carry
            at = key_block(i) * block
            keys, values = _cut(k, at, block), _cut(v, at, block)
            visible = seen.sees(at + jnp.arange(block))[:, None, None]
            scores = jnp.where(visible, _scores(queries, keys), MASKED)
            new = jnp.maximum(top, scores.max(-1))
            weights = jnp.where(visible, jnp.exp(scores - new[..., None]), 0)
            shrink = jnp.exp(top - new)
            added = jnp.einsum(
                "bkgqs,bksh->bkgqh", weights.astype(v.dtype), values, preferred_element_type=jnp.float32
            )
            return new, total * shrink + weights.sum(-1), out * shrink[..., None] + added

        count, key_block = _visits(seen, block)
        start = (jnp.full(shape, MASKED), jnp.zeros(shape), jnp.zeros(queries.shape, jnp.float32))
        top, total, out = jax.lax.fori_loop(0, count, step, start)
        total = jnp.maximum(total, 1e-30)
        return (out / total[..., None]).astype(q.dtype), top + jnp.log(total)

    blocks = _query_blocks(q, k.shape[1], block), _span_blocks(spans, block)
    out, lse = jax.lax.map(of_block, blocks)
    return _join(out), (q, k, v, spans, out, lse)


def _backward(block: int, saved: tuple, gradient: Array) -> tuple[Array, Array, Array, None]:
    q, k, v, spans, out, lse = saved
    scale = q.shape[-1] ** -0.5

    def of_block(carry: tuple[Array, Array], xs: Any) -> tuple[tuple[Array, Array], Array]:
        queries, seen, given, result, lse = xs
        mean = jnp.sum(given.astype(jnp.float32) * result.astype(jnp.float32), axis=-1, keepdims=True)

        def step(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            d_q, d_k, d_v = carry
            at = key_block(i) * block
            keys, values = _cut(k, at, block), _cut(v, at, block)
            visible = seen.sees(at + jnp.arange(block))[:, None, None]
            weights = jnp.where(visible, jnp.exp(_scores(queries, keys) - lse[..., None]), 0)
            product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
            d_weights = product("bkgqh,bksh->bkgqs", given, values)
            d_scores = (weights * (d_weights - mean) * scale).astype(q.dtype)
            d_q += product("bkgqs,bksh->bkgqh", d_scores, keys)
            d_k = _add(d_k, product("bkgqs,bkgqh->bksh", d_scores, queries), at)
            d_v = _add(d_v, product("bkgqs,bkgqh->bksh", weights.astype(v.dtype), given), at)
            return d_q, d_k, d_v

        count, key_block = _visits(seen, block)
        d_q, d_k, d_v = jax.lax.fori_loop(0, count, step, (jnp.zeros(queries.shape, jnp.float32), *carry))
        return (d_k, d_v), d_q.astype(q.dtype)

    heads = k.shape[1]
    xs = (
        _query_blocks(q, heads, block),
        _span_blocks(spans, block),
        _query_blocks(gradient, heads, block),
        out,
        lse,
    )
    zeros = jnp.zeros(k.shape, jnp.float32)
    (d_k, d_v), d_q = jax.lax.scan(of_block, (zeros, zeros), xs)
    return _join(d_q), d_k.astype(k.dtype), d_v.astype(v.dtype), None


by_blocks.defvjp(_forward, _backward)


def _visits(seen: Spans, block: int) -> tuple[Array, functools.partial[Array]]:
    """How many blocks of keys hold one that some query of `seen` [B,Q] may see, and the number of the i-th of them.

    They are two runs: of trunks, and of the queries' own pieces; where these meet, each block is visited once.
    """
    shared, alive = seen.start < seen.stop, seen.own <= seen.last
    far = jnp.iinfo(jnp.int32).max
    first = jnp.min(jnp.where(shared, seen.start, far)) // block
    end = -(-jnp.max(jnp.where(shared, seen.stop, 0)) // block)
    own_first = jnp.min(jnp.where(alive, seen.own, far)) // block
    own_end = jnp.max(jnp.where(alive, seen.last, -1)) // block + 1
    first = jnp.where(own_first < end, jnp.minimum(first, own_first), first)
    own_first = jnp.maximum(own_first, end)
    size = jnp.maximum(end - first, 0)
    count = size + jnp.maximum(own_end - own_first, 0)
    return count, functools.partial(_number, size, first, own_first)


def _number(size: Array, first: Array, own_first: Array, i: Array) -> Array:
    return jnp.where(i < size, first + i, own_first + i - size)


def _scores(queries: Array, keys: Array) -> Array:
    """[B,K,G,Q,H] and [B,K,S,H] -> scaled scores [B,K,G,Q,S] in float32."""
    scores = jnp.einsum("bkgqh,bksh->bkgqs", queries, keys, preferred_element_type=jnp.float32)
    return scores * queries.shape[-1] ** -0.5


def _cut(x: Array, at: Array, block: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, at, block, axis=2)


def _add(total: Array, part: Array, at: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(total, _cut(total, at, part.shape[2]) + part, at, axis=2)


def _query_blocks(x: Array, kv_heads: int, block: int) -> Array:
    """[B,T,N,H] -> [T/Q,B,K,G,Q,H]."""
    b, t, n, h = x.shape
    return x.reshape(b, t // block, block, kv_heads, n // kv_heads, h).transpose(1, 0, 3, 4, 2, 5)


def _span_blocks(spans: Spans, block: int) -> Spans:
    """[B,T] -> [T/Q,B,Q]."""
    return Spans(*(x.reshape(x.shape[0], -1, block).swapaxes(0, 1) for x in spans))


def _join(blocks: Array) -> Array:
    """The inverse of `_query_blocks`."""
    i, b, k, g, q, h = blocks.shape
    return blocks.transpose(1, 0, 4, 2, 3, 5).reshape(b, i * q, k * g, h)
