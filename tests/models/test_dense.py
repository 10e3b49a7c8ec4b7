"""The linear layer: `nn.Dense` bit for bit where it is plain, its other forms by numpy."""

from typing import Any

import flax.errors
import flax.linen as nn
import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rlanything_jax.models.dense import Dense


class Pair(nn.Module):
    """Two layers as a block has them: the parameters follow from attribute names, not from the class."""

    kind: Any

    def setup(self) -> None:
        self.first = self.kind(6, use_bias=True)
        self.second = self.kind(3)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(self.first(x))


def drawn(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_plain_layer_is_that_of_linen_bit_for_bit(dtype: str) -> None:
    """Fresh parameters, results and gradients: a run that began with the one goes on with the other."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, 4)), dtype)
    found = []
    for kind in (Dense, nn.Dense):
        module = Pair(
            lambda *args, kind=kind, **kw: kind(
                *args, **{"use_bias": False, **kw}, dtype=x.dtype, param_dtype=x.dtype
            )
        )

        @jax.jit
        def compute(key: jax.Array, module: Pair = module) -> Any:
            params = module.init(key, x)
            gradient = jax.grad(lambda p: jnp.sum(module.apply(p, x).astype(jnp.float32) ** 2))(params)
            return params, module.apply(params, x), gradient

        found.append(compute(jax.random.key(3)))
    ours, theirs = found
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_array_equal(a, b)


def test_an_int8_kernel_is_scaled_for_each_output() -> None:
    kernel = np.array([[1, -2], [3, 127], [-128, 0]], np.int8)
    params = {
        "kernel_int8": kernel,
        "kernel_scale": np.array([0.5, 0.01], np.float32),
        "bias": np.array([1.0, -1.0]),
    }
    y = Dense(2, use_bias=True).apply({"params": params}, np.array([[[1.0, 2.0, 0.25]]], np.float32))
    np.testing.assert_allclose(y, [[[(1 + 6 - 32) * 0.5 + 1, (-2 + 254) * 0.01 - 1]]], rtol=1e-6)


def test_the_low_rank_path_is_added_to_either_kernel() -> None:
    x, plain = drawn(x=(2, 3, 4))["x"], drawn(kernel=(4, 5), lora_a=(4, 2), lora_b=(2, 5), bias=(5,))
    low = 1.5 * x @ plain["lora_a"] @ plain["lora_b"] + plain["bias"]
    params = plain | {"lora_scale": np.float32(1.5)}
    y = Dense(5, use_bias=True).apply({"params": params}, x)
    np.testing.assert_allclose(y, x @ plain["kernel"] + low, rtol=1e-4, atol=1e-5)
    int8 = {"kernel_int8": np.full((4, 5), 3, np.int8), "kernel_scale": np.full(5, 0.1, np.float32)}
    rest = {name: leaf for name, leaf in params.items() if name != "kernel"}
    y = Dense(5, use_bias=True).apply({"params": rest | int8}, x)
    np.testing.assert_allclose(y, x.sum(-1, keepdims=True) * 0.3 + low, rtol=1e-4, atol=1e-5)


def test_float32_adapters_and_int8_kernels_leave_bfloat16_activations_bfloat16() -> None:
    params = drawn(lora_a=(4, 2), lora_b=(2, 5), kernel_scale=(5,)) | {
        "lora_scale": np.float32(2),
        "kernel_int8": np.ones((4, 5), np.int8),
    }
    assert (
        Dense(5, dtype=jnp.bfloat16).apply({"params": params}, jnp.ones((1, 4), jnp.bfloat16)).dtype
        == jnp.bfloat16
    )


def test_a_kernel_of_another_shape_is_refused() -> None:
    with pytest.raises(flax.errors.ScopeParamShapeError, match="kernel"):
        Dense(5).apply({"params": drawn(kernel=(3, 5))}, np.ones((1, 4), np.float32))
