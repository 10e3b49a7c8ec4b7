"""The routed feed-forward layer: every token is computed by the few experts that a router chooses for it.

No token is dropped and no expert has a capacity. The pairs (token, chosen expert) are sorted by expert, so that
each expert sees one contiguous run of rows, and three ragged matrix products compute all runs:

    pairs sorted by expert   | e0 e0 e0 | e1 | e3 e3 |        sizes 3 1 0 2

While a mesh is set (`jax.set_mesh`), each device does this for the experts that lie on it, the rows of its batch and
its slice of the hidden units, and the devices add up what they have: weights stay where `parallel.layout` puts them,
and no token is sorted against those of another device.
"""

from __future__ import annotations

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AbstractMesh, PartitionSpec


class Experts(nn.Module):
    """A SwiGLU layer out of E experts. Its leaves are `w_gate`, `w_up` [E,D,F] and `w_down` [E,F,D]."""

    experts: int
    features: int  # F
    dtype: jnp.dtype = jnp.float32  # of the computation and its result
    param_dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Array, share: Array, chosen: Array) -> Array:
        """x [B,T,D], with `share` and `chosen` [B,T,A] from `route` -> [B,T,D]."""
        fan_in = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", batch_axis=0)
        wide = (self.experts, x.shape[-1], self.features)
        narrow = (self.experts, self.features, x.shape[-1])
        weights = [
            self.param(name, fan_in, shape, self.param_dtype).astype(self.dtype)
            for name, shape in (("w_gate", wide), ("w_up", wide), ("w_down", narrow))
        ]
        x = x.astype(self.dtype)
        if self.is_initializing():  # of many layers at once, which ragged products cannot be on a mesh
            return x
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or not mesh.are_all_axes_auto:
            out = run_experts(x, share, chosen, *weights)
        else:
            out = _sharded(mesh, x, share, chosen, *weights)
        return out.astype(self.dtype)


def route(logits: Array, count: int, normalise: bool) -> tuple[Array, Array]:
    """Chooses experts by the softmax of the router.

    Args:
      logits: [...,E] float32.
      count: A, experts for each token.
      normalise: the shares of a token add up to 1; otherwise they are its probabilities as they come.

    Returns:
      (share [...,A] float32, chosen [...,A] int32), the largest share first.
    """
    share, chosen = jax.lax.top_k(jax.nn.softmax(logits, axis=-1), count)
    if normalise:
        share = share / jnp.sum(share, axis=-1, keepdims=True)
    return share, chosen


def run_experts(
    x: Array, share: Array, chosen: Array, w_gate: Array, w_up: Array, w_down: Array, first: Array | int = 0
) -> Array:
    """The experts `first`, `first + 1`, ... whose weights are given, added up by share; others count as zero.

    Args:
      x: [B,T,D].
      share, chosen: [B,T,A].
      w_gate, w_up: [E,D,F]; w_down: [E,F,D].

    Returns:
      [B,T,D] float32.
    """
    experts, (*lead, count) = w_gate.shape[0], chosen.shape
    local = chosen.reshape(-1) - first
    local = jnp.where((local >= 0) & (local < experts), local, experts)  # of other devices: behind all runs
    order = jnp.argsort(local)
    sizes = jnp.bincount(local, length=experts).astype(jnp.int32)
    # Results behind the last run are undefined, and so are their gradients: both are replaced, since zero times NaN
    # would be NaN.
    inside = (jnp.arange(local.size) < jnp.sum(sizes))[:, None]
    rows = jnp.where(inside, x.reshape(-1, x.shape[-1])[order // count], 0)
    hidden = nn.silu(jax.lax.ragged_dot(rows, w_gate, sizes)) * jax.lax.ragged_dot(rows, w_up, sizes)
    out = jax.lax.ragged_dot(hidden, w_down, sizes, preferred_element_type=jnp.float32)
    out = jnp.where(inside, out, 0)[jnp.argsort(order)]
    return jnp.einsum("...ad,...a->...d", out.reshape(*lead, count, -1), share)


def _sharded(
    mesh: AbstractMesh, x: Array, share: Array, chosen: Array, w_gate: Array, w_up: Array, w_down: Array
) -> Array:
    """`run_experts` on every device of a mesh with axes among data, fsdp, sequence, tensor and expert."""

    def axis(name: str, size: int) -> str | None:
        return name if size % mesh.shape.get(name, size + 1) == 0 else None

    expert, tensor = axis("expert", w_gate.shape[0]), axis("tensor", w_gate.shape[2])
    rows = tuple(name for name in ("data", "fsdp") if name in mesh.shape)
    if x.shape[0] % math.prod(mesh.shape[name] for name in rows):
        rows = ()
    tokens = PartitionSpec(rows, axis("sequence", x.shape[1]))
    added_up = tuple(name for name in (expert, tensor) if name)

    @functools.partial(
        jax.shard_map,
        in_specs=(
            tokens,
            tokens,
            tokens,
            *(PartitionSpec(expert, None, tensor),) * 2,
            PartitionSpec(expert, tensor),
        ),
        out_specs=tokens,
    )
    def local(x: Array, share: Array, chosen: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
        # Each device reads its own rows of x, so its gradient is a part of the sum. Indexing does not tell JAX so.
        x = jax.lax.pcast(x, added_up, to="varying")
        first = jax.lax.axis_index(expert) * w_gate.shape[0] if expert else 0
        out = run_experts(x, share, chosen, w_gate, w_up, w_down, first)
        return jax.lax.psum(out, added_up) if added_up else out

    return local(x, share, chosen, w_gate, w_up, w_down)
