"""Branches of a shared trunk against one call of the sampler for each, on the concatenated text."""

import numpy as np
import pytest

from rlanything_jax.models import ModelConfig, Params, decoder
from rlanything_jax.sampler import (
    Sampled,
    Sampling,
    Sessions,
    decode,
    decode_branches,
    extend,
    new_sessions,
    pad_rows,
)
from rlanything_jax.sampler.branches import QUESTION_AT_ONCE

CAPACITY, CHUNK = 24, 5
RNG = np.random.default_rng(0)
TRUNKS = [RNG.integers(3, 280, n).tolist() for n in (20, 9)]
QUESTION = np.array([2, 77], np.int32)
POINT = np.array([[4, 12, 12, 20], [9, 0, 3, 5]], np.int32)
TEMPERATURE = np.array([1.0, 0.0, 1.5, 0.7, 1.0, 1.0, 2.0, 0.5], np.float32)


def sampling(**changes: np.ndarray) -> Sampling:
    default = Sampling(
        temperature=TEMPERATURE,
        budget=np.full(8, CHUNK, np.int32),
        stop=np.full((8, 1), -1, np.int32),
        request=np.arange(8, dtype=np.uint32) + 40,
        seed=np.uint32(3),
    )
    return default._replace(**changes)


def read_trunks(params: Params, model: ModelConfig, trunks: list[list[int]] = TRUNKS) -> Sessions:
    tokens, count = pad_rows(trunks, CAPACITY)
    return extend(params, model, new_sessions(model, len(trunks), CAPACITY), tokens, count)


def branches(params: Params, model: ModelConfig, trunk: Sessions, how: Sampling) -> Sampled:
    out = decode_branches(params, model, trunk, POINT, QUESTION, how, CHUNK)
    return Sampled(*map(np.asarray, out))


@pytest.fixture(scope="module")
def trunk(params: Params, model: ModelConfig) -> Sessions:
    return read_trunks(params, model)


@pytest.fixture(scope="module")
def sampled(params: Params, model: ModelConfig, trunk: Sessions) -> Sampled:
    return branches(params, model, trunk, sampling())


def test_branches_equal_one_call_of_the_sampler_for_each(
    params: Params, model: ModelConfig, sampled: Sampled
) -> None:
    """Tokens and log-probabilities, at any branch point: none of the trunk, some, all."""
    texts = [TRUNKS[b][: POINT[b, r]] + QUESTION.tolist() for b in range(2) for r in range(4)]
    tokens, count = pad_rows(texts, CAPACITY)
    sessions = extend(params, model, new_sessions(model, 8, CAPACITY + CHUNK), tokens, count)
    _, naive = decode(params, model, sessions, sampling(), CHUNK)
    np.testing.assert_array_equal(sampled.tokens, naive.tokens)
    np.testing.assert_allclose(sampled.logprobs, naive.logprobs, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(sampled.count, [CHUNK] * 8)


def test_a_branch_does_not_see_the_trunk_behind_its_point(
    params: Params, model: ModelConfig, sampled: Sampled
) -> None:
    cut = [TRUNKS[0][:12] + [99] * 8, TRUNKS[1][:5] + [98] * 4]
    again = branches(params, model, read_trunks(params, model, cut), sampling())
    unseen = (POINT <= [[12], [5]]).reshape(-1)
    np.testing.assert_array_equal(again.tokens[unseen], sampled.tokens[unseen])
    np.testing.assert_allclose(again.logprobs[unseen], sampled.logprobs[unseen], rtol=1e-5, atol=1e-5)
    assert (np.abs(again.logprobs - sampled.logprobs)[~unseen].max(axis=1) > 1e-3).all()


def test_a_branch_does_not_depend_on_the_others(
    params: Params, model: ModelConfig, trunk: Sessions, sampled: Sampled
) -> None:
    kept = np.array([True, False, False, True, False, True, False, False])
    alone = branches(params, model, trunk, sampling(budget=np.where(kept, CHUNK, 0).astype(np.int32)))
    np.testing.assert_array_equal(alone.count, np.where(kept, CHUNK, 0))
    np.testing.assert_array_equal(alone.tokens[kept], sampled.tokens[kept])
    np.testing.assert_allclose(alone.logprobs[kept], sampled.logprobs[kept], rtol=1e-5, atol=1e-5)
    assert not alone.tokens[~kept].any() and not alone.logprobs[~kept].any()


def test_stop_ids_end_their_branch_and_are_kept(
    params: Params, model: ModelConfig, trunk: Sessions, sampled: Sampled
) -> None:
    stop = sampled.tokens[np.arange(8), np.arange(8) % CHUNK, None].astype(np.int32)
    stopped = branches(params, model, trunk, sampling(stop=stop))
    for row in range(8):
        n = sampled.tokens[row].tolist().index(stop[row, 0]) + 1
        assert stopped.count[row] == n
        np.testing.assert_array_equal(stopped.tokens[row, :n], sampled.tokens[row, :n])
        assert not stopped.tokens[row, n:].any()


def test_n_votes_with_a_fixed_seed_are_identical(
    params: Params, model: ModelConfig, trunk: Sessions, sampled: Sampled
) -> None:
    """Case 9: votes on one step differ by request; the same request gives the same vote."""
    how = sampling(temperature=np.ones(8, np.float32), request=np.array([1, 2, 3, 4, 5, 5, 5, 5], np.uint32))
    out = branches(params, model, trunk, how)
    assert (out.tokens[1] != out.tokens[2]).any()  # both leave the first trunk after 12 tokens
    same = sampling(temperature=np.ones(8, np.float32), request=np.array([1, 2, 2, 4] * 2, np.uint32))
    out = branches(params, model, trunk, same)
    np.testing.assert_array_equal(out.tokens[1], out.tokens[2])


def test_each_new_budget_temperature_or_point_recompiles(
    params: Params, model: ModelConfig, trunk: Sessions, sampled: Sampled
) -> None:
    compiled = decode_branches._cache_size()
    for i, budget in enumerate((0, 1, 3, 9)):
        how = sampling(
            budget=np.full(8, budget, np.int32),
            temperature=TEMPERATURE + i,
            stop=np.full((8, 1), i, np.int32),
            seed=np.uint32(i),
        )
        out = decode_branches(params, model, trunk, (POINT + i) % 9, QUESTION + i, how, CHUNK)
        assert (np.asarray(out.count) <= min(budget, CHUNK)).all()
    assert decode_branches._cache_size() == compiled


@pytest.mark.parametrize("length", [QUESTION_AT_ONCE, QUESTION_AT_ONCE + 3, 2 * QUESTION_AT_ONCE])
def test_a_long_question_is_read_in_pieces(
    params: Params, model: ModelConfig, trunk: Sessions, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    question = np.arange(5, 5 + length, dtype=np.int32)

    def ask() -> Sampled:
        out = decode_branches(params, model, trunk, POINT, question, sampling(), CHUNK)
        return Sampled(*map(np.asarray, out))

    whole = ask()
    monkeypatch.setattr(decoder, "SCORES_AT_ONCE", 0)
    decode_branches.clear_cache()
    pieces = ask()
    decode_branches.clear_cache()
    np.testing.assert_array_equal(pieces.tokens, whole.tokens)
    np.testing.assert_allclose(pieces.logprobs, whole.logprobs, rtol=1e-5, atol=1e-5)
