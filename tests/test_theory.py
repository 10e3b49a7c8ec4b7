"""Theorems 1 and 2: estimates by hand, bounds against enumeration and simulation, degenerate batches."""

import itertools
import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax import theory

fast = settings(deadline=None, max_examples=30)
probabilities = st.floats(0, 1, width=32)


def batch_of(seed, q=3, n=4, t=3, m=3):
    rng = np.random.default_rng(seed)
    mask = np.arange(t) < rng.integers(0, t + 1, (q, n))[..., None]
    return rng.choice([-1.0, 1.0], (q, n)), rng.choice([-1.0, 0.0, 1.0], (q, n, t, m)), mask


@pytest.fixture
def small():
    """One task; a success of two steps, a failure of one and a failure of two."""
    outcome = np.array([[1, -1, -1]])
    scores = np.array([[[[1, 1], [1, 0]], [[-1, 1], [9, 9]], [[1, 1], [-1, -1]]]])
    mask = np.array([[[True, True], [True, False], [True, True]]])
    return outcome, scores, mask


def test_estimates_by_hand(small):
    p_plus, p_minus, mu = theory.estimate_mu(*small)
    assert (float(p_plus), float(p_minus), float(mu)) == pytest.approx((3 / 4, 3 / 6, 5 / 4))
    # Pairs at one step index: step 0 gives 2 > 0 and the tie 2 = 2; step 1 gives 1 > -2; the masked step
    # gives none.
    assert float(theory.reward_precision(*small)) == pytest.approx(2 / 3)
    # ||f+||^2 ~ (1 + 1/4) / 2; ||f-||^2 ~ 1/4 + (0 + 1) / 2.
    np.testing.assert_allclose(theory.importance_ratio(*small), [np.sqrt(0.625 / 0.75)], rtol=1e-6)


@fast
@given(st.integers(0, 2**32 - 1))
def test_precision_counts_pairs_of_the_same_task_and_step_index(seed):
    outcome, scores, mask = batch_of(seed)
    wins = []
    for q, a, b, t in itertools.product(range(3), range(4), range(4), range(3)):
        if outcome[q, a] > 0 > outcome[q, b] and mask[q, a, t] and mask[q, b, t]:
            wins.append(scores[q, a, t].mean() > scores[q, b, t].mean())
    expected = np.mean(wins) if wins else 0.5
    assert float(theory.reward_precision(outcome, scores, mask)) == pytest.approx(expected, abs=1e-6)


def test_published_bound_is_nearly_vacuous_at_three_votes():
    bound = theory.precision_bound(np.array([1.2, 1.4, 1.6, 2.0]), 3, kind="paper")
    np.testing.assert_allclose(bound, [0.03, 0.11, 0.24, 0.53], atol=0.005)
    np.testing.assert_allclose(theory.precision_bound(2.0, 3, kind="hoeffding"), 1 - np.exp(-3), rtol=1e-6)


@pytest.mark.parametrize("kind", theory.BOUNDS)
def test_no_bound_without_mu_above_one(kind):
    np.testing.assert_array_equal(
        theory.precision_bound(np.array([0.0, 0.7, 1.0]), 8, kind=kind), np.zeros(3)
    )


def test_unknown_bound_is_named_with_the_choices():
    with pytest.raises(ValueError, match=r"'chernoff'.*'paper', 'hoeffding'"):
        theory.precision_bound(1.5, 3, kind="chernoff")


@fast
@given(probabilities, probabilities, st.sampled_from([1, 3, 5, 8, 16]))
def test_exact_precision_is_above_hoeffding_is_above_paper(p_plus, p_minus, m):
    exact = float(theory.exact_precision(p_plus, p_minus, m))
    hoeffding = float(theory.precision_bound(p_plus + p_minus, m, kind="hoeffding"))
    paper = float(theory.precision_bound(p_plus + p_minus, m, kind="paper"))
    assert 0 <= paper <= hoeffding <= exact + 1e-5
    assert exact <= 1 + 1e-5


@pytest.mark.parametrize(
    "p_plus, p_minus", [(0.7, 0.8), (0.3, 0.4), (1.0, 0.6), (0.0, 1.0), (1.0, 1.0), (0.0, 0.0)]
)
def test_exact_precision_by_enumeration(p_plus, p_minus):
    total = 0.0
    for votes in itertools.product([-1, 1], repeat=6):
        chance = np.prod([p_plus if v == 1 else 1 - p_plus for v in votes[:3]])
        chance *= np.prod([p_minus if v == -1 else 1 - p_minus for v in votes[3:]])
        total += chance * (sum(votes[:3]) > sum(votes[3:]))
    assert float(theory.exact_precision(p_plus, p_minus, 3)) == pytest.approx(total, abs=1e-6)


def test_exact_precision_of_many_votes_stays_finite():
    assert float(theory.exact_precision(0.55, 0.55, 1000)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("m", [1, 3, 8])
def test_simulated_judge_meets_the_exact_precision(m):
    rng, p_plus, p_minus = np.random.default_rng(m), 0.8, 0.65
    outcome = np.tile([1, -1], (400, 4))
    right = rng.random((400, 8, 5, m)) < np.where(outcome > 0, p_plus, p_minus)[..., None, None]
    metrics = theory.theory_metrics(
        outcome, np.where(right, 1, -1) * outcome[..., None, None], np.ones((400, 8, 5), bool)
    )
    assert float(metrics["judge/p_plus"]) == pytest.approx(p_plus, abs=0.01)
    assert float(metrics["judge/p_minus"]) == pytest.approx(p_minus, abs=0.01)
    assert float(metrics["theory/precision"]) == pytest.approx(
        float(theory.exact_precision(p_plus, p_minus, m)), abs=0.02
    )
    assert metrics["theory/bound_paper"] < metrics["theory/bound_hoeffding"] < metrics["theory/precision"]


def test_importance_ratio_follows_the_success_rate():
    """Theorem 2: the ratio falls to 0 with the success rate and grows without bound with it."""
    outcome = np.where(np.arange(8) < np.arange(9)[:, None], 1, -1)  # 0 to 8 successes
    scores = np.broadcast_to(outcome[..., None, None], (9, 8, 2, 3))
    ratio = theory.importance_ratio(outcome, scores, np.ones((9, 8, 2), bool))
    successes = np.arange(8)
    np.testing.assert_allclose(ratio, [*np.sqrt(successes / (8 - successes)), np.inf], rtol=1e-6)


def test_importance_ratio_counts_a_long_failure_once():
    outcome, scores = np.array([[1, -1]]), np.array([[1, -1]])[..., None, None] * np.ones((1, 2, 6, 1))
    mask = np.arange(6) < np.array([[2], [6]])
    np.testing.assert_allclose(theory.importance_ratio(outcome, scores, mask[None]), [1.0])


def test_logged_ratio_is_the_median_over_tasks_with_both_outcomes():
    outcome = np.array(
        [[1, 1, 1, -1], [1, 1, -1, -1], [1, -1, -1, -1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    )
    scores = np.broadcast_to(outcome[..., None, None], (6, 4, 1, 3))
    mask = np.ones((6, 4, 1), bool)
    assert float(theory.theory_metrics(outcome, scores, mask)["theory/importance_ratio"]) == pytest.approx(1)
    one_sided = theory.theory_metrics(outcome[3:], scores[3:], mask[3:])
    assert float(one_sided["theory/importance_ratio"]) == 1024
    one_sided = theory.theory_metrics(-outcome[3:], -scores[3:], mask[3:])
    assert float(one_sided["theory/importance_ratio"]) == pytest.approx(1 / 1024)


@fast
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["any", "success", "failure", "empty"]),
    st.sampled_from([0.0, np.nan]),
)
def test_metrics_are_finite_and_masked_entries_have_no_influence(seed, kind, poison):
    outcome, scores, mask = batch_of(seed)
    outcome = {"success": np.ones_like(outcome), "failure": -np.ones_like(outcome)}.get(kind, outcome)
    mask = mask & (kind != "empty")
    metrics = theory.theory_metrics(outcome, scores, mask)
    for name, value in metrics.items():
        assert np.isfinite(value), name
    poisoned = theory.theory_metrics(
        np.where(mask.any(-1), outcome, poison), np.where(mask[..., None], scores, poison), mask
    )
    jax.tree.map(np.testing.assert_array_equal, metrics, poisoned)


@fast
@given(st.integers(0, 2**32 - 1), st.permutations(range(4)), st.permutations(range(3)))
def test_metrics_ignore_the_order_of_rollouts_and_votes(seed, rollouts, votes):
    outcome, scores, mask = batch_of(seed)
    permuted = outcome[:, rollouts], scores[:, rollouts][..., votes], mask[:, rollouts]
    for name, value in theory.theory_metrics(*permuted).items():
        assert float(value) == pytest.approx(
            float(theory.theory_metrics(outcome, scores, mask)[name]), rel=1e-5
        ), name


def test_no_votes_at_all_are_reported_at_chance():
    metrics = theory.theory_metrics(np.ones((1, 2)), np.zeros((1, 2, 2, 0)), np.ones((1, 2, 2), bool))
    assert float(metrics["judge/mu"]) == 1 and float(metrics["theory/bound_hoeffding"]) == 0
    json.dumps({name: float(value) for name, value in metrics.items()}, allow_nan=False)


@pytest.mark.parametrize(
    "mu, ratio, words",
    [
        (1.3, 1.0, []),
        (1.3, 4.0, []),
        (1.0, 0.25, ["judge/mu is 1.000"]),
        (1.5, 0.2, ["failures dominate"]),
        (0.8, 4.1, ["judge/mu is 0.800", "successes dominate"]),
    ],
)
def test_warnings_name_the_violated_assumption(mu, ratio, words):
    warnings = theory.warnings_for({"judge/mu": mu, "theory/importance_ratio": ratio})
    assert len(warnings) == len(words)
    for warning, word in zip(warnings, words, strict=True):
        assert word in warning


def test_mu_and_m_do_not_recompile():
    sizes = []
    for mu, m in [(1.1, 3), (1.7, 5), (0.4, 8)]:
        theory.precision_bound(mu, m, kind="paper")
        sizes.append(theory.precision_bound._cache_size())
    assert sizes[0] == sizes[1] == sizes[2]
