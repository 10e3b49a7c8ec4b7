"""int8 weights for a frozen base: a quarter of float32, half of bfloat16, in the same plain dict.

A kernel [L,in,out] becomes `kernel_int8` of its shape and `kernel_scale` [L,out] float32, symmetric for each output
channel; activations stay as they are. Qwix calibrates and rounds, array by array. Its interception of Flax modules
is not used: it would put its own array class where every other part expects a dict of arrays. `models.dense` runs
the result.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlanything_jax.models.dense import PROJECTIONS

Tree = dict[str, Any]


def quantize_params(params: Tree) -> Tree:
    """Stacked parameters with the kernels of `dense.PROJECTIONS` in int8, each within scale / 2 of its value.

    Embeddings, norms, biases, routers and experts stay as they are. Raises ImportError without qwix.
    """
    try:
        import qwix
    except ImportError as error:
        raise ImportError("int8 weights need qwix: pip install -e '.[int8]'") from error

    def one(kernel: Array) -> tuple[Array, Array]:
        # qwix scales in the dtype it is given; bfloat16 would add its own rounding to that of int8.
        quantized = qwix.quantize(kernel.astype(jnp.float32), jnp.int8, channelwise_axes=(1,))
        return quantized.qvalue, quantized.scale[0]

    @jax.jit
    def stacked(kernels: Array) -> tuple[Array, Array]:
        return jax.lax.map(one, kernels)  # layer by layer: the float32 copy is that of one layer

    def layer(name: str, leaves: Tree) -> Tree:
        if name not in PROJECTIONS:
            return leaves
        kernel, scale = stacked(leaves["kernel"])
        rest = {key: leaf for key, leaf in leaves.items() if key != "kernel"}
        return rest | {"kernel_int8": kernel, "kernel_scale": scale}

    return params | {"layers": {name: layer(name, leaves) for name, leaves in params["layers"].items()}}


def dequantize(params: Tree, dtype: jnp.dtype = jnp.float32) -> Tree:
    """The parameters with every int8 kernel as a plain one of this dtype; what is not int8 stays as it is."""

    def layer(leaves: Tree) -> Tree:
        if "kernel_int8" not in leaves:
            return leaves
        kernel = (leaves["kernel_int8"] * leaves["kernel_scale"][:, None]).astype(dtype)
        rest = {key: leaf for key, leaf in leaves.items() if not key.startswith("kernel_")}
        return rest | {"kernel": kernel}

    return params | {"layers": {name: layer(leaves) for name, leaves in params["layers"].items()}}
