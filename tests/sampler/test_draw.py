"""Top-k, top-p and temperature against the distribution written out by sorting."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.sampler import Sampling
from rlanything_jax.sampler.draw import draw, least_kept

V = 37  # no multiple of the pieces
ROWS = 4


def how(requests: np.ndarray, temperature: float, top_k: int, top_p: float, seed: int = 0) -> Sampling:
    n = len(requests)
    return Sampling(
        temperature=np.full(n, temperature, np.float32),
        budget=np.ones(n, np.int32),
        stop=np.full((n, 1), -1, np.int32),
        request=requests.astype(np.uint32),
        seed=np.uint32(seed),
        top_k=np.full(n, top_k, np.int32),
        top_p=np.full(n, top_p, np.float32),
    )


def by_sorting(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """Probabilities [V]: the top k, of these the likeliest with mass top_p together, all ties kept."""
    x = logits.astype(np.float64) / temperature
    p = np.exp(x - x.max())
    p /= p.sum()
    if 0 < top_k < len(p):
        p[p < np.sort(p)[-top_k]] = 0
    if top_p < 1:
        falling = np.sort(p)[::-1]
        enough = np.searchsorted(np.cumsum(falling), top_p * p.sum())
        p[p < falling[min(enough, len(p) - 1)]] = 0
    return p / p.sum()


sample = jax.jit(draw)


@pytest.mark.parametrize("top_k, top_p", [(0, 1.0), (3, 1.0), (0, 0.6), (7, 0.8), (1, 0.5), (V + 9, 0.999)])
def test_the_share_of_samples_follows_the_cut_distribution(top_k: int, top_p: float) -> None:
    n, logits = 4096, np.random.default_rng(0).normal(0, 1.5, V).astype(np.float32)
    out = sample(np.tile(logits, (n, 1)), how(np.arange(n), 0.7, top_k, top_p), np.full(n, 3))
    p = by_sorting(logits, 0.7, top_k, top_p)
    share = np.bincount(out.token, minlength=V) / n
    assert not share[p == 0].any()
    assert (np.abs(share - p) <= 4 * np.sqrt(p * (1 - p) / n) + 1e-9).all()
    np.testing.assert_allclose(out.logprob, np.log(p[out.token]), rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.integers(0, V + 3),
    st.floats(0.0, 1.0, width=32),
    st.booleans(),
)
def test_recorded_logprobs_are_of_what_was_sampled_and_the_rest_leads_back_to_the_softmax(
    seed: int, temperature: float, top_k: int, top_p: float, ties: bool
) -> None:
    """Case 12, with a cut distribution: a trainer knows the softmax alone, and `kept` is the difference."""
    logits = np.random.default_rng(seed).normal(0, 2, (ROWS, V)).astype(np.float32)
    logits = np.round(logits) if ties else logits
    out = sample(logits, how(np.arange(ROWS), temperature, top_k, top_p, seed), np.arange(ROWS))
    for row in range(ROWS):
        token = int(out.token[row])
        if temperature == 0:
            assert token == logits[row].argmax()
            assert out.logprob[row] == out.kept[row] == 0
            continue
        full = by_sorting(logits[row], temperature, 0, 1.0)
        kept = np.exp(float(out.kept[row]))
        assert 0 < kept <= 1 + 1e-6
        assert float(out.logprob[row] + out.kept[row]) == pytest.approx(np.log(full[token]), abs=1e-4)
        # The sampled token is among the likeliest that are kept.
        assert full[full > full[token] * (1 + 1e-5)].sum() <= kept + 1e-5
        if top_k:
            assert (full > full[token] * (1 + 1e-5)).sum() < top_k


def test_the_least_kept_logit_is_found_exactly() -> None:
    logits = np.array([[3.0, -1.0, 2.0, 2.0, -7.5, 0.0]] * 3, np.float32)
    top_k, top_p = np.array([2, 0, 4], np.int32), np.array([1, 0.5, 0], np.float32)
    least, mass = jax.jit(least_kept)(logits, np.ones(3, np.float32), top_k, top_p)
    # The second and third likeliest are tied; 3.0 alone has more than half of the mass; no mass still keeps one token.
    np.testing.assert_array_equal(least, [2.0, 3.0, 3.0])
    p = by_sorting(logits[0], 1.0, 0, 1.0)
    np.testing.assert_allclose(mass, np.log([p[0] + p[2] + p[3], p[0], p[0]]), rtol=1e-5)


def test_a_new_top_k_or_top_p_recompiles_nothing() -> None:
    logits = np.zeros((ROWS, V), np.float32)
    sample(logits, how(np.arange(ROWS), 1.0, 0, 1.0), np.arange(ROWS))
    compiled = sample._cache_size()
    for top_k, top_p in [(1, 1.0), (5, 0.2), (0, 0.0), (V, 0.7)]:
        sample(logits, how(np.arange(ROWS), 1.0, top_k, top_p), np.arange(ROWS))
    assert sample._cache_size() == compiled


def test_a_draw_does_not_depend_on_its_row_or_neighbours() -> None:
    logits = np.random.default_rng(1).normal(0, 1, (ROWS, V)).astype(np.float32)
    requests, order = np.array([5, 9, 5, 7]), [2, 0, 3, 1]
    here = sample(logits, how(requests, 1.0, 9, 0.9), np.array([1, 2, 1, 1]))
    there = sample(logits[order], how(requests[order], 1.0, 9, 0.9), np.array([1, 2, 1, 1])[order])
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(np.asarray(a)[order], b)
