"""Low-rank adapters (LoRA, arXiv 2106.09685): a frozen base, and a small tree beside it that is trained.

A layer computes `x W + (alpha / rank) x A B`. A and B are trained; W and the constant factor belong to the frozen
tree, so that what is trained, optimised and saved is the adapters alone, and the model is always the plain union of
the two trees. Models with different adapters share the arrays of one base. `models.dense` runs the union.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlanything_jax.models.dense import PROJECTIONS
from rlanything_jax.models.quantize import dequantize

Tree = dict[str, Any]


def init_adapters(
    base: Tree, *, rank: int, alpha: float, targets: Sequence[str], key: Array
) -> tuple[Tree, Tree]:
    """Fresh adapters for a base, which they leave as it is: B is zero.

    Args:
      base: stacked parameters, or their shapes; kernels may be int8.
      rank: r, of the product A B.
      alpha: the product is weighted by alpha / rank, so that a change of rank asks for no other learning rate.
      targets: names of linear layers, out of `dense.PROJECTIONS`.
      key: of A, normal with the standard deviation in**-0.5. What a layer draws depends on no other target.

    Returns:
      (frozen, adapters): the base with `lora_scale` [L] in each target; a tree of the same nesting with `lora_a`
      [L,in,r] and `lora_b` [L,r,out] in each target, float32 whatever the base is: adapters are small, and bfloat16
      would lose most of their updates.

    Raises:
      ValueError: a rank below 1, no targets, or a target that no layer of the base has.
    """
    if rank < 1:
        raise ValueError(f"lora.rank={rank} must be at least 1")
    layers = base["layers"]
    choices = [name for name in PROJECTIONS if name in layers]
    if not targets:
        raise ValueError(f"lora.targets is empty; choose from {choices}")
    if unknown := [name for name in targets if name not in choices]:
        raise ValueError(f"lora.targets={unknown} are no linear layers of this model; choose from {choices}")
    scales, adapters = {}, {}
    for name in targets:
        kernel = layers[name]["kernel_int8" if "kernel_int8" in layers[name] else "kernel"]
        count, size, features = kernel.shape
        draw = jax.random.normal(jax.random.fold_in(key, PROJECTIONS.index(name)), (count, size, rank))
        adapters[name] = {"lora_a": draw * size**-0.5, "lora_b": jnp.zeros((count, rank, features))}
        scales[name] = {"lora_scale": jnp.full(count, alpha / rank)}
    return combine(base, {"layers": scales}), {"layers": adapters}


def combine(frozen: Tree, trainable: Tree) -> Tree:
    """The union of two nested dicts; leaves are shared, not copied. Raises ValueError on a leaf that both have."""
    union = dict(frozen)
    for name, value in trainable.items():
        if name not in frozen:
            union[name] = value
        elif isinstance(value, dict) and isinstance(frozen[name], dict):
            union[name] = combine(frozen[name], value)
        else:
            raise ValueError(f"parameter {name!r} is both frozen and trainable")
    return union


def merge(frozen: Tree, adapters: Tree, *, dtype: jnp.dtype = jnp.float32) -> Tree:
    """Plain parameters, for an export or a model without adapters: W + (alpha / rank) A B in every target.

    The sum is taken in float32 and has the dtype of its kernel; kernels that were int8 get `dtype`.
    """
    params = dequantize(combine(frozen, adapters), dtype)
    return params | {"layers": {name: _merged(layer) for name, layer in params["layers"].items()}}


def _merged(layer: Tree) -> Tree:
    if "lora_a" not in layer:
        return layer
    plain = {name: leaf for name, leaf in layer.items() if not name.startswith("lora_")}
    kernel, scale = layer["kernel"], layer["lora_scale"][:, None, None]
    change = jnp.einsum("lir,lro->lio", layer["lora_a"] * scale, layer["lora_b"])
    return plain | {"kernel": (kernel + change).astype(kernel.dtype)}
