"""The linear layer of the decoder: one module whose parameters say how it is computed.

    kernel [in,out]                                 y = x @ kernel, as everywhere
    kernel_int8 [in,out], kernel_scale [out]        y = (x @ kernel_int8) * kernel_scale: `models.quantize`
    lora_a [in,r], lora_b [r,out], lora_scale []    y += (x @ lora_a) * lora_scale @ lora_b: `models.lora`
    bias [out]                                      y += bias

Which of them is there is known when a program is traced, so that a plain layer costs nothing for the others.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

# The linear layers of a block that may carry adapters or an int8 kernel. Routers and experts are not among them.
PROJECTIONS = ("wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down")


class Dense(nn.Module):
    """x [...,in] -> [...,features]. `init` makes a kernel, with fan-in initialisation, and no other form of it."""

    features: int
    use_bias: bool = False
    dtype: jnp.dtype = jnp.float32  # of the computation and its result
    param_dtype: jnp.dtype = jnp.float32  # of fresh parameters

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.astype(self.dtype)
        if self.has_variable("params", "kernel_int8"):
            # Scaling after the product spares a dequantised copy of the kernel; int8 is exact in every float.
            y = _product(x, self.get_variable("params", "kernel_int8"), jnp.float32)
            y = (y * self.get_variable("params", "kernel_scale")).astype(self.dtype)
        else:
            fan_in = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
            kernel = self.param("kernel", fan_in, (x.shape[-1], self.features), self.param_dtype)
            y = _product(x, kernel, self.dtype)
        if self.has_variable("params", "lora_a"):
            low = _product(x, self.get_variable("params", "lora_a"), self.dtype)
            low = low * self.get_variable("params", "lora_scale").astype(self.dtype)
            y = y + _product(low, self.get_variable("params", "lora_b"), self.dtype)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,), self.param_dtype)
            y = y + bias.astype(self.dtype)
        return y


def _product(x: Array, kernel: Array, result: jnp.dtype) -> Array:
    """x [...,in] @ kernel [in,out] in the dtype of x, accumulated and returned in `result`."""
    contraction = (((x.ndim - 1,), (0,)), ((), ()))
    return jax.lax.dot_general(x, kernel.astype(x.dtype), contraction, preferred_element_type=result)
