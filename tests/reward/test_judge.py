"""The generative reward model: what counts as a verdict, and what a vote may depend on."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rlanything_jax.models import ModelConfig, Params
from rlanything_jax.models.tokenizer import END, JUDGE, build_tokenizer
from rlanything_jax.reward.judge import JudgeConfig, Vote, format_verdict, judge, parse_verdict
from rlanything_jax.rollouts import Step, Trajectory
from rlanything_jax.sampler import decode_branches
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.batches import normalise, pack
from rlanything_jax.trainer.experience import judge_sequence
from rlanything_jax.trainer.step import token_logprobs

M = 2
CONFIG = JudgeConfig(temperature=0.8, max_tokens=6, rows=2, branch_buckets=(6,), length_buckets=(24,))


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("brings the goal closer Verdict: +1", 1),
        ("nothing happened Verdict: -1", -1),
        ("x Verdict: +1", 1),
        ("a verdict: of sorts Verdict: -1", -1),
        ("Verdict: +1", 0),  # no rationale
        (" Verdict: +1", 0),
        ("  Verdict: +1", 0),
        (" nothing Verdict: -1", 0),
        ("nothing happened", 0),
        ("", 0),
        ("nothing Verdict: 1", 0),
        ("nothing Verdict: 0", 0),
        ("nothing Verdict: +2", 0),
        ("nothing Verdict: +10", 0),
        ("nothing Verdict: +1.", 0),
        ("nothing Verdict: +1 ", 0),
        ("nothing Verdict: +1\n", 0),
        ("nothing Verdict:+1", 0),
        ("nothing verdict: +1", 0),
        ("nothing\nVerdict: +1", 0),
        ("two\nlines Verdict: +1", 0),
        ("x Verdict: -1 Verdict: +1", 0),  # it hedges
        ("Verdict: -1 Verdict: +1", 0),
        ("Verdict: Verdict: +1", 0),
        ("x Verdict: +1 y", 0),
        ("x Verdict: \uff0b1", 0),
    ],
)
def test_only_a_rationale_and_one_verdict_at_the_end_are_parsed(text: str, score: int) -> None:
    vote = Vote(text, parse_verdict(text), [], [])
    assert vote.score == score
    assert vote.rationale == (text.rpartition(" Verdict: ")[0] if score else "")


@given(
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1), st.sampled_from([1, -1])
)
def test_a_formatted_verdict_is_parsed_back(rationale: str, score: int) -> None:
    if not rationale[0].isspace():
        assert parse_verdict(format_verdict(rationale, score)) == score
        assert Vote(format_verdict(rationale, score), score, [], []).rationale == rationale


@pytest.fixture(scope="module")
def tokenizer(model: ModelConfig) -> Tokenizer:
    tokenizer = build_tokenizer(["put a mug Verdict: +1 -1"], [" Verdict: ", "+1", "-1"])
    assert tokenizer.get_vocab_size() <= model.vocab_size
    return tokenizer


def trajectory(seed: int, steps: int) -> Trajectory:
    """Prompt of 4 tokens, then steps of 2 sampled and 3 read tokens."""
    tokens = np.random.default_rng(seed).integers(3, 260, 4 + 5 * steps).tolist()
    spans = [Step("", "", 4 + 5 * i, 6 + 5 * i, point=9 + 5 * i) for i in range(steps)]
    return Trajectory(Task("t", "w", "", {}), 0, 0, tokens, [0.0] * len(tokens), spans)


TRAJECTORIES = [trajectory(1, 3), trajectory(2, 1), trajectory(3, 2)]


@pytest.fixture(scope="module")
def votes(params: Params, model: ModelConfig, tokenizer: Tokenizer) -> list[list[list[Vote]]]:
    return judge(params, model, tokenizer, TRAJECTORIES, M, CONFIG, seed=0)


def test_every_step_gets_its_votes(votes: list[list[list[Vote]]], tokenizer: Tokenizer) -> None:
    assert [[len(cast) for cast in steps] for steps in votes] == [[M] * 3, [M], [M] * 2]
    for vote in (v for steps in votes for cast in steps for v in cast):
        assert 1 <= len(vote.tokens) == len(vote.logprobs) <= CONFIG.max_tokens
        assert vote.text == tokenizer.decode(vote.tokens)
        assert all(p < 0 for p in vote.logprobs)
    first, second = votes[0][0]
    assert first.tokens != second.tokens


def test_votes_do_not_depend_on_how_trajectories_are_grouped(
    params: Params, model: ModelConfig, tokenizer: Tokenizer, votes: list[list[list[Vote]]]
) -> None:
    other = dataclasses.replace(CONFIG, rows=3, branch_buckets=(8,))
    again = judge(params, model, tokenizer, TRAJECTORIES, M, other, seed=0)
    for a, b in zip(votes, again, strict=True):
        assert [[v.tokens for v in cast] for cast in a] == [[v.tokens for v in cast] for cast in b]
    compiled = decode_branches._cache_size()
    moved = judge(params, model, tokenizer, TRAJECTORIES[:1], M, CONFIG, seed=1)
    assert [v.tokens for v in moved[0][0]] != [v.tokens for v in votes[0][0]]
    assert decode_branches._cache_size() == compiled


def test_n_votes_with_a_fixed_seed_are_identical(
    params: Params, model: ModelConfig, tokenizer: Tokenizer
) -> None:
    """Case 9: two rollouts that happen to be equal get votes of their own."""
    twins = judge(params, model, tokenizer, [TRAJECTORIES[0]] * 2, M, CONFIG, seed=0)
    votes = [tuple(vote.tokens) for steps in twins for cast in steps for vote in cast]
    assert len(set(votes)) == len(votes)


def test_progress_counts_trajectories_and_none_is_no_error(
    params: Params, model: ModelConfig, tokenizer: Tokenizer
) -> None:
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))

    judge(params, model, tokenizer, TRAJECTORIES, M, CONFIG, seed=0, progress=progress)
    assert calls == [(2, 3), (3, 3)]
    assert judge(params, model, tokenizer, [], M, CONFIG, seed=0) == []
    without = judge(params, model, tokenizer, [trajectory(1, 0), TRAJECTORIES[1]], M, CONFIG, seed=0)
    assert without[0] == [] and len(without[1]) == 1


def test_a_vote_that_met_no_end_is_not_parsed(
    params: Params, model: ModelConfig, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same text counts with its end and does not without: the model might have gone on."""
    ids = tokenizer.encode(format_verdict("mug", 1)).ids
    end = tokenizer.token_to_id(END)

    def sampled(*arguments: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tokens = np.zeros((12, CONFIG.max_tokens), np.int32)
        tokens[:, : len(ids)], tokens[0, len(ids)] = ids, end
        return tokens, np.zeros(tokens.shape), np.array([len(ids) + 1] + [len(ids)] * 11)

    monkeypatch.setattr("rlanything_jax.reward.judge.decode_branches", sampled)
    finished, cut = judge(params, model, tokenizer, [trajectory(1, 1)], M, CONFIG, seed=0)[0][0]
    assert finished.text == cut.text == "mug Verdict: +1"
    assert (finished.score, cut.score) == (1, 0)
    assert finished.tokens == [*ids, end]  # the end is trained on as well


def test_sampler_and_trainer_agree_on_the_logprobs_of_votes(
    params: Params, stacked: Params, model: ModelConfig, tokenizer: Tokenizer, votes: list[list[list[Vote]]]
) -> None:
    """What was sampled as branches of a cache is what the packed tree is trained on."""
    question = tokenizer.token_to_id(JUDGE)
    sequences = [
        judge_sequence(t, cast, np.ones((3, M)), question)
        for t, cast in zip(TRAJECTORIES, votes, strict=True)
    ]
    batches = pack(normalise(sequences), tokens=128, lengths=(128,))
    assert len(batches) == 1
    trained = batches[0].weight > 0
    assert trained.sum() == sum(len(vote.tokens) for steps in votes for cast in steps for vote in cast)
    for temperature, agree in [(CONFIG.temperature, True), (1.0, False)]:
        logp = np.asarray(token_logprobs(stacked, model, batches[0], temperature))
        close = np.allclose(logp[trained], batches[0].logprobs[trained], rtol=1e-5, atol=1e-5)
        assert close == agree


def test_a_trajectory_beyond_all_buckets_is_named(
    params: Params, model: ModelConfig, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ValueError, match=r"29 does not fit .*\(24,\)"):
        judge(params, model, tokenizer, [trajectory(1, 5)], 1, CONFIG, seed=0)
