"""Stretched rotary embeddings: frequencies worked out by hand, and what each kind leaves alone."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.models.rope import RopeScaling, frequencies, rope, yarn_magnitude

# theta = 10 ** 4 and four frequencies: 1, 0.1, 0.01, 0.001 radians a position
PLAIN = np.array([1.0, 0.1, 0.01, 0.001])


def turned(scaling: RopeScaling | None) -> np.ndarray:
    return np.asarray(frequencies(4, 1e4, scaling))


def test_plain_frequencies_fall_by_the_same_ratio() -> None:
    np.testing.assert_allclose(turned(None), PLAIN, rtol=1e-6)


def test_linear_divides_all() -> None:
    np.testing.assert_allclose(turned(RopeScaling("linear", 4.0)), PLAIN / 4, rtol=1e-6)


def test_llama3_keeps_the_fast_divides_the_slow_and_blends_between() -> None:
    # Over 200 pi positions the four turn 100, 10, 1 and 0.1 times; 10 lies halfway between 5 and 15.
    scaling = RopeScaling("llama3", 8.0, round(200 * math.pi), 5.0, 15.0)
    got = turned(scaling)
    turns = scaling.original_context * 0.1 / (2 * math.pi)
    kept = (turns - 5) / 10
    assert kept == pytest.approx(0.5, abs=1e-3)
    expected = [1.0, kept * 0.1 + (1 - kept) * 0.1 / 8, 0.01 / 8, 0.001 / 8]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_yarn_ramps_over_dimensions() -> None:
    # 10 ** k turns over 2 pi 10 ** 4 positions belong to dimension 4 - k: the ramp goes from dimension 1 to 3.
    context = round(2e4 * math.pi)
    scaling = RopeScaling("yarn", 4.0, context, beta_fast=1000.0, beta_slow=10.0, truncate=False)
    np.testing.assert_allclose(turned(scaling), PLAIN * [1, 1, (1 + 1 / 4) / 2, 1 / 4], rtol=1e-4)


def test_yarn_truncates_its_ramp_to_whole_dimensions() -> None:
    # from dimension 1.75 to 2.5, which dimension 2 is a third into; truncated, from 1 to 3
    options = {"beta_fast": 10**2.25, "beta_slow": 10**1.5}
    context = round(2e4 * math.pi)
    exact = RopeScaling("yarn", 4.0, context, **options, truncate=False)
    np.testing.assert_allclose(turned(exact), PLAIN * [1, 1, 2 / 3 + 1 / 12, 1 / 4], rtol=1e-4)
    np.testing.assert_allclose(
        turned(RopeScaling("yarn", 4.0, context, **options)), PLAIN * [1, 1, 5 / 8, 1 / 4], rtol=1e-4
    )


def test_yarn_makes_queries_and_keys_longer() -> None:
    scaling = RopeScaling("yarn", 4.0, 16)
    assert scaling.magnitude == pytest.approx(0.1 * math.log(4) + 1)
    assert RopeScaling("yarn", 4.0, 16, attention_factor=0.7).magnitude == 0.7
    assert RopeScaling("linear", 4.0).magnitude == 1.0
    x = np.random.default_rng(0).normal(size=(1, 3, 1, 8)).astype(np.float32)
    length = np.linalg.norm(rope(x, np.arange(3)[None], 1e4, scaling), axis=-1)
    np.testing.assert_allclose(length, scaling.magnitude * np.linalg.norm(x, axis=-1), rtol=1e-5)


def test_yarn_magnitude_of_no_stretch_is_one() -> None:
    assert yarn_magnitude(1.0, 3.0) == 1.0
    assert yarn_magnitude(math.e, 2.0) == pytest.approx(1.2)


@settings(deadline=None, max_examples=20)
@given(
    kind=st.sampled_from(["linear", "llama3", "yarn"]),
    factor=st.floats(1.0, 64.0),
    context=st.integers(8, 1 << 16),
)
def test_no_frequency_leaves_the_range_between_plain_and_divided(
    kind: str, factor: float, context: int
) -> None:
    plain, got = turned(None), turned(RopeScaling(kind, factor, context))
    assert (got <= plain * (1 + 1e-5)).all()
    assert (got >= plain / factor * (1 - 1e-5)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "dynamic"}, "rope_scaling.kind='dynamic' is unknown; choose from linear, llama3, yarn"),
        ({"factor": 0.0}, "rope_scaling.factor=0.0 must be positive"),
        ({"original_context": 0}, "rope_scaling.original_context=0 must be at least 1 for yarn"),
        ({"low_frequency_factor": 4.0}, "low_frequency_factor=4.0 must be positive and below"),
        ({"beta_slow": 40.0}, "beta_slow=40.0 must be positive and below beta_fast=32.0"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RopeScaling(**{"kind": "yarn", "factor": 2.0, "original_context": 8} | options)
