"""Evaluation: fixed panels, equal numbers, a command of its own."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rlanything_jax import loop
from rlanything_jax.evaluation import PANELS, Panel, evaluate
from rlanything_jax.loop import Setting, State
from rlanything_jax.trainer.checkpoints import Checkpoints

Start = Callable[..., subprocess.Popen]


def ignore(name: str, done: int, total: int) -> None:
    pass


def test_a_panel_gives_equal_numbers_whenever_it_is_played(setting: Setting, state: State) -> None:
    first, episodes = evaluate(setting, state, ignore)
    assert first.keys() == {*PANELS, "eval/inadmissible"}
    assert [t.task for t in episodes] == setting.world.tasks("valid_seen")[:2]
    again, repeated = evaluate(setting, state, ignore)
    assert first == again
    assert [t.tokens for t in episodes] == [t.tokens for t in repeated]
    steps = [step for t in episodes for step in t.steps]
    assert first["eval/inadmissible"] == sum(not s.admissible for s in steps) / len(steps)


def test_panels_are_played_as_they_say(
    setting: Setting, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, calls = [], []
    play = loop.rollout

    def rollout(*args, **kwargs):
        tasks, n, sampler = args[3:6]
        played.append((tasks, n, sampler.temperature, kwargs["seed"]))
        episodes = play(*args, **kwargs)
        for i, trajectory in enumerate(episodes):
            trajectory.won = i == 0
            trajectory.error = "lost" if i == 2 else None
        return episodes

    monkeypatch.setattr(loop, "rollout", rollout)
    panels = {
        "seen": Panel("valid_seen", 1.0, False),
        "greedy": Panel("valid_unseen", 2.0, True),
        "small": Panel("train", 0.01, False),
    }
    metrics, episodes = evaluate(setting, state, lambda name, done, total: calls.append(name), panels)
    splits = [setting.world.tasks(split) for split in ("valid_seen", "valid_unseen", "train")]
    assert [tasks for tasks, *_ in played] == [splits[0][:2], splits[1][:4], splits[2][:1]]
    sampled = setting.config.sampler.temperature
    assert [(n, temperature) for _, n, temperature, _ in played] == [(1, sampled), (1, 0.0), (1, sampled)]
    assert len({seed for *_, seed in played}) == 1
    assert metrics["seen"] == 0.5 and metrics["small"] == 1.0
    assert metrics["greedy"] == pytest.approx(1 / 3)  # the lost one does not count
    assert len(episodes) == 2
    assert set(calls) == {"evaluate valid_seen", "evaluate valid_unseen", "evaluate train"}


def test_training_tasks_do_not_reach_the_panels(setting: Setting) -> None:
    marks = {
        split: {setting.world.fingerprint(task) for task in setting.world.tasks(split)}
        for split in ("train", "valid_seen", "valid_unseen")
    }
    assert not marks["train"] & (marks["valid_seen"] | marks["valid_unseen"])


@pytest.fixture
def workdir(state: State, tmp_path: Path) -> Path:
    """A run's directory, as far as an evaluation reads it."""
    checkpoints = Checkpoints(str(tmp_path / "run"))
    checkpoints.save(7, {"policy": state.policy, "judge": state.judge}, {"tasks": state.tasks.to_json()})
    checkpoints.close()
    return tmp_path / "run"


def test_the_command_prints_and_writes_what_training_would_measure(
    setting: Setting, state: State, start: Start, workdir: Path, tmp_path: Path
) -> None:
    expected, _ = evaluate(setting, state, ignore)
    process = start(f"--workdir={workdir}", f"--json={tmp_path / 'numbers.json'}", module="evaluate")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    assert json.loads((tmp_path / "numbers.json").read_text()) == {"iteration": 7} | expected
    assert "after 7 iterations" in out
    for name, value in expected.items():
        assert any(name in line and f"{value:.1%}" in line for line in out.splitlines())


def test_a_directory_without_a_checkpoint_is_an_error(start: Start, tmp_path: Path) -> None:
    process = start(f"--workdir={tmp_path}", module="evaluate")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert err == f"error: --workdir={tmp_path} holds no checkpoint: train first, or name another\n"
