"""int8 kernels: how far a weight and a logit may move, and what stays as it is."""

import sys

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rlanything_jax.models import ModelConfig, Params, init, logits
from rlanything_jax.models.dense import PROJECTIONS
from rlanything_jax.models.quantize import dequantize, quantize_params

TINY = ModelConfig(
    vocab_size=40, embed_dim=16, layers=2, heads=4, kv_heads=2, head_dim=8, ff_dim=24, qkv_bias=True
)


@pytest.fixture(scope="module")
def params() -> Params:
    return init(TINY, jax.random.key(0))


def one(kernel: np.ndarray) -> Params:
    return {"layers": {"wq": {"kernel": jnp.asarray(kernel)}}}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1.0, 1e4]))
def test_a_weight_moves_by_half_a_step_at_most(seed: int, size: float) -> None:
    """A step is 1/127 of the largest weight of its own output channel and layer (qwix: 127.5)."""
    rng = np.random.default_rng(seed)
    spread = size * 10.0 ** rng.uniform(-2, 2, (2, 1, 3))  # channels of very different size
    kernel = (rng.normal(size=(2, 5, 3)) * spread).astype(np.float32)
    quantized = quantize_params(one(kernel))
    leaves = quantized["layers"]["wq"]
    assert leaves["kernel_int8"].dtype == jnp.int8 and leaves["kernel_scale"].shape == (2, 3)
    step = np.abs(kernel).max(axis=1) / 127
    assert np.all(leaves["kernel_scale"] <= step * 1.0001)
    error = np.abs(dequantize(quantized)["layers"]["wq"]["kernel"] - kernel)
    assert np.all(error <= step[:, None] * 0.51)


def test_a_channel_of_zeros_stays_zero() -> None:
    kernel = np.ones((1, 4, 2), np.float32)
    kernel[..., 1] = 0
    back = dequantize(quantize_params(one(kernel)))["layers"]["wq"]["kernel"]
    np.testing.assert_allclose(back, kernel, atol=0.01)
    np.testing.assert_array_equal(back[..., 1], 0)


def test_only_the_kernels_of_the_layers_are_quantised(params: Params) -> None:
    quantized = quantize_params(params)
    for name in PROJECTIONS:
        assert quantized["layers"][name].keys() == (params["layers"][name].keys() - {"kernel"}) | {
            "kernel_int8",
            "kernel_scale",
        }
    assert quantized["embed"] is params["embed"]
    assert quantized["layers"]["ff_norm"] is params["layers"]["ff_norm"]
    assert jax.tree.structure(dequantize(quantized)) == jax.tree.structure(params)
    assert dequantize(quantized, jnp.bfloat16)["layers"]["wo"]["kernel"].dtype == jnp.bfloat16
    assert dequantize(params)["layers"]["wo"]["kernel"] is params["layers"]["wo"]["kernel"]


def test_int8_logits_are_those_of_the_dequantised_weights_and_near_the_original(params: Params) -> None:
    tokens = np.random.default_rng(1).integers(0, 40, (2, 7))
    full = np.ones(tokens.shape, bool)
    quantized = quantize_params(params)
    got = logits(quantized, TINY, tokens, full)
    np.testing.assert_allclose(got, logits(dequantize(quantized), TINY, tokens, full), rtol=1e-4, atol=1e-4)
    plain = logits(params, TINY, tokens, full)
    assert 0 < float(jnp.abs(got - plain).max()) < 0.05 * float(plain.std())


def test_scales_of_a_bfloat16_kernel_are_not_rounded_to_bfloat16() -> None:
    kernel = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 4)), jnp.bfloat16)
    leaves = quantize_params({"layers": {"wq": {"kernel": kernel}}})["layers"]["wq"]
    assert leaves["kernel_scale"].dtype == jnp.float32
    error = jnp.abs(leaves["kernel_int8"] * leaves["kernel_scale"][:, None] - kernel.astype(jnp.float32))
    assert np.all(error <= leaves["kernel_scale"][:, None] * 0.51)


def test_without_qwix_the_extra_is_named(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qwix", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[int8\]'"):
        quantize_params(params)
