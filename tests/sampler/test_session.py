"""Sessions over a cache against a model that reads the whole text anew for every token.

Not applicable here: a resumed partial rollout that exceeds the response budget (case 11), since a response is
one call of `decode` and its budget counts from the call; image placeholders (case 30), since there are no
images.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import pytest

from rlanything_jax.models import ModelConfig, Params, decoder, logits
from rlanything_jax.sampler import Sampling, Sessions, bucket, decode, extend, new_sessions, pad_rows, select
from rlanything_jax.sampler.draw import draw

WIDTH, CHUNK, CAPACITY = 6, 6, 48  # few shapes: each is compiled
SMALL = 11  # a capacity that a first turn can fill
LENGTH = 48  # of the texts that the cache-free model reads


@dataclasses.dataclass
class Row:
    """One session: what it reads before each turn, and how it samples."""

    observations: list[list[int]]
    temperature: float = 1.0
    budget: int = 5
    request: int = 0
    stop: int = -1


@dataclasses.dataclass
class Played:
    text: list[int]
    logprobs: list[float]  # 0 where a token was read
    turns: list[list[int]]


def sampling(rows: Sequence[Row], seed: int = 0, budgets: Sequence[int] | None = None) -> Sampling:
    return Sampling(
        temperature=np.array([r.temperature for r in rows], np.float32),
        budget=np.array([r.budget for r in rows] if budgets is None else budgets, np.int32),
        stop=np.array([[r.stop, -1] for r in rows], np.int32),
        request=np.array([r.request for r in rows], np.uint32),
        seed=np.uint32(seed),
    )


def read(
    params: Params, model: ModelConfig, sessions: Sessions, texts: Sequence[list[int] | None], pad: int = 0
) -> Sessions:
    """None leaves a row alone."""
    tokens, count = pad_rows([text or [] for text in texts], WIDTH)
    tokens = np.where(np.arange(WIDTH) < count[:, None], tokens, pad)
    count[[text is None for text in texts]] = -1
    return extend(params, model, sessions, tokens, count)


def act(
    params: Params, model: ModelConfig, sessions: Sessions, how: Sampling, chunk: int = CHUNK
) -> tuple[Sessions, list[tuple[list[int], list[float]]]]:
    sessions, out = decode(params, model, sessions, how, chunk)
    tokens, logprobs, count, _ = (np.asarray(x) for x in out)
    return sessions, [
        (t[:n].tolist(), p[:n].tolist()) for t, p, n in zip(tokens, logprobs, count, strict=True)
    ]


def play(
    params: Params,
    model: ModelConfig,
    rows: Sequence[Row],
    *,
    capacity: int = CAPACITY,
    chunk: int = CHUNK,
    seed: int = 0,
    pad: int = 0,
) -> list[Played]:
    sessions = new_sessions(model, len(rows), capacity)
    played = [Played([], [], []) for _ in rows]
    for turn in range(max(len(r.observations) for r in rows)):
        texts = [r.observations[turn] if turn < len(r.observations) else None for r in rows]
        sessions = read(params, model, sessions, texts, pad)
        budgets = [0 if text is None else r.budget for r, text in zip(rows, texts, strict=True)]
        sessions, sampled = act(params, model, sessions, sampling(rows, seed, budgets), chunk)
        for row, text, (tokens, logprobs) in zip(played, texts, sampled, strict=True):
            row.text += [*(text or []), *tokens]
            row.logprobs += [*[0.0] * len(text or []), *logprobs]
            row.turns.append(tokens)
    return played


def cache_free(params: Params, model: ModelConfig, texts: Sequence[list[int]]) -> np.ndarray:
    """Logits of the token behind each position, [B,S,V]."""
    tokens = np.zeros((len(texts), LENGTH), np.int32)
    mask = np.zeros((len(texts), LENGTH), bool)
    for i, text in enumerate(texts):
        tokens[i, : len(text)], mask[i, : len(text)] = text, True
    return np.asarray(logits(params, model, tokens, mask), np.float64)


def log_softmax(x: np.ndarray) -> np.ndarray:
    top = x.max(-1, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(-1, keepdims=True))


def texts(seed: int, *lengths: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 280, n).tolist() for n in lengths]


ROWS = [
    Row(texts(1, 5, 2, 4), 1.0, request=11),
    Row(texts(2, 2, 6), 0.6, request=12, budget=6),  # its episode is over after two turns
    Row(texts(3, 6, 1, 3), 1.7, request=13, budget=1),
]


@pytest.fixture(scope="module")
def played(params: Params, model: ModelConfig) -> list[Played]:
    return play(params, model, ROWS)


def assert_same(a: Played, b: Played) -> None:
    assert a.text == b.text
    np.testing.assert_allclose(a.logprobs, b.logprobs, rtol=1e-5, atol=1e-5)


def test_logprobs_ignore_temperature(stacked: Params, model: ModelConfig, played: list[Played]) -> None:
    """Case 12: over several turns, the recorded ones are the cache-free model's at the row's temperature."""
    scores = cache_free(stacked, model, [p.text for p in played])
    for row, result, logits_of_row in zip(ROWS, played, scores, strict=True):
        logp = log_softmax(logits_of_row / row.temperature)
        read_positions = [i for i, p in enumerate(result.logprobs) if p]
        assert len(read_positions) == sum(map(len, result.turns)) == row.budget * len(row.observations)
        for i in read_positions:
            assert result.logprobs[i] == pytest.approx(logp[i - 1, result.text[i]], rel=1e-5, abs=1e-5)


def test_greedy_takes_the_likeliest_token_of_the_cache_free_model(
    params: Params, stacked: Params, model: ModelConfig
) -> None:
    rows = [dataclasses.replace(r, temperature=0.0) for r in ROWS]
    played = play(params, model, rows)
    likeliest = cache_free(stacked, model, [p.text for p in played]).argmax(-1)
    for row, result, best in zip(rows, played, likeliest, strict=True):
        sampled = np.concatenate([[False] * len(o) + [True] * row.budget for o in row.observations])
        assert [t for t, new in zip(result.text, sampled, strict=True) if new] == [
            best[i - 1] for i, new in enumerate(sampled) if new
        ]
        assert result.logprobs == [0.0] * len(result.text)  # a policy without randomness


def test_the_share_of_samples_follows_the_distribution() -> None:
    """Frequencies over 4096 requests at each of two temperatures, against the softmax."""
    n, scores = 4096, np.array([2.0, 1.0, 0.0, -1.0, -3.0], np.float32)
    for temperature in (0.5, 2.0):
        how = sampling([Row([], temperature, request=i) for i in range(n)])
        token, logprob, _ = jax.jit(draw)(np.tile(scores, (n, 1)), how, np.full(n, 7))
        expected = log_softmax(scores / temperature)
        np.testing.assert_allclose(logprob, expected[token], rtol=1e-5, atol=1e-5)
        share, p = np.bincount(token, minlength=5) / n, np.exp(expected)
        assert (np.abs(share - p) < 4 * np.sqrt(p * (1 - p) / n)).all()


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 1, 2, 0]], ids=["other slots", "other batch size"])
def test_a_row_does_not_depend_on_its_slot_or_batch(
    params: Params, model: ModelConfig, played: list[Played], order: list[int]
) -> None:
    for i, result in zip(order, play(params, model, [ROWS[i] for i in order]), strict=True):
        assert_same(result, played[i])


def test_a_row_does_not_depend_on_its_neighbours(
    params: Params, model: ModelConfig, played: list[Played]
) -> None:
    other = Row(texts(9, 1, 5, 6), 0.3, request=99, budget=3)
    assert_same(play(params, model, [other, ROWS[1], other])[1], played[1])


@pytest.mark.parametrize("options", [{"capacity": 64, "chunk": 9}, {"pad": 279}], ids=str)
def test_a_row_does_not_depend_on_capacity_chunk_or_what_stands_at_padding(
    params: Params, model: ModelConfig, played: list[Played], options: dict
) -> None:
    for result, expected in zip(play(params, model, ROWS, **options), played, strict=True):
        assert_same(result, expected)


def test_growing_forking_and_compacting_change_no_row(
    params: Params, model: ModelConfig, played: list[Played]
) -> None:
    sessions = read(params, model, new_sessions(model, 3, SMALL), [r.observations[0] for r in ROWS])
    order = [2, 0, 0]  # row 1 leaves, row 0 is forked
    rows = [ROWS[i] for i in order]
    sessions, first = act(params, model, select(sessions, np.array(order), SMALL), sampling(rows))
    assert [tokens for tokens, _ in first] == [played[i].turns[0] for i in order]
    sessions = select(sessions, np.array([2, 0, 1]), CAPACITY)
    rows = [ROWS[0], ROWS[2], ROWS[0]]
    for turn in (1, 2):
        sessions = read(params, model, sessions, [r.observations[turn] for r in rows])
        sessions, sampled = act(params, model, sessions, sampling(rows))
        assert [tokens for tokens, _ in sampled] == [played[i].turns[turn] for i in (0, 2, 0)]


def test_a_budget_of_zero_leaves_the_row_untouched(params: Params, model: ModelConfig) -> None:
    sessions = read(params, model, new_sessions(model, 3, CAPACITY), [r.observations[0] for r in ROWS])
    sessions, _ = act(params, model, sessions, sampling(ROWS))
    before = jax.tree.map(np.array, sessions)
    sessions = read(params, model, sessions, [ROWS[0].observations[1], None, ROWS[2].observations[1]])
    sessions, sampled = act(params, model, sessions, sampling(ROWS, budgets=[5, 0, 1]))
    assert [len(tokens) for tokens, _ in sampled] == [5, 0, 1]
    after = jax.tree.map(np.array, sessions)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(a[1], b[1])
    assert before.pending[1] and before.length[1] < after.length[0]


def test_a_row_that_is_left_alone_keeps_the_sampled_token_that_waits(
    params: Params, model: ModelConfig, played: list[Played]
) -> None:
    sessions = read(params, model, new_sessions(model, 3, CAPACITY), [r.observations[0] for r in ROWS])
    sessions, _ = act(params, model, sessions, sampling(ROWS))
    length, last = np.array(sessions.length), np.array(sessions.last)
    for _ in range(2):
        sessions = read(params, model, sessions, [None, None, None])
    np.testing.assert_array_equal(sessions.length, length)
    np.testing.assert_array_equal(sessions.last, last)
    assert np.asarray(sessions.pending).all()
    sessions = read(params, model, sessions, [r.observations[1] for r in ROWS])
    _, sampled = act(params, model, sessions, sampling(ROWS))
    assert [tokens for tokens, _ in sampled] == [p.turns[1] for p in played]


def test_behind_an_empty_observation_a_turn_goes_on(
    params: Params, model: ModelConfig, played: list[Played]
) -> None:
    """So do the chunks of one response: what it says does not depend on how many tokens a call samples."""
    sessions = read(params, model, new_sessions(model, 3, CAPACITY), [r.observations[0] for r in ROWS])
    pieces = []
    for budgets in ([2, 2, 1], [1, 3, 0], [2, 1, 0]):
        sessions, sampled = act(params, model, sessions, sampling(ROWS, budgets=budgets))
        pieces.append([tokens for tokens, _ in sampled])
        sessions = read(params, model, sessions, [[], [], None])
    assert [sum(tokens, []) for tokens in zip(*pieces, strict=True)] == [p.turns[0] for p in played]
    assert np.asarray(sessions.pending).tolist() == [False, False, True]


def test_eos_captured_at_trace_time(params: Params, model: ModelConfig, played: list[Played]) -> None:
    """The stop id is kept and ends the turn; another call has another, in the same compiled program."""
    compiled = decode._cache_size()
    for i, place in [(0, 1), (0, 3), (1, 2), (1, 0)]:
        first_turn = played[i].turns[0]
        stop = first_turn[place]
        rows = [dataclasses.replace(r, stop=stop if j == i else -1) for j, r in enumerate(ROWS)]
        turns = [p.turns[0] for p in play(params, model, rows)]
        assert turns[i] == first_turn[: first_turn.index(stop) + 1]
        assert [t for j, t in enumerate(turns) if j != i] == [
            p.turns[0] for j, p in enumerate(played) if j != i
        ]
    assert decode._cache_size() == compiled


def test_any_of_several_stop_ids_ends_a_turn(
    params: Params, model: ModelConfig, played: list[Played]
) -> None:
    sessions = read(params, model, new_sessions(model, 3, CAPACITY), [r.observations[0] for r in ROWS])
    ids = [played[0].turns[0][2], played[1].turns[0][3]]
    how = sampling(ROWS)._replace(stop=np.array([ids] * 3, np.int32))
    _, sampled = act(params, model, sessions, how)
    for (tokens, _), p in zip(sampled, played, strict=True):
        turn = p.turns[0]
        end = min([turn.index(i) for i in ids if i in turn], default=len(turn) - 1)
        assert tokens == turn[: end + 1]
    assert len(sampled[0][0]) <= 3 and len(sampled[1][0]) <= 4


def test_one_decode_step_too_many_past_the_buffer(
    params: Params, model: ModelConfig, played: list[Played]
) -> None:
    """Case 8: an action whose budget ends on the last slot, or beyond it, fills the cache and stops there."""
    lengths = [len(r.observations[0]) for r in ROWS]
    for budget in (5, 6):  # row 2 has 6 of 11 slots taken: 5 are left
        sessions = read(params, model, new_sessions(model, 3, SMALL), [r.observations[0] for r in ROWS])
        sessions, sampled = act(params, model, sessions, sampling(ROWS, budgets=[budget] * 3))
        counts = [min(budget, SMALL - n) for n in lengths]
        assert [len(tokens) for tokens, _ in sampled] == counts
        assert sampled[0][0][:5] == played[0].turns[0]
        # The last token waits to be read, and there is a slot for it.
        np.testing.assert_array_equal(sessions.length, np.add(lengths, counts) - 1)
        assert (np.asarray(sessions.length) < sessions.capacity).all()


def test_a_full_cache_samples_nothing(params: Params, model: ModelConfig) -> None:
    sessions = new_sessions(model, 3, SMALL)
    for reading in ([[1] * 6, [2] * 6, [3] * 5], [[1] * 5, [2] * 5, [3] * 5]):
        sessions = read(params, model, sessions, reading)
    sessions, sampled = act(params, model, sessions, sampling(ROWS))
    assert [len(tokens) for tokens, _ in sampled] == [0, 0, 1]
    assert np.asarray(sessions.pending).tolist() == [False, False, True]


def test_n_samples_with_a_fixed_seed_are_identical(params: Params, model: ModelConfig) -> None:
    """Case 9: the samples of one prompt, forked from one reading, differ by their requests alone."""
    rows = [Row(ROWS[0].observations[:1], request=i) for i in range(3)]
    sessions = read(params, model, new_sessions(model, 1, CAPACITY), rows[0].observations)
    forked = select(sessions, np.zeros(3, np.int32), CAPACITY)
    _, sampled = act(params, model, forked, sampling(rows, seed=7))
    samples = {tuple(tokens) for tokens, _ in sampled}
    assert len(samples) == 3
    assert {tuple(p.turns[0]) for p in play(params, model, rows, seed=7)} == samples


def test_seed_none_became_a_constant_key(params: Params, model: ModelConfig) -> None:
    """Two calls with one prompt each differ if their requests or seeds do, and only then."""

    def sample(request: int, seed: int) -> list[int]:
        rows = [dataclasses.replace(ROWS[0], observations=ROWS[0].observations[:1], request=request)] * 3
        turns = [p.turns[0] for p in play(params, model, rows, seed=seed)]
        assert turns[0] == turns[1] == turns[2]
        return turns[0]

    assert sample(1, 0) == sample(1, 0)
    assert sample(1, 0) != sample(2, 0)
    assert sample(1, 0) != sample(1, 1)
    assert sample(2**32 - 1, 2**32 - 1) != sample(0, 0)


def test_the_same_key_at_every_decode_step(params: Params, model: ModelConfig) -> None:
    """With equal logits everywhere, one key for all steps would repeat one token."""
    flat = params | {"norm": np.zeros_like(params["norm"])}
    rows = [dataclasses.replace(r, temperature=1.0, budget=6) for r in ROWS]
    for result in play(flat, model, rows):
        assert len(set(sum(result.turns, []))) > len(result.turns)
        np.testing.assert_allclose([p for p in result.logprobs if p], -np.log(280), rtol=1e-5)


def test_each_new_budget_or_temperature_recompiles(params: Params, model: ModelConfig) -> None:
    play(params, model, ROWS)
    compiled = decode._cache_size(), extend._cache_size(), select._cache_size()
    for i, (budget, temperature) in enumerate([(1, 0.0), (2, 0.3), (6, 1.0), (9, 2.0), (0, 1.0)]):
        rows = [
            dataclasses.replace(r, budget=budget, temperature=temperature, request=i, stop=i) for r in ROWS
        ]
        results = play(params, model, rows, seed=i)
        assert all(len(turn) <= min(budget, CHUNK) for result in results for turn in result.turns)
    assert (decode._cache_size(), extend._cache_size(), select._cache_size()) == compiled


def test_a_size_beyond_all_buckets_is_named() -> None:
    assert [bucket(n, (4, 8)) for n in (0, 4, 5, 8)] == [4, 4, 8, 8]
    with pytest.raises(ValueError, match=r"9 does not fit .*\(4, 8\)"):
        bucket(9, (4, 8))


def test_ragged_rows_are_padded_on_the_right() -> None:
    tokens, count = pad_rows([[5, 6], [], [7]], 3)
    np.testing.assert_array_equal(tokens, [[5, 6, 0], [0, 0, 0], [7, 0, 0]])
    np.testing.assert_array_equal(count, [2, 0, 1])


def test_long_texts_are_read_block_by_block(
    params: Params, model: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if no scores fitted; a layer sees a window only."""
    model = dataclasses.replace(model, sliding_window=7, sliding_layers=(1,))
    whole = play(params, model, ROWS)
    monkeypatch.setattr(decoder, "SCORES_AT_ONCE", 0)
    jax.clear_caches()
    blocks = play(params, model, ROWS)
    lowered = extend.lower(params, model, new_sessions(model, 3, CAPACITY), *pad_rows([[5]] * 3, WIDTH))
    jax.clear_caches()
    assert f"x{WIDTH + 1}x{CAPACITY}x" not in lowered.as_text()  # neither a mask nor scores
    for a, b in zip(blocks, whole, strict=True):
        assert a.turns == b.turns
        np.testing.assert_allclose(a.logprobs, b.logprobs, rtol=1e-5, atol=1e-5)
