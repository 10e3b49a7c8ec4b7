"""The warm start: stages are trained once, and what a kill leaves behind is used."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from rlanything_jax.loop import Setting
from rlanything_jax.models import Params
from rlanything_jax.pretrain import warm_start as module
from rlanything_jax.pretrain.warm_start import warm_start


class Killed(BaseException):
    pass


class Bench:
    """Runs a warm start whose training is a count: each stage adds a number to its start."""

    def __init__(self, setting: Setting, config: ConfigDict, monkeypatch: pytest.MonkeyPatch) -> None:
        self.setting, self.config = setting, config
        self.steps: list[int] = []  # of the stages that were trained
        self.kill_at: int | None = None
        monkeypatch.setattr(module, "fit", self._fit)
        # Of the judge's episodes only the number matters here.
        monkeypatch.setattr(module, "rollout", lambda *args, **kwargs: list(args[3]))
        monkeypatch.setattr(module, "judge_examples", lambda *args, **kwargs: iter(()))

    def _fit(self, params: Params, model, examples, *, steps: int, **options) -> Params:
        if self.kill_at == steps:
            raise Killed
        self.steps.append(steps)
        return jax.tree.map(lambda x: x + steps, params)

    def run(self) -> dict[str, Params]:
        self.steps = []
        s = self.setting
        return warm_start(
            self.config,
            s.world,
            s.envs,
            s.policy.dialogue.tokenizer,
            s.policy.model,
            s.sampler,
            lambda name, done, total: None,
        )


@pytest.fixture
def bench(setting: Setting, tiny: ConfigDict, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    tiny.pretrain.update(cache=str(tmp_path / "cache"), policy_steps=1, judge_steps=2, rewriter_steps=3)
    return Bench(setting, tiny, monkeypatch)


def same(a: Params, b: Params) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_second_run_trains_nothing_and_finds_the_same(
    setting: Setting, state, make_tiny: Callable[[], ConfigDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one, that all tests share."""

    def fail(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(module, "fit", fail)
    s = setting
    found = warm_start(
        make_tiny(),
        s.world,
        s.envs,
        s.policy.dialogue.tokenizer,
        s.policy.model,
        s.sampler,
        lambda name, done, total: None,
    )
    assert same(found["policy"], state.policy.params)
    assert same(found["judge"], state.judge.params)
    assert found["rewriter"].keys() == found["policy"].keys()
    assert not same(found["policy"], found["judge"])
    assert not same(found["policy"], found["rewriter"])
    assert not same(found["judge"], found["rewriter"])


def test_judge_and_rewriter_start_from_the_policy(bench: Bench) -> None:
    found = bench.run()
    assert bench.steps == [1, 2, 3]
    for name, steps in (("judge", 2), ("rewriter", 3)):
        np.testing.assert_allclose(found[name]["embed"], found["policy"]["embed"] + steps, rtol=1e-6)
    again = bench.run()
    assert bench.steps == []
    assert same(found, again)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_kill_loses_only_the_stage_that_was_running(bench: Bench, stage: int) -> None:
    bench.kill_at = stage
    with pytest.raises(Killed):
        bench.run()
    assert bench.steps == [1, 2, 3][: stage - 1]
    bench.kill_at = None
    bench.run()
    assert bench.steps == [1, 2, 3][stage - 1 :]


def test_a_kill_during_writing_leaves_no_stage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(arrays, path) -> None:
        Path(path).write_bytes(b"half")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_file", torn)
        with pytest.raises(Killed):
            bench.run()
    found = bench.run()
    assert bench.steps == [1, 2, 3]
    assert np.isfinite(found["policy"]["embed"]).all()


@pytest.mark.parametrize(
    ("key", "value", "trained"),
    [
        ("seed", 7, [1, 2, 3]),
        ("model.norm_eps", 1e-5, [1, 2, 3]),
        ("world.max_steps", 3, [1, 2, 3]),
        ("world.seed", 9, [1, 2, 3]),
        ("sampler.temperature", 0.5, [1, 2, 3]),
        ("pretrain.learning_rate", 0.5, [1, 2, 3]),
        ("pretrain.noise", 0.4, [1, 2, 3]),
        ("pretrain.policy_steps", 4, [4, 2, 3]),
        ("pretrain.judge_noise", 0.4, [2]),
        ("pretrain.judge_steps", 4, [4]),
        ("pretrain.rewriter_length", 300, [3]),
    ],
)
def test_what_depends_on_a_setting_is_trained_anew(
    bench: Bench, key: str, value: float, trained: list[int]
) -> None:
    bench.run()
    section, _, name = key.rpartition(".")
    with bench.config.unlocked():  # a model option that the config leaves at its default may be new
        (bench.config[section] if section else bench.config)[name] = value
    bench.run()
    assert bench.steps == trained
    bench.run()
    assert bench.steps == []


@pytest.mark.parametrize(
    ("key", "value"), [("iterations", 9), ("policy.learning_rate", 1.0), ("eval.every", 9)]
)
def test_what_comes_later_changes_nothing(bench: Bench, key: str, value: float) -> None:
    bench.run()
    bench.config.update_from_flattened_dict({key: value})
    bench.run()
    assert bench.steps == []
