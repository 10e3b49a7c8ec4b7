"""Where each parameter lives on a mesh: one table of rules, and the shapes it is applied to.

The table names, for every dimension of every leaf, the mesh axis that splits it. It is the layout of training:
rows that a matrix product contracts over go to `fsdp`, heads and hidden units to `tensor`, whole experts to
`expert`. An axis that the mesh does not have, or that does not divide the dimension, leaves it whole.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, init

# Leaf -> mesh axis of each dimension; the leading axis of stacked layers is never split.
RULES: dict[str, tuple[str | None, ...]] = {
    "embed": ("tensor", "fsdp"),
    "head": ("tensor", "fsdp"),
    "norm": (None,),
    "attn_norm/scale": (None,),
    "wq/kernel": ("fsdp", "tensor"),
    "wk/kernel": ("fsdp", "tensor"),
    "wv/kernel": ("fsdp", "tensor"),
    "wq/bias": ("tensor",),
    "wk/bias": ("tensor",),
    "wv/bias": ("tensor",),
    "q_norm/scale": (None,),
    "k_norm/scale": (None,),
    "wo/kernel": ("tensor", "fsdp"),
    "ff_norm/scale": (None,),
    "w_gate/kernel": ("fsdp", "tensor"),
    "w_up/kernel": ("fsdp", "tensor"),
    "w_down/kernel": ("tensor", "fsdp"),
    "router/kernel": ("fsdp", None),
    "experts/w_gate": ("expert", "fsdp", "tensor"),
    "experts/w_up": ("expert", "fsdp", "tensor"),
    "experts/w_down": ("expert", "tensor", "fsdp"),
}


def partition_spec(leaf: str, shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
    """The spec of a leaf, named by its path (`layers/wq/kernel`), of this shape on this mesh.

    Raises ValueError on a leaf without a rule: replicating a large one in silence would cost the memory that
    sharding is there to save.
    """
    name = leaf.removeprefix("layers/")
    if name not in RULES:
        raise ValueError(f"no sharding rule for parameter {leaf!r}; add it to models.sharding.RULES")
    axes = ((None,) if leaf != name else ()) + RULES[name]
    return PartitionSpec(
        *(a if a in mesh.shape and n % mesh.shape[a] == 0 else None for a, n in zip(axes, shape, strict=True))
    )


def abstract_params(config: ModelConfig, mesh: Mesh | None = None) -> Params:
    """The parameters of a config as `jax.ShapeDtypeStruct`s with their shardings; nothing is allocated.

    Without a mesh everything lies on the first device.
    """

    def sharding(leaf: str, shape: Sequence[int]) -> jax.sharding.Sharding:
        if mesh is None:
            return SingleDeviceSharding(jax.local_devices()[0])
        return NamedSharding(mesh, partition_spec(leaf, shape, mesh))

    return unflatten_dict(
        {
            leaf: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding(leaf, x.shape))
            for leaf, x in flatten_dict(_shapes(config), sep="/").items()
        },
        sep="/",
    )


@functools.cache
def _shapes(config: ModelConfig) -> Params:
    """What `init` would make; tracing it takes a while, and it is asked for at each load."""
    return jax.eval_shape(functools.partial(init, config), jax.random.key(0))
