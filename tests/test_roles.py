"""Chat checkpoints in the three roles: what they share, what is trained, and that the loop runs on them."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from rlanything_jax import train as training
from rlanything_jax.check import check
from rlanything_jax.dialogue import Exchange
from rlanything_jax.loop import Setting, State, iterate
from rlanything_jax.models import from_pretrained, logits, save_pretrained
from rlanything_jax.rollouts import Trajectory, rollout
from rlanything_jax.setting import open_run, restore, trained_model
from rlanything_jax.trainer.batches import normalise, pack
from rlanything_jax.trainer.checkpoints import Checkpoints
from rlanything_jax.trainer.experience import judge_sequence, policy_sequences
from rlanything_jax.trainer.step import combine, token_logprobs

Make = Callable[[], ConfigDict]


def ignore(name: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def opened(make_tiny_chat: Make) -> Iterator[tuple[Setting, State]]:
    with open_run(make_tiny_chat(), ignore) as run:
        yield run


@pytest.fixture(scope="module")
def played(opened: tuple[Setting, State]) -> list[Trajectory]:
    setting, state = opened
    policy = setting.policy.speaker(state.policy.params)
    return rollout(
        policy, setting.envs, setting.world, setting.world.tasks("train")[:2], 2, setting.sampler, seed=1
    )


def test_roles_of_one_checkpoint_share_its_weights_and_train_adapters_alone(
    opened: tuple[Setting, State],
) -> None:
    setting, state = opened
    policy, judge, rewriter = setting.policy, setting.judge, setting.rewriter
    assert policy.frozen["embed"] is judge.frozen["embed"]
    kernels = [x["layers"]["wq"]["kernel"] for x in (policy.frozen, judge.frozen)]
    assert kernels[0] is kernels[1]
    speakers = [policy.speaker(state.policy.params), judge.speaker(state.judge.params), rewriter]
    first, *others = [speaker.params["layers"][0]["wq"]["kernel"] for speaker in speakers]
    assert all(other is first for other in others)
    for learner in (state.policy, state.judge):
        names = {
            jax.tree_util.keystr(path[-1:]) for path, _ in jax.tree_util.tree_leaves_with_path(learner.params)
        }
        assert names == {"['lora_a']", "['lora_b']"}
    adapters = [np.asarray(s.params["layers"]["wq"]["lora_a"]) for s in (state.policy, state.judge)]
    assert not np.array_equal(*adapters)
    assert policy.dialogue is judge.dialogue  # so that a judge reads the very tokens that were sampled


def test_sampler_and_trainer_agree_on_what_a_chat_policy_sampled(
    opened: tuple[Setting, State], played: list[Trajectory]
) -> None:
    """The contexts are appended to turn by turn; one forward over each gives the same log-probabilities."""
    setting, state = opened
    advantage = np.ones(setting.config.world.max_steps)
    sequences = [s for t in played for s in policy_sequences(t, advantage)]
    assert len(sequences) == len(played) == 4
    params = combine(setting.policy.frozen, state.policy.params)
    compared = 0
    for batch in pack(normalise(sequences), tokens=3072, lengths=(3072,)):
        logp = token_logprobs(params, setting.policy.model, batch, setting.config.policy.temperature)
        sampled = batch.weight > 0
        np.testing.assert_allclose(np.asarray(logp)[sampled], batch.logprobs[sampled], atol=1e-4)
        compared += sampled.sum()
    assert compared == sum(step.end - step.start for t in played for step in t.steps) > 0


def test_a_judge_of_another_checkpoint_reads_the_same_episode_in_its_own_tokens(
    opened: tuple[Setting, State], played: list[Trajectory]
) -> None:
    setting, _ = opened
    own, other = (
        setting.judge.dialogue,
        type(setting.judge.dialogue)(setting.judge.dialogue.chat, system=setting.world.system),
    )
    for trajectory in played:
        shared, rebuilt = trajectory.transcript(own), trajectory.transcript(other)
        # The tokens of this model are bytes: what it wrote reads back as it was sampled, unless it wrote no text at all.
        if "\ufffd" not in "".join(step.response for step in trajectory.steps):
            assert shared == rebuilt
        assert len(rebuilt.points) == len(trajectory.steps) and rebuilt.points == sorted(rebuilt.points)


def test_points_are_behind_the_text_that_followed_each_step(
    opened: tuple[Setting, State], played: list[Trajectory]
) -> None:
    tokenizer = opened[0].policy.dialogue.chat.tokenizer
    for trajectory in played:
        follow = [*(step.observation for step in trajectory.steps[1:]), trajectory.last]
        transcript = trajectory.transcript(trajectory.dialogue)
        for point, text in zip(transcript.points, follow, strict=True):
            assert tokenizer.decode(transcript.tokens[:point]).endswith(text)


def test_an_iteration_trains_adapters_and_nothing_else(opened: tuple[Setting, State]) -> None:
    setting, state = opened
    frozen = jax.tree.map(np.asarray, (setting.policy.frozen, setting.judge.frozen))
    metrics, batch = iterate(setting, state, ignore)
    jax.tree.map(np.testing.assert_array_equal, frozen, (setting.policy.frozen, setting.judge.frozen))
    assert metrics["rollout/tokens"] == sum(len(t.tokens) for t in batch.trajectories)
    assert all(np.isfinite(value) for value in metrics.values())
    tree = judge_sequence(
        batch.trajectories[0].transcript(setting.judge.dialogue),
        batch.votes[0],
        np.ones((2, setting.config.votes_per_step)),
        setting.judge.dialogue.question,
    )
    text = setting.judge.dialogue.chat.tokenizer.decode(tree.branches[0].tokens, skip_special_tokens=False)
    assert text.startswith(f"\n\n{setting.world.question}<|im_end|>\n<|im_start|>assistant\n")


def test_a_template_that_rewrites_the_past_makes_every_step_a_segment(
    opened: tuple[Setting, State], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen3 drops old thoughts: each step is sampled from, and trained on, a context that was read from its start."""
    setting, state = opened
    policy = setting.policy.speaker(state.policy.params)
    dialogue = policy.dialogue

    class Forgetful(type(dialogue)):
        def extend(self, exchanges: list[Exchange], written: list[int], text: str):
            *past, last = exchanges
            ids = self.open(f"{len(exchanges)} steps are over. {text}")
            return super().extend(exchanges, written, text)._replace(ids=ids, restart=True)

    forgetful = Forgetful(dialogue.chat, system=setting.world.system, question=setting.world.question)
    speaker = policy._replace(dialogue=forgetful)
    played = rollout(
        speaker, setting.envs, setting.world, setting.world.tasks("train")[:1], 2, setting.sampler, seed=1
    )
    params = combine(setting.policy.frozen, state.policy.params)
    for trajectory in played:
        assert len(trajectory.segments) == len(trajectory.steps) + 1 == 3
        assert [step.segment for step in trajectory.steps] == [0, 1]
        sequences = policy_sequences(trajectory, np.ones(2))
        assert len(sequences) == 2
        (batch,) = pack(normalise(sequences), tokens=3072, lengths=(3072,))
        logp = np.asarray(token_logprobs(params, speaker.model, batch, setting.config.policy.temperature))
        sampled = batch.weight > 0
        np.testing.assert_allclose(logp[sampled], batch.logprobs[sampled], atol=1e-4)
        assert len(trajectory.transcript(forgetful).points) == 2


def test_the_program_runs_saves_and_resumes_on_a_checkpoint(make_tiny_chat: Make, tmp_path: Path) -> None:
    config = make_tiny_chat()
    config.iterations = 1
    training.train(config, str(tmp_path))
    config.iterations = 2
    last = training.train(config, str(tmp_path))
    assert last["iteration"] == 1
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1]

    # What was trained, merged: it answers as base and adapters do, and another run may begin with it.
    with open_run(config, ignore) as (setting, state):
        restore(Checkpoints(str(tmp_path)), setting, state)
        # As if it had learned: a tiny random model wins nothing, and so moves nowhere.
        moved = jax.tree.map(lambda x: x + 0.02, state.policy.params)
        state.policy = state.policy._replace(params=moved)
        save_pretrained(trained_model(setting, state, "policy"), tmp_path / "out")
        exported = from_pretrained(tmp_path / "out")
        params = combine(setting.policy.frozen, state.policy.params)
        tokens, mask = np.arange(24)[None] % 200, np.ones((1, 24), bool)
        expected = logits(params, setting.policy.model, tokens, mask)
        np.testing.assert_allclose(
            logits(exported.params, exported.config, tokens, mask), expected, atol=1e-4
        )
    assert exported.chat.open([{"role": "user", "content": "a"}])


def test_int8_bases_and_full_training_are_options(make_tiny_chat: Make, chat_folder: Path) -> None:
    config = make_tiny_chat()
    config.policy.lora.rank = 0
    config.judge.lora.int8_base = True
    with open_run(config, ignore) as (setting, state):
        assert setting.policy.frozen == {}
        whole = from_pretrained(chat_folder).params
        assert jax.tree.structure(state.policy.params) == jax.tree.structure(whole)
        assert setting.judge.frozen["layers"]["wq"]["kernel_int8"].dtype == np.int8
        metrics, _ = iterate(setting, state, ignore)
        assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoint.judge": ""}, "config.checkpoint.judge='': name a checkpoint folder"),
        ({"policy.lora.rank": -1}, "config.policy.lora.rank=-1"),
    ],
)
def test_what_is_wrong_with_a_checkpoint_config_is_named(
    make_tiny_chat: Make, changes: dict, message: str
) -> None:
    config = make_tiny_chat()
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=message):
        check(config)


def test_a_checkpoint_without_a_chat_template_is_named(
    make_tiny_chat: Make, chat_folder: Path, tmp_path: Path
) -> None:
    model = from_pretrained(chat_folder)
    save_pretrained(dataclasses.replace(model, chat=None), tmp_path / "base")
    config = make_tiny_chat()
    config.checkpoint.policy = str(tmp_path / "base")
    with pytest.raises(ValueError, match="base has no chat template"), open_run(config, ignore):
        pass


def test_rows_that_cannot_hold_an_episode_and_a_vote_are_named_before_training(make_tiny_chat: Make) -> None:
    config = make_tiny_chat()
    config.trainer.length_buckets = (2060,)
    with pytest.raises(ValueError, match=r"trainer.length_buckets.*2060"), open_run(config, ignore):
        pass
