"""The train step where not all is trained, where the vocabulary is large, and where parameters are bfloat16."""

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from rlanything_jax.models import ModelConfig, Params
from rlanything_jax.models.lora import combine, init_adapters, merge
from rlanything_jax.models.quantize import quantize_params
from rlanything_jax.trainer import step as train_step
from rlanything_jax.trainer.batches import Batch, Piece, TrainSequence, normalise, pack
from rlanything_jax.trainer.optimizers import optimizer
from rlanything_jax.trainer.step import (
    Objective,
    TrainState,
    gradient,
    init_state,
    on_policy_loss,
    supervised_loss,
    token_logprobs,
    train,
    train_epoch,
)

LENGTH = 32
ADAM = optimizer(0.01)


def played(seed: int, size: int = 12) -> TrainSequence:
    """A trajectory with one trained action of 4 tokens."""
    rng = np.random.default_rng(seed)
    trained = np.arange(size) // 4 == 1
    logprobs = np.where(trained, rng.normal(-5, 0.3, size), 0.0)
    advantage = trained * rng.normal()
    return TrainSequence(
        Piece(
            rng.integers(3, 280, size).tolist(), (trained / 4).tolist(), advantage.tolist(), logprobs.tolist()
        )
    )


def batches(*seeds: int, size: int = 12) -> list[Batch]:
    """Micro-batches of two rows."""
    sequences = normalise([played(seed, size) for seed in seeds])
    return pack(sequences, tokens=2 * LENGTH, lengths=(LENGTH,))


def epoch(
    state: TrainState, frozen: Params, model: ModelConfig, tx: Any
) -> tuple[TrainState, dict[str, float]]:
    """Two updates."""
    sequences = [played(i) for i in range(4)]
    return train_epoch(
        state,
        frozen,
        model,
        tx,
        sequences,
        Objective(),
        updates=2,
        tokens_per_batch=2 * LENGTH,
        lengths=(LENGTH,),
    )


def assert_close(a: Any, b: Any, rel: float) -> None:
    """Leaf by leaf, relative to the leaf's largest entry."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=rel * float(np.abs(y).max()))


@pytest.fixture(params=[False, True], ids=["float32 base", "int8 base"])
def adapters(request: pytest.FixtureRequest, params: Params) -> tuple[Params, Params]:
    """(frozen, adapters)."""
    base = jax.tree.map(jnp.asarray, params)
    base = quantize_params(base) if request.param else base
    return init_adapters(base, rank=2, alpha=8.0, targets=("wq", "wv", "w_down"), key=jax.random.key(1))


def test_frozen_weights_are_bit_unchanged_and_the_state_is_of_the_size_of_the_adapters(
    adapters: tuple[Params, Params], model: ModelConfig
) -> None:
    frozen, start = adapters
    before = jax.tree.map(lambda x: np.array(x, copy=True), frozen)
    got, _ = epoch(init_state(start, ADAM), frozen, model, ADAM)
    assert int(got.step) == 2
    for a, b in zip(jax.tree.leaves(frozen), jax.tree.leaves(before), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert jax.tree.structure(got.params) == jax.tree.structure(start)
    for a, b in zip(jax.tree.leaves(got.params), jax.tree.leaves(start), strict=True):
        assert np.any(a != b)
    counters = [x for x in jax.tree.leaves(got.opt_state) if x.ndim == 0]
    moments = sum(x.nbytes for x in jax.tree.leaves(got.opt_state)) - sum(x.nbytes for x in counters)
    assert moments == 2 * sum(x.nbytes for x in jax.tree.leaves(start))
    assert len(counters) == 1


def test_adapters_have_the_gradient_of_the_merged_kernel(
    adapters: tuple[Params, Params], model: ModelConfig
) -> None:
    """dA = s dW B^T and dB = s A^T dW, with dW the gradient of a model whose kernels are the merged ones."""
    frozen, trained = adapters
    rng = np.random.default_rng(3)
    trained = jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), trained)
    (batch,) = batches(1, 2, 3)
    got, metrics = gradient(trained, frozen, model, batch, Objective(), on_policy_loss)
    whole, expected_metrics = gradient(merge(frozen, trained), {}, model, batch, Objective(), on_policy_loss)
    assert jax.tree.structure(got) == jax.tree.structure(trained)
    for name, leaves in trained["layers"].items():
        full = whole["layers"][name]["kernel"] * 4.0  # alpha / rank
        expected = {
            "lora_a": np.einsum("lio,lro->lir", full, leaves["lora_b"]),
            "lora_b": np.einsum("lir,lio->lro", leaves["lora_a"], full),
        }
        assert_close(got["layers"][name], expected, rel=1e-4)
    assert float(metrics["logprob_gap"]) == pytest.approx(float(expected_metrics["logprob_gap"]), rel=1e-5)


def test_a_second_update_of_adapters_compares_with_the_whole_model(
    adapters: tuple[Params, Params], model: ModelConfig
) -> None:
    """`old` comes from base and adapters together: with a rate of 0 every ratio is 1."""
    frozen, start = adapters
    still = optax.sgd(0.0)
    _, metrics = epoch(init_state(start, still), frozen, model, still)
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["grad_norm"] > 0


def test_adapters_learn(adapters: tuple[Params, Params], model: ModelConfig) -> None:
    frozen, start = adapters
    got, losses = init_state(start, ADAM), []
    for _ in range(24):
        got, metrics = train(got, frozen, model, ADAM, batches(1, 2), Objective(), supervised_loss)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] / 2
    merged = token_logprobs(merge(frozen, got.params), model, batches(1, 2)[0], 1.0)
    union = token_logprobs(combine(frozen, got.params), model, batches(1, 2)[0], 1.0)
    np.testing.assert_allclose(merged, union, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", [2, 7, 16])
def test_logits_in_pieces_give_the_same_logprobs_and_gradient(
    params: Params, model: ModelConfig, monkeypatch: pytest.MonkeyPatch, positions: int
) -> None:
    """Pieces of 2 (what this narrow model takes at least), of 7 (which leave padding: 31 positions) and of 16; tied table
    and a head of its own.
    """
    (batch,) = batches(1, 2, 3)
    for tied in (True, False):
        shape = dataclasses.replace(model, tie_embeddings=tied)
        weights = params if tied else params | {"head": params["embed"][::-1].copy()}

        def compute(shape: ModelConfig = shape, weights: Params = weights) -> tuple[Any, Any]:
            return token_logprobs(weights, shape, batch, 0.8), gradient(
                weights, {}, shape, batch, Objective(), on_policy_loss
            )[0]

        logp, grads = compute()
        with monkeypatch.context() as patch:
            patch.setattr(train_step, "LOGITS_AT_ONCE", 2 * 280 * positions)
            jax.clear_caches()
            lowered = gradient.lower(weights, {}, shape, batch, Objective(), on_policy_loss).as_text()
            assert "2x31x280x" not in lowered  # the logits of all positions
            pieces, piece_grads = compute()
        jax.clear_caches()
        np.testing.assert_allclose(pieces, logp, rtol=1e-6, atol=1e-6)
        assert_close(piece_grads, grads, rel=1e-6)
        assert "2x31x280x" in gradient.lower(weights, {}, shape, batch, Objective(), on_policy_loss).as_text()


def test_micro_batches_of_bfloat16_parameters_are_summed_in_float32(
    params: Params, model: ModelConfig
) -> None:
    half = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), params)
    shape = dataclasses.replace(model, dtype="bfloat16")
    several = batches(1, 2, 3, 4, size=20)
    assert len(several) == 2
    grads, _ = gradient(half, {}, shape, several[0], Objective(), supervised_loss)
    assert {x.dtype for x in jax.tree.leaves(grads)} == {jnp.dtype("float32")}
    tx = optimizer(0.01, master_weights=True)
    got, losses = init_state(half, tx), []
    for _ in range(8):
        got, metrics = train(got, {}, shape, tx, several, Objective(), supervised_loss)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0]
    assert {x.dtype for x in jax.tree.leaves(got.params)} == {jnp.dtype("bfloat16")}


def test_a_row_of_a_bfloat16_table_adds_up_in_float32(params: Params, model: ModelConfig) -> None:
    """A token that occurs 500 times: in bfloat16 its sum would stop growing long before, an error of more than 20 %."""
    same = Piece([7] * 500, [1 / 499] * 500, [1.0] * 500, [-5.0] * 500)
    (batch,) = pack([TrainSequence(same)], tokens=512, lengths=(512,))
    # A head of its own, so that the embedding's gradient is that of reading.
    one_layer = params | {
        "layers": jax.tree.map(lambda x: x[:1], params["layers"]),
        "head": params["embed"][::-1].copy(),
    }

    def row(dtype: str) -> np.ndarray:
        shape = dataclasses.replace(model, layers=1, dtype=dtype, tie_embeddings=False)
        weights = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16).astype(dtype), one_layer)
        return np.asarray(gradient(weights, {}, shape, batch, Objective(), supervised_loss)[0]["embed"][7])

    exact = row("float32")
    np.testing.assert_allclose(row("bfloat16"), exact, rtol=0, atol=0.05 * np.abs(exact).max())
