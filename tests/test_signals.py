"""Signals for the judge: small tables by hand, and what must hold for any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax import signals
from rlanything_jax.signals import anchored_credit, judge_signal, relative_outcome, repeated

# One task, three rollouts of at most three steps: a success in two steps, a failure in three, one that was lost.
OUTCOME = np.array([[1, -1, -1]])
STATE = np.array([[[0, 1, 2, -1], [0, 1, 1, 0], [-1, -1, -1, -1]]])
MASK = np.array([[[True, True, False], [True, True, True], [False, False, False]]])


def test_a_step_back_is_repeated_and_a_step_on_is_not() -> None:
    expected = [[[False, False, False], [False, True, True], [False, False, False]]]
    np.testing.assert_array_equal(repeated(STATE, MASK), expected)


def test_the_relative_outcome_is_standardised_over_rollouts_with_steps() -> None:
    np.testing.assert_allclose(relative_outcome(OUTCOME, MASK), [[1, -1, 0]])
    np.testing.assert_array_equal(relative_outcome(np.array([[1, 1, 1]]), MASK), [[0, 0, 0]])


def test_credit_by_hand() -> None:
    """Two rollouts were in 0 and 1, one of them won: V(0) = .95 / 2 from two steps ahead, V(1) = 1 / 2 from one."""
    v0, v1 = 0.95 / 2, 1 / 2
    expected = [[[0.95 * v1 - v0, 0.95 - v1, 0], [0.95 * v1 - v0, 0.95 * v1 - v1, 0.95 * v0 - v1], [0, 0, 0]]]
    np.testing.assert_allclose(anchored_credit(OUTCOME, STATE, MASK), expected, atol=1e-6)


def test_the_outcome_comes_as_it_is() -> None:
    expected = [[[1, 1, 0], [-1, -1, -1], [0, 0, 0]]]
    np.testing.assert_array_equal(judge_signal(OUTCOME, STATE, MASK, kind="outcome"), expected)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("balanced", [[5 / 2, 5 / 2, 0], [-5 / 3, -5 / 3, -5 / 3]]),
        ("relative", [[1, 1, 0], [-1, -1, -1]]),
        ("discounted", [[2 / 3, 2 / 3, 0], [-1 / 2, -1 / 2, -1 / 2]]),
        ("repetition", [[1, 1, 0], [1, -1, -1]]),
        ("evidence", [[1.5, 1.5, 0], [0.5, -1.5, -1.5]]),
        ("agreement", [[1, 1, 0], [0, -1, -1]]),
        ("sifted", [[1, 1, 0], [0, -1, -1]]),
        ("anchored", [[1, 1, 0], [-1, -1, -1]]),
    ],
)
def test_the_others_are_centred(kind: str, raw: list[list[float]]) -> None:
    expected = np.array([[*raw, [0, 0, 0]]], np.float64)
    given = expected != 0
    expected[given] -= expected[given].mean()
    expected[given] /= np.sqrt(np.mean(expected[given] ** 2))
    np.testing.assert_allclose(judge_signal(OUTCOME, STATE, MASK, kind=kind), expected, atol=1e-5)


@settings(deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(signals.SIGNALS))
def test_what_does_not_exist_has_no_signal_and_no_influence(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    q, n, t = 2, 3, 4
    mask = np.arange(t) < rng.integers(0, t + 1, (q, n, 1))
    outcome = np.where(mask.any(-1), rng.choice([-1, 1], (q, n)), -1)
    state = np.where(
        np.pad(mask, ((0, 0), (0, 0), (1, 0)), mode="edge"), rng.integers(0, 4, (q, n, t + 1)), -1
    )
    signal = np.asarray(judge_signal(outcome, state, mask, kind=kind))
    assert np.isfinite(signal).all()
    assert not signal[~mask].any()
    assert np.abs(signal).max() <= signals.LARGEST
    elsewhere = np.where(state < 0, 7, state)
    np.testing.assert_allclose(judge_signal(outcome, elsewhere, mask, kind=kind), signal, atol=1e-6)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="unknown signal 'hope': set it to one of 'outcome'"):
        judge_signal(OUTCOME, STATE, MASK, kind="hope")
