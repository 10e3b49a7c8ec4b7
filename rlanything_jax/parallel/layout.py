"""Where every array lies on a mesh: two tables of data, and what applies them.

`LEAVES` names the dimensions of every parameter; a layout gives each of those names the mesh axes that split it. Moments,
gradients and master copies lie where their parameters do, since their paths end in the same names. An axis that the mesh
does not have, or that does not divide a dimension, leaves it whole.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

Layout = Mapping[str, tuple[str, ...]]

# Rows of a batch and, where a matrix product contracts over them, those of a matrix are split alike: a device gathers
# one layer's matrices as it comes to them, and no activations.
TRAIN: Layout = {
    "rows": ("data", "fsdp"),
    "positions": ("sequence",),
    "embed": ("fsdp",),
    "vocab": ("tensor",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "ff": ("tensor",),
    "experts": ("expert",),
}
# Nothing is gathered between two tokens.
DECODE: Layout = {**TRAIN, "embed": (), "positions": ()}

_MATRICES = {
    "wq": ("embed", "heads"),
    "wk": ("embed", "kv_heads"),
    "wv": ("embed", "kv_heads"),
    "wo": ("heads", "embed"),
    "w_gate": ("embed", "ff"),
    "w_up": ("embed", "ff"),
    "w_down": ("ff", "embed"),
}
# Leaf -> its dimensions, without the leading one of stacked layers, which is never split.
LEAVES: dict[str, tuple[str | None, ...]] = {
    "embed": ("vocab", "embed"),
    "head": ("vocab", "embed"),
    "norm": (None,),
    **{f"{name}/scale": (None,) for name in ("attn_norm", "q_norm", "k_norm", "ff_norm")},
    **{f"{name}/kernel": axes for name, axes in _MATRICES.items()},
    **{f"{name}/bias": (_MATRICES[name][1],) for name in ("wq", "wk", "wv")},
    **{f"{name}/kernel_int8": axes for name, axes in _MATRICES.items()},
    **{f"{name}/kernel_scale": (out,) for name, (_, out) in _MATRICES.items()},
    **{f"{name}/lora_a": (into, None) for name, (into, _) in _MATRICES.items()},
    **{f"{name}/lora_b": (None, out) for name, (_, out) in _MATRICES.items()},
    **{f"{name}/lora_scale": () for name in _MATRICES},
    "router/kernel": ("embed", None),
    "experts/w_gate": ("experts", "embed", "ff"),
    "experts/w_up": ("experts", "embed", "ff"),
    "experts/w_down": ("experts", "ff", "embed"),
}


def split(
    axes: Sequence[str | None], shape: Sequence[int], mesh: Mesh | AbstractMesh, layout: Layout = TRAIN
) -> PartitionSpec:
    """The spec of an array of this shape whose dimensions have these names; None is a dimension that is never split."""

    def place(axis: str | None, size: int) -> str | tuple[str, ...] | None:
        names = tuple(name for name in layout[axis] if name in mesh.shape) if axis else ()
        if not names or size % math.prod(mesh.shape[name] for name in names):
            return None
        return names if len(names) > 1 else names[0]

    return PartitionSpec(*(place(axis, size) for axis, size in zip(axes, shape, strict=True)))


def partition_spec(
    leaf: str, shape: Sequence[int], mesh: Mesh | AbstractMesh, layout: Layout = TRAIN
) -> PartitionSpec:
    """The spec of a leaf, named by its path (`layers/wq/kernel`, also behind other names), on this mesh.

    Raises ValueError on a leaf without a rule: replicating a large one in silence would cost the memory that
    sharding is there to save.
    """
    parts = leaf.split("/")
    name = next((n for n in ("/".join(parts[-2:]), parts[-1]) if n in LEAVES), None)
    if name is None:
        raise ValueError(f"no sharding rule for parameter {leaf!r}; add it to parallel.layout.LEAVES")
    stacked = len(shape) - len(LEAVES[name])
    if stacked not in (0, 1):
        raise ValueError(
            f"parameter {leaf!r} of shape {list(shape)} does not have the dimensions {LEAVES[name]}"
        )
    return split((None,) * stacked + LEAVES[name], shape, mesh, layout)


def specs(tree: Any, mesh: Mesh | AbstractMesh, layout: Layout = TRAIN) -> Any:
    """The spec of every leaf of a tree of parameters or optimizer state; counters lie on every device."""

    def spec(path: tuple, leaf: Any) -> PartitionSpec:
        name = "/".join(str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey))
        return partition_spec(name, leaf.shape, mesh, layout) if leaf.shape else PartitionSpec()

    return jax.tree_util.tree_map_with_path(spec, tree)


def shardings(tree: Any, mesh: Mesh, layout: Layout = TRAIN) -> Any:
    """`specs` on the mesh's devices."""
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs(tree, mesh, layout),
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )


def constrain(x: Array, *axes: str | None, layout: Layout = TRAIN) -> Array:
    """Pins an activation whose dimensions have these names to its place on the mesh that is set, if one is."""
    mesh = auto_mesh()
    return x if mesh is None else jax.lax.with_sharding_constraint(x, split(axes, x.shape, mesh, layout))


def pin(tree: Any, layout: Layout = TRAIN) -> Any:
    """Pins a tree of parameters, gradients or optimizer state to its place on the mesh that is set, if one is.

    Without this XLA chooses the layout of results, and tends to drop the fsdp axis.
    """
    mesh = auto_mesh()
    if mesh is None:
        return tree
    return jax.tree.map(jax.lax.with_sharding_constraint, tree, specs(tree, mesh, layout))


def auto_mesh() -> AbstractMesh | None:
    """The mesh that is set; None where there is none, or a single device, or inside a `shard_map`."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh if mesh.size > 1 and mesh.are_all_axes_auto else None


def place(tree: Any, layout: Any) -> Any:
    """Puts arrays where `layout`, a tree of shardings, says, whatever mesh or host they are on; never through disk.

    What lies on this host's devices only must be the same on every host.
    """

    def put(x: Any, sharding: NamedSharding) -> Array:
        if sharding.is_fully_addressable or (isinstance(x, Array) and not x.is_fully_addressable):
            return jax.device_put(x, sharding)
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    with on_mesh(jax.tree.leaves(layout)[0].mesh):
        return jax.tree.map(put, tree, layout)


def this_host(tree: Any, local: Mesh) -> Any:
    """The part of arrays that lies on this host's devices, as arrays on `local`, a mesh of these devices in their order."""

    def part(x: Array) -> Array:
        assert isinstance(x.sharding, NamedSharding)
        here = NamedSharding(local, x.sharding.spec)
        if x.is_fully_addressable:
            return jax.device_put(x, here)
        pieces = {shard.device: shard.data for shard in x.addressable_shards}
        return jax.make_array_from_single_device_arrays(
            x.shape, here, [pieces[device] for device in local.devices.flat]
        )

    return jax.tree.map(part, tree)


def place_rows(batch: Any) -> Any:
    """Arrays [R,S,...] that every host has whole, on the mesh that is set: each device gets its rows."""
    mesh = jax.sharding.get_mesh()
    if mesh.empty or mesh.size == 1:
        return batch
    return place(
        batch,
        jax.tree.map(
            lambda x: NamedSharding(mesh, split(("rows", "positions")[: x.ndim], x.shape, mesh)), batch
        ),
    )


def row_shards(mesh: Mesh | None) -> int:
    """How many parts the rows of a batch are split into."""
    return 1 if mesh is None else math.prod(mesh.shape.get(name, 1) for name in TRAIN["rows"])


def mesh_of(tree: Any) -> Mesh | None:
    """The mesh on which a tree of arrays lies; None for those of the host and of a single device."""
    for leaf in jax.tree.leaves(tree):
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        return mesh if isinstance(mesh, Mesh) else None
    return None


@contextlib.contextmanager
def on_mesh(mesh: Mesh | None) -> Iterator[Mesh | None]:
    """Sets a mesh, so that `constrain` and `pin` mean it. One of a single device needs nothing said, unless another is set."""
    needed = mesh is not None and (mesh.size > 1 or not jax.sharding.get_mesh().empty)
    with jax.set_mesh(mesh) if mesh is not None and needed else contextlib.nullcontext():
        yield mesh


def assert_shardings(tree: Any, stated: Any) -> None:
    """Raises AssertionError naming the first leaf that does not lie where `stated`, a tree of shardings, says."""

    def check(path: tuple, leaf: Array, sharding: NamedSharding) -> None:
        if not leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
            raise AssertionError(
                f"{jax.tree_util.keystr(path)} {list(leaf.shape)} lies as {leaf.sharding}, not as {sharding}"
            )

    jax.tree_util.tree_map_with_path(check, tree, stated)
