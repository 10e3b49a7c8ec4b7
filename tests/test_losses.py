"""Losses: hand-computed tables, packed rows against unpacked ones, and what must not leak through a mask."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax import losses

B, S = 3, 6
fast = settings(deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)
poisons = st.sampled_from([np.nan, np.inf, -np.inf])


def tokens(seed):
    """(logp, logp_old, advantage, mask) with ragged masks; a row may have no token."""
    rng = np.random.default_rng(seed)
    logp, logp_old = -rng.exponential(1.0, (2, B, S))
    return logp, logp_old, rng.normal(size=(B, S)), rng.random((B, S)) < rng.random((B, 1))


def surrogate(logp, logp_old, advantage, mask, **options):
    return losses.clipped_surrogate(
        logp, logp_old, advantage, mask, **{"eps_low": 0.2, "eps_high": 0.28} | options
    )


@pytest.mark.parametrize(
    "ratio, advantage, loss, gradient, clipped",
    [
        (1.0, 2.0, -2.0, -2.0, 0),
        (1.25, 2.0, -2.5, -2.5, 0),  # inside the upper half of the range, which is wider
        (1.5, 2.0, -2.56, 0.0, 1),  # too likely already
        (1.5, -2.0, 3.0, 3.0, 0),  # the clip never softens a penalty
        (0.5, 2.0, -1.0, -1.0, 0),
        (0.5, -2.0, 1.6, 0.0, 1),  # too unlikely already
        (0.85, -2.0, 1.7, 1.7, 0),
    ],
)
def test_clipped_surrogate_by_hand(ratio, advantage, loss, gradient, clipped):
    logp_old, mask = jnp.array([[-3.0]]), np.ones((1, 1), bool)
    logp = logp_old + np.log(ratio)
    value, metrics = surrogate(logp, logp_old, jnp.array([[advantage]]), mask)
    assert float(value) == pytest.approx(loss, rel=1e-5)
    assert float(metrics["clip_fraction"]) == clipped
    assert float(metrics["ratio"]) == pytest.approx(ratio, rel=1e-5)
    assert float(metrics["approx_kl"]) == pytest.approx(ratio - 1 - np.log(ratio), abs=1e-6)
    slope = jax.grad(lambda x: surrogate(x, logp_old, jnp.array([[advantage]]), mask)[0])(logp)
    np.testing.assert_allclose(slope, [[gradient]], rtol=1e-5)


def test_first_update_is_the_policy_gradient():
    logp, _, advantage, mask = tokens(0)
    gradient = jax.grad(lambda x: surrogate(x, logp, advantage, mask)[0])(logp)
    np.testing.assert_allclose(gradient, -advantage * losses.token_weights(mask), atol=1e-6)


def test_only_the_current_policy_gets_a_gradient():
    logp, logp_old, advantage, mask = tokens(2)
    gradients = jax.grad(lambda *x: surrogate(*x, mask)[0], argnums=(0, 1, 2))(logp, logp_old, advantage)
    assert [bool(np.any(gradient)) for gradient in gradients] == [True, False, False]


def test_one_advantage_a_row_goes_to_all_its_tokens():
    logp, logp_old, advantage, mask = tokens(1)
    by_row = surrogate(logp, logp_old, advantage[:, 0], mask)[0]
    assert by_row == surrogate(logp, logp_old, np.repeat(advantage[:, :1], S, 1), mask)[0]


def test_huge_log_ratios_stay_finite():
    logp, mask = jnp.array([[0.0, -1000.0]]), np.ones((1, 2), bool)
    value, gradient = jax.value_and_grad(lambda x: surrogate(x, logp[:, ::-1], -jnp.ones((1, 2)), mask)[0])(
        logp
    )
    assert float(value) == pytest.approx((np.exp(10) + 0.8) / 2, rel=1e-5)
    np.testing.assert_array_equal(gradient, [[0, 0]])


def test_aggregation_by_hand():
    values = np.array([[1.0, 2.0, 3.0, 99.0], [10.0, 99.0, 99.0, 99.0], [99.0] * 4])
    mask = values < 99
    assert float(losses.aggregate(values, mask, kind="sequence")) == pytest.approx((2 + 10) / 2)
    assert float(losses.aggregate(values, mask, kind="token")) == pytest.approx(16 / 4)
    # The same sequences and a third one, packed: 1 2 | 10, then 3.
    packed = np.array([[1.0, 2.0, 99.0, 10.0], [3.0, 99.0, 99.0, 99.0]])
    segments = np.array([[1, 1, 2, 2], [1, 0, 0, 0]])
    assert float(losses.aggregate(packed, packed < 99, segments)) == pytest.approx((1.5 + 10 + 3) / 3)
    assert float(losses.aggregate(packed, packed < 99, segments, kind="token")) == pytest.approx(4)


def test_unknown_kinds_are_named_with_the_choices():
    mask = np.ones((1, 2), bool)
    with pytest.raises(ValueError, match=r"'mean'.*'sequence', 'token'"):
        losses.token_weights(mask, kind="mean")
    with pytest.raises(ValueError, match=r"'k4'.*'k1', 'k2', 'k3'"):
        losses.kl_estimate(np.zeros((1, 2)), np.zeros((1, 2)), mask, kind="k4")


@pytest.mark.parametrize("kind", losses.AGGREGATIONS)
def test_a_batch_without_trained_tokens_has_loss_zero(kind):
    mask = np.zeros((B, S), bool)
    np.testing.assert_array_equal(losses.token_weights(mask, kind=kind), np.zeros((B, S)))
    value, gradient = jax.value_and_grad(lambda x: surrogate(x, x, x, mask)[0])(jnp.full((B, S), jnp.nan))
    assert float(value) == 0
    np.testing.assert_array_equal(gradient, np.zeros((B, S)))


@fast
@given(seeds, st.sampled_from(losses.AGGREGATIONS), st.permutations(range(B)))
def test_packing_sequences_in_rows_changes_no_loss(seed, kind, order):
    logp, logp_old, advantage, mask = tokens(seed)
    # All sequences in one row, in any order and under any numbers, with padding behind them.
    pad = ((0, 0), (0, 4))
    packed = [
        np.pad(x[list(order)].reshape(1, -1), pad, constant_values=np.nan)
        for x in (logp, logp_old, advantage)
    ]
    packed_mask = np.pad(mask[list(order)].reshape(1, -1), pad)
    segments = np.pad(np.repeat([5, 2, 9], S)[None], pad)
    packed_weights = losses.token_weights(packed_mask, segments, kind=kind)
    got, got_metrics = surrogate(*packed, packed_mask, weights=packed_weights)
    expected, metrics = surrogate(
        logp, logp_old, advantage, mask, weights=losses.token_weights(mask, kind=kind)
    )
    # Another order of adding up: what rounding does grows with the value, which a large ratio makes large.
    assert float(got) == pytest.approx(float(expected), rel=1e-5, abs=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got_metrics, metrics)


@fast
@given(seeds, st.sampled_from(losses.AGGREGATIONS), st.integers(1, 4))
def test_weights_sum_to_one_and_sequences_weigh_alike(seed, kind, segment_count):
    rng = np.random.default_rng(seed)
    mask, segments = rng.random((B, S)) < 0.6, rng.integers(0, segment_count, (B, S))
    weights = np.asarray(losses.token_weights(mask, segments, kind=kind))
    assert weights.sum() == pytest.approx(float(mask.any()), abs=1e-6)
    assert np.all((weights > 0) == mask)
    if kind == "sequence":
        totals = [weights[b, segments[b] == s].sum() for b in range(B) for s in range(segment_count)]
        totals = [total for total in totals if total > 0]
        np.testing.assert_allclose(totals, 1 / max(len(totals), 1), rtol=1e-5)


def test_a_segment_id_out_of_range_is_loud():
    weights = losses.token_weights(np.ones((1, 3), bool), np.array([[1, 1, 7]]))
    assert np.all(np.isnan(weights))


def test_micro_batches_add_up():
    logp, logp_old, advantage, mask = tokens(3)
    weights = losses.token_weights(mask)
    whole = surrogate(logp, logp_old, advantage, mask, weights=weights)
    parts = [
        surrogate(
            logp[i : i + 1],
            logp_old[i : i + 1],
            advantage[i : i + 1],
            mask[i : i + 1],
            weights=weights[i : i + 1],
        )
        for i in range(B)
    ]
    jax.tree.map(lambda a, *b: np.testing.assert_allclose(a, sum(b), rtol=1e-5), whole, *parts)


def test_kl_estimates_by_hand():
    logp, logp_ref, mask = (
        np.array([[-1.0, -2.0, 5.0]]),
        np.array([[-1.5, -1.0, np.nan]]),
        np.array([[True, True, False]]),
    )
    np.testing.assert_allclose(losses.kl_estimate(logp, logp_ref, mask, kind="k1"), [[0.5, -1, 0]], rtol=1e-6)
    np.testing.assert_allclose(
        losses.kl_estimate(logp, logp_ref, mask, kind="k2"), [[0.125, 0.5, 0]], rtol=1e-6
    )
    k3 = [[np.exp(-0.5) - 0.5, np.e - 2, 0]]
    np.testing.assert_allclose(losses.kl_estimate(logp, logp_ref, mask), k3, rtol=1e-5)


@pytest.mark.parametrize("kind, tolerance", [("k1", 1e-5), ("k3", 1e-5), ("k2", 0.05)])
def test_kl_estimates_average_to_the_divergence(kind, tolerance):
    p, q = jax.nn.softmax(jnp.array([0.3, -0.2, 1.0, 0.1])), jax.nn.softmax(jnp.array([0.0, 0.1, 0.6, 0.4]))
    divergence = jnp.sum(p * jnp.log(p / q))
    estimate = jnp.sum(p * losses.kl_estimate(jnp.log(p), jnp.log(q), jnp.ones(4, bool), kind=kind))
    assert float(estimate) == pytest.approx(float(divergence), abs=tolerance)


def test_k3_never_pushes_away_from_the_reference():
    gap = jnp.linspace(-30, 30, 121)[None]
    mask = np.ones(gap.shape, bool)
    slope = np.asarray(jax.grad(lambda x: losses.kl_estimate(x, jnp.zeros_like(x), mask).sum())(gap))
    assert np.all(slope * np.sign(gap) >= 0)
    assert np.all(np.isfinite(slope))
    assert np.all(np.asarray(losses.kl_estimate(gap, jnp.zeros_like(gap), mask)) >= 0)


def test_importance_correction_is_truncated_and_has_no_gradient():
    logp_old, logp_sampler = jnp.array([[-1.0, -1.0, -1.0, jnp.nan]]), jnp.array([[-1.0, -1.5, -9.0, -1.0]])
    mask = np.array([[True, True, True, False]])
    weight = losses.importance_correction(logp_old, logp_sampler, mask, cap=2.0)
    np.testing.assert_allclose(weight, [[1, np.exp(0.5), 2, 1]], rtol=1e-6)
    gradient = jax.grad(lambda x: losses.importance_correction(x, logp_sampler, mask, cap=2.0).sum())(
        logp_old
    )
    np.testing.assert_array_equal(gradient, np.zeros((1, 4)))


def test_importance_correction_scales_the_surrogate_of_each_token():
    logp, logp_old, advantage, mask = tokens(4)
    factor = np.random.default_rng(4).uniform(0.1, 2, (B, S))
    corrected = surrogate(logp, logp_old, advantage * factor, mask)[0]
    by_hand = surrogate(logp, logp_old, advantage, mask, weights=losses.token_weights(mask) * factor)[0]
    assert float(corrected) == pytest.approx(float(by_hand), rel=1e-5)


def test_cross_entropy_by_hand():
    logp = jnp.log(jnp.array([[0.5, 0.25, 0.1], [0.125, 0.1, 0.1]]))
    mask = np.array([[True, True, False], [True, False, False]])
    loss, metrics = losses.cross_entropy(logp, mask)
    assert float(loss) == pytest.approx(np.log(2) * (1.5 + 3) / 2, rel=1e-5)
    assert float(metrics["likelihood"]) == pytest.approx((0.375 + 0.125) / 2, rel=1e-5)
    weighted = losses.cross_entropy(logp, mask, weights=losses.token_weights(mask, kind="token"))[0]
    assert float(weighted) == pytest.approx(np.log(2) * (1 + 2 + 3) / 3, rel=1e-5)


@partial(jax.jit, static_argnames=("kl", "kind"))
@partial(jax.value_and_grad, argnums=(0, 1, 2, 3), has_aux=True)
def everything(logp, logp_old, advantage, sampler, mask, kl, kind):
    weights = losses.token_weights(mask, kind=kind)
    correction = losses.importance_correction(logp_old, sampler, mask, cap=2.0)
    policy, metrics = surrogate(logp, logp_old, advantage * correction, mask, weights=weights)
    divergence = losses.aggregate(losses.kl_estimate(logp, logp_old, mask, kind=kl), mask, kind=kind)
    return policy + 0.1 * divergence + losses.cross_entropy(logp, mask, weights=weights)[0], metrics


@fast
@given(seeds, poisons, st.sampled_from(losses.KL_KINDS), st.sampled_from(losses.AGGREGATIONS))
def test_case_14_nan_at_a_masked_token_does_not_leak(seed, poison, kl, kind):
    logp, logp_old, advantage, mask = tokens(seed)
    arrays = logp, logp_old, advantage, 0.9 * logp_old
    clean, poisoned = (
        everything(*(np.where(mask, x, fill) for x in arrays), mask, kl=kl, kind=kind)
        for fill in (0.0, poison)
    )
    jax.tree.map(np.testing.assert_array_equal, poisoned, clean)
    for gradient in poisoned[1]:
        assert np.all(np.isfinite(gradient))
        assert np.all(np.asarray(gradient)[~mask] == 0)


def test_nothing_tuned_recompiles():
    logp, logp_old, advantage, mask = tokens(5)
    sizes = []
    for value in (0.1, 0.2, 0.4):
        losses.clipped_surrogate(logp, logp_old, advantage, mask, eps_low=value, eps_high=2 * value)
        losses.importance_correction(logp, logp_old, mask, cap=10 * value)
        sizes.append((losses.clipped_surrogate._cache_size(), losses.importance_correction._cache_size()))
    assert sizes[0] == sizes[1] == sizes[2]
