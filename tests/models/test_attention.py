"""Attention against a loop over queries, and the softmax that is put together from two parts."""

import numpy as np
import pytest
from jax import numpy as jnp

from rlanything_jax.models.attention import attend, attend_part, merge_parts, within

B, T, S, N, K, H = 2, 3, 10, 4, 2, 6


@pytest.fixture
def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    q = rng.normal(size=(B, T, N, H)).astype(np.float32)
    k, v = (rng.normal(size=(B, K, S, H)).astype(np.float32) for _ in range(2))
    mask = rng.random((B, T, S)) < 0.5
    mask[..., 0] = True  # every query sees something
    mask[0, 0] = [True] * 4 + [False] * 6  # nothing in the second half
    mask[0, 1] = [False] * 6 + [True] * 4  # nothing in the first half
    return q, k, v, mask


def naive(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One query and one head at a time; query head n reads key head n // (N / K)."""
    out = np.zeros_like(q)
    for b, t, n in np.ndindex(B, T, N):
        seen, group = mask[b, t], n // (N // K)
        scores = k[b, group, seen] @ q[b, t, n] / np.sqrt(H)
        weights = np.exp(scores - scores.max())
        out[b, t, n] = weights @ v[b, group, seen] / weights.sum()
    return out


def test_attend_is_a_softmax_over_the_keys_that_the_mask_shows(inputs) -> None:
    np.testing.assert_allclose(attend(*inputs), naive(*inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cut", [1, 5])
def test_two_parts_merge_to_the_softmax_over_their_union(inputs, cut: int) -> None:
    q, k, v, mask = inputs
    left = attend_part(q, k[:, :, :cut], v[:, :, :cut], mask[..., :cut])
    right = attend_part(q, k[:, :, cut:], v[:, :, cut:], mask[..., cut:])
    np.testing.assert_allclose(merge_parts(left, right), naive(*inputs), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(merge_parts(right, left), merge_parts(left, right), rtol=1e-5, atol=1e-6)


def test_large_scores_do_not_overflow(inputs) -> None:
    q, k, v, mask = inputs
    parts = [attend_part(400 * q, k[:, :, s], v[:, :, s], mask[..., s]) for s in (slice(5), slice(5, None))]
    np.testing.assert_allclose(merge_parts(*parts), naive(400 * q, k, v, mask), rtol=1e-4, atol=1e-4)


def test_a_query_that_sees_nothing_gets_a_finite_mean(inputs) -> None:
    q, k, v, mask = inputs
    out = attend(q, k, v, jnp.zeros_like(mask))
    expected = np.repeat(v.mean(axis=2), N // K, axis=1)[:, None]  # of its own key head
    np.testing.assert_allclose(out, np.broadcast_to(expected, out.shape), rtol=1e-5, atol=1e-6)


def test_a_window_counts_the_position_itself() -> None:
    position = np.array([0, 1, 2, 3, 2, 3])  # a trunk of four, and a branch that left it after two
    mask = np.tril(np.ones((6, 6), bool))
    np.testing.assert_array_equal(
        within(mask, position, position, 2).astype(int),
        [
            [1, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0],
            [0, 1, 1, 0, 0, 0],
            [0, 0, 1, 1, 0, 0],
            [0, 1, 1, 1, 1, 0],
            [0, 0, 1, 1, 1, 1],
        ],
    )
