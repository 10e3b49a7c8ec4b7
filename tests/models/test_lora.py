"""Adapters: standard LoRA by numpy, a start that changes nothing, a merge that equals the two trees together."""

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rlanything_jax.models import ModelConfig, Params, init, logits, unstack
from rlanything_jax.models.dense import PROJECTIONS
from rlanything_jax.models.lora import combine, init_adapters, merge
from rlanything_jax.models.quantize import quantize_params

TINY = ModelConfig(vocab_size=40, embed_dim=16, layers=2, heads=4, kv_heads=2, head_dim=8, ff_dim=24)
TOKENS = np.random.default_rng(1).integers(0, 40, (2, 7))
FULL = np.ones(TOKENS.shape, bool)
KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def base() -> Params:
    return init(TINY, jax.random.key(0))


def adapted(
    base: Params, targets: tuple[str, ...] = PROJECTIONS, rank: int = 3, alpha: float = 6.0
) -> tuple[Any, Any]:
    return init_adapters(base, rank=rank, alpha=alpha, targets=targets, key=KEY)


def moved(adapters: Any) -> Any:
    """Adapters that do something: B is no longer zero."""
    rng = np.random.default_rng(2)
    return jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype(np.float32) * 0.2, adapters)


@pytest.mark.parametrize("int8", [False, True])
def test_fresh_adapters_leave_the_logits_as_they_are(base: Params, int8: bool) -> None:
    """Bit for bit on a float base; the compiler may round the scaled product of int8 otherwise when another is added to it."""
    base = quantize_params(base) if int8 else base
    frozen, adapters = adapted(base)
    before, after = (logits(p, TINY, TOKENS, FULL) for p in (base, combine(frozen, adapters)))
    np.testing.assert_allclose(after, before, rtol=0, atol=2e-6 if int8 else 0)


def test_a_layer_computes_the_equation(base: Params) -> None:
    """W + (alpha / rank) A B, with the product written out, in place of the kernel."""
    frozen, adapters = adapted(base, ("wq", "w_down"), rank=3, alpha=6.0)
    adapters = moved(adapters)
    by_hand = jax.tree.map(np.asarray, base)
    for name, leaves in adapters["layers"].items():
        for layer in range(TINY.layers):
            product = np.asarray(leaves["lora_a"][layer]) @ np.asarray(leaves["lora_b"][layer])
            by_hand["layers"][name]["kernel"] = by_hand["layers"][name]["kernel"].copy()
            by_hand["layers"][name]["kernel"][layer] += 2.0 * product
    got = logits(combine(frozen, adapters), TINY, TOKENS, FULL)
    assert np.abs(got - logits(base, TINY, TOKENS, FULL)).max() > 0.1
    np.testing.assert_allclose(got, logits(by_hand, TINY, TOKENS, FULL), rtol=1e-4, atol=1e-4)
    for a, b in zip(jax.tree.leaves(merge(frozen, adapters)), jax.tree.leaves(by_hand), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_merge_has_the_tree_of_a_plain_model_and_its_dtype(base: Params) -> None:
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), base)
    merged = merge(*adapted(half, ("wv",)))
    assert jax.tree.structure(merged) == jax.tree.structure(base)
    assert {x.dtype for x in jax.tree.leaves(merged)} == {jnp.dtype("bfloat16")}
    merged = merge(*adapted(quantize_params(half), ("wv",)), dtype=jnp.bfloat16)
    assert jax.tree.structure(merged) == jax.tree.structure(base)
    assert {x.dtype for x in jax.tree.leaves(merged)} == {jnp.dtype("bfloat16")}


def test_a_merge_through_an_int8_base_keeps_the_logits(base: Params) -> None:
    frozen, adapters = adapted(quantize_params(base), ("wq", "wv", "w_up"))
    adapters = moved(adapters)
    np.testing.assert_allclose(
        logits(merge(frozen, adapters), TINY, TOKENS, FULL),
        logits(combine(frozen, adapters), TINY, TOKENS, FULL),
        rtol=1e-4,
        atol=1e-4,
    )


def test_adapters_are_small_float32_and_share_the_base(base: Params) -> None:
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), base)
    frozen, adapters = adapted(half, ("wk", "w_gate"), rank=2)
    assert jax.tree.map(np.shape, adapters) == {
        "layers": {
            "wk": {"lora_a": (2, 16, 2), "lora_b": (2, 2, 16)},
            "w_gate": {"lora_a": (2, 16, 2), "lora_b": (2, 2, 24)},
        }
    }
    assert {x.dtype for x in jax.tree.leaves(adapters)} == {jnp.dtype("float32")}
    assert frozen["layers"]["wk"]["kernel"] is half["layers"]["wk"]["kernel"]
    assert frozen["embed"] is half["embed"]
    assert "lora_scale" not in half["layers"]["wk"]


def test_what_a_layer_draws_depends_on_no_other_target(base: Params) -> None:
    _, few = adapted(base, ("wv",))
    _, many = adapted(base)
    a, b = few["layers"]["wv"]["lora_a"], many["layers"]["wv"]["lora_a"]
    np.testing.assert_array_equal(a, b)
    assert np.abs(a[0] - a[1]).max() > 0.01 and np.abs(a - many["layers"]["wk"]["lora_a"]).max() > 0.01
    assert float(many["layers"]["w_up"]["lora_a"].std()) == pytest.approx(0.25, rel=0.2)  # 16 ** -0.5


def test_a_generator_runs_unstacked_layers_with_adapters(base: Params) -> None:
    layers = unstack(combine(*adapted(base)), TINY)["layers"]
    assert layers[1]["wq"]["lora_a"].shape == (16, 3) and layers[1]["wq"]["lora_scale"].shape == ()


def test_shapes_of_a_base_are_enough(base: Params) -> None:
    shapes = jax.eval_shape(lambda: base)
    _, adapters = init_adapters(shapes, rank=1, alpha=1, targets=("wo",), key=KEY)
    assert adapters["layers"]["wo"]["lora_b"].shape == (2, 1, 16)


def test_an_unknown_target_is_named_with_the_choices(base: Params) -> None:
    with pytest.raises(ValueError, match=r"lora\.targets=\['q_proj'\].*\['wq', 'wk', .*'w_down'\]"):
        adapted(base, ("wq", "q_proj"))
    with pytest.raises(ValueError, match=r"lora\.targets is empty; choose from"):
        adapted(base, ())
    with pytest.raises(ValueError, match=r"lora\.rank=0 must be at least 1"):
        adapted(base, rank=0)


def test_experts_carry_no_adapters(base: Params) -> None:
    """With routed experts the layer has no w_gate of its own; it is refused, with what there is."""
    dense = {k: v for k, v in base["layers"].items() if not k.startswith("w_")}
    experts = {name: jnp.zeros((2, 4, 16, 24)) for name in ("w_gate", "w_up")}
    routed = base | {"layers": dense | {"router": {"kernel": jnp.zeros((2, 16, 4))}, "experts": experts}}
    with pytest.raises(ValueError, match=r"\['w_gate'\].*choose from \['wq', 'wk', 'wv', 'wo'\]"):
        adapted(routed, ("wq", "w_gate"))
    merged = merge(*adapted(routed, ("wq",)))
    assert merged["layers"]["experts"] is experts


def test_a_leaf_in_both_trees_is_named() -> None:
    assert combine({"a": {"b": 1}}, {"a": {"c": 2}, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    with pytest.raises(ValueError, match="'b' is both frozen and trainable"):
        combine({"a": {"b": 1}}, {"a": {"b": 2}})
