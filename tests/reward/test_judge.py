"""The generative reward model: what a vote may depend on, and what becomes of it."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer

from rlanything_jax.dialogue import Speaker, WordDialogue
from rlanything_jax.models import ModelConfig, Params
from rlanything_jax.models.tokenizer import END, build_tokenizer
from rlanything_jax.reward.judge import JudgeConfig, Vote, judge
from rlanything_jax.reward.verdicts import format_verdict
from rlanything_jax.rollouts import Segment, Step, Trajectory
from rlanything_jax.sampler import Sampled, decode_branches
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.batches import normalise, pack
from rlanything_jax.trainer.experience import judge_sequence
from rlanything_jax.trainer.step import token_logprobs

M = 2
CONFIG = JudgeConfig(temperature=0.8, max_tokens=6, rows=2, branch_buckets=(6,), length_buckets=(24,))


@pytest.fixture(scope="module")
def tokenizer(model: ModelConfig) -> Tokenizer:
    tokenizer = build_tokenizer(["put a mug Verdict: +1 -1"], [" Verdict: ", "+1", "-1"])
    assert tokenizer.get_vocab_size() <= model.vocab_size
    return tokenizer


@pytest.fixture(scope="module")
def speaker(params: Params, model: ModelConfig, tokenizer: Tokenizer) -> Speaker:
    return Speaker(params, model, WordDialogue(tokenizer))


@pytest.fixture(scope="module")
def trajectory(speaker: Speaker) -> Callable[[int, int], Trajectory]:
    """Makes one of a seed, which is its request too, and a number of steps: a prompt of 4 tokens, then of each step 2 sampled
    and 3 read ones."""

    def make(seed: int, steps: int) -> Trajectory:
        tokens = np.random.default_rng(seed).integers(3, 260, 4 + 5 * steps).tolist()
        spans = [Step("", "", "", 0, 4 + 5 * i, 6 + 5 * i, point=9 + 5 * i) for i in range(steps)]
        segments = [Segment(tokens, [0.0] * len(tokens))]
        return Trajectory(Task("t", "w", "", {}), 0, seed, speaker.dialogue, segments, spans)

    return make


@pytest.fixture(scope="module")
def trajectories(trajectory: Callable[[int, int], Trajectory]) -> list[Trajectory]:
    return [trajectory(1, 3), trajectory(2, 1), trajectory(3, 2)]


@pytest.fixture(scope="module")
def votes(speaker: Speaker, trajectories: list[Trajectory]) -> list[list[list[Vote]]]:
    return judge(speaker, trajectories, M, CONFIG, seed=0)


def test_every_step_gets_its_votes(votes: list[list[list[Vote]]], tokenizer: Tokenizer) -> None:
    assert [[len(cast) for cast in steps] for steps in votes] == [[M] * 3, [M], [M] * 2]
    for vote in (v for steps in votes for cast in steps for v in cast):
        assert 1 <= len(vote.tokens) == len(vote.logprobs) <= CONFIG.max_tokens
        assert vote.text == tokenizer.decode(vote.tokens)
        assert all(p < 0 for p in vote.logprobs)
    first, second = votes[0][0]
    assert first.tokens != second.tokens


def test_votes_do_not_depend_on_how_trajectories_are_grouped(
    speaker: Speaker, trajectories: list[Trajectory], votes: list[list[list[Vote]]]
) -> None:
    other = dataclasses.replace(CONFIG, rows=3, branch_buckets=(8,))
    again = judge(speaker, trajectories, M, other, seed=0)
    for a, b in zip(votes, again, strict=True):
        assert [[v.tokens for v in cast] for cast in a] == [[v.tokens for v in cast] for cast in b]
    backwards = judge(speaker, trajectories[:0:-1], M, CONFIG, seed=0)
    for a, b in zip(votes[:0:-1], backwards, strict=True):
        assert [[v.tokens for v in cast] for cast in a] == [[v.tokens for v in cast] for cast in b]
    compiled = decode_branches._cache_size()
    moved = judge(speaker, trajectories[:1], M, CONFIG, seed=1)
    assert [v.tokens for v in moved[0][0]] != [v.tokens for v in votes[0][0]]
    assert decode_branches._cache_size() == compiled


def test_a_long_trajectory_is_read_in_pieces(
    speaker: Speaker,
    trajectories: list[Trajectory],
    votes: list[list[list[Vote]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Votes and their log-probabilities are those of one reading, whatever the piece in which a trajectory ends."""
    monkeypatch.setattr("rlanything_jax.reward.judge.READ_AT_ONCE", 10)  # of 24: two wholes and a rest
    for a, b in zip(votes, judge(speaker, trajectories, M, CONFIG, seed=0), strict=True):
        for cast, again in zip(a, b, strict=True):
            for vote, same in zip(cast, again, strict=True):
                assert vote.tokens == same.tokens
                np.testing.assert_allclose(vote.logprobs, same.logprobs, rtol=1e-5, atol=1e-5)


def test_n_votes_with_a_fixed_seed_are_identical(speaker: Speaker, trajectories: list[Trajectory]) -> None:
    """Case 9: two rollouts that happen to be equal get votes of their own."""
    twin = dataclasses.replace(trajectories[0], request=7)
    twins = judge(speaker, [trajectories[0], twin], M, CONFIG, seed=0)
    votes = [tuple(vote.tokens) for steps in twins for cast in steps for vote in cast]
    assert len(set(votes)) == len(votes)


def test_progress_counts_trajectories_and_none_is_no_error(
    speaker: Speaker, trajectory: Callable[[int, int], Trajectory], trajectories: list[Trajectory]
) -> None:
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))

    judge(speaker, trajectories, M, CONFIG, seed=0, progress=progress)
    assert calls == [(2, 3), (3, 3)]
    assert judge(speaker, [], M, CONFIG, seed=0) == []
    without = judge(speaker, [trajectory(1, 0), trajectories[1]], M, CONFIG, seed=0)
    assert without[0] == [] and len(without[1]) == 1


def test_a_vote_that_met_no_end_is_not_parsed(
    speaker: Speaker,
    tokenizer: Tokenizer,
    trajectory: Callable[[int, int], Trajectory],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same text counts with its end and does not without: the model might have gone on."""
    ids = tokenizer.encode(format_verdict("mug", 1)).ids
    end = tokenizer.token_to_id(END)

    def sampled(*arguments: object) -> Sampled:
        tokens = np.zeros((12, CONFIG.max_tokens), np.int32)
        tokens[:, : len(ids)], tokens[0, len(ids)] = ids, end
        zeros = np.zeros(tokens.shape)
        return Sampled(tokens, zeros, np.array([len(ids) + 1] + [len(ids)] * 11), zeros)

    monkeypatch.setattr("rlanything_jax.reward.judge.decode_branches", sampled)
    finished, cut = judge(speaker, [trajectory(1, 1)], M, CONFIG, seed=0)[0][0]
    assert finished.text == cut.text == "mug Verdict: +1"
    assert (finished.score, cut.score) == (1, 0)
    assert finished.tokens == [*ids, end]  # the end is trained on as well


def test_sampler_and_trainer_agree_on_the_logprobs_of_votes(
    speaker: Speaker, stacked: Params, trajectories: list[Trajectory], votes: list[list[list[Vote]]]
) -> None:
    """What was sampled as branches of a cache is what the packed tree is trained on."""
    dialogue = speaker.dialogue
    sequences = [
        judge_sequence(t.transcript(dialogue), cast, np.ones((3, M)), dialogue.question)
        for t, cast in zip(trajectories, votes, strict=True)
    ]
    batches = pack(normalise(sequences), tokens=128, lengths=(128,))
    assert len(batches) == 1
    trained = batches[0].weight > 0
    assert trained.sum() == sum(len(vote.tokens) for steps in votes for cast in steps for vote in cast)
    for temperature, agree in [(CONFIG.temperature, True), (1.0, False)]:
        logp = np.asarray(token_logprobs(stacked, speaker.model, batches[0], temperature))
        close = np.allclose(logp[trained], batches[0].logprobs[trained], rtol=1e-5, atol=1e-5)
        assert close == agree


def test_a_trajectory_beyond_all_buckets_is_named(
    speaker: Speaker, trajectory: Callable[[int, int], Trajectory]
) -> None:
    with pytest.raises(ValueError, match=r"29 does not fit .*\(24,\)"):
        judge(speaker, [trajectory(1, 5)], 1, CONFIG, seed=0)
