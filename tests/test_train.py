"""The program: what a run leaves behind, and that a kill at any moment changes nothing of it."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from rlanything_jax.envs.alfworld.generate import generate
from rlanything_jax.loop import Setting
from rlanything_jax.pretrain import warm_start
from rlanything_jax.train import train

KEYS = """iteration eval/success eval/success_ood rollout/success rollout/inadmissible judge/balanced_accuracy
judge/auc judge/outcome_accuracy judge/p_plus judge/p_minus judge/mu judge/parse_rate tasks/proposed tasks/accepted
tasks/accepted_total theory/importance_ratio sampler/logprob_gap time/iteration_s time/rollout_s time/judge_s time/train_s
time/adapt_s time/env_s"""
STEP_KEYS = {"observation", "response", "action", "admissible", "verdicts", "label", "reward", "advantage"}

# Runs the program, whose policy now and then wins and whose rewriter can write, until the moment named by KILL.
SCRIPTED = """
import os, runpy, signal, sys
from rlanything_jax import adaptation, loop
from rlanything_jax.report.record import Recorder
from rlanything_jax.sampler.generate import Response

moment, at = os.environ.get("KILL", "never 0").split()
play, record, iteration = loop.rollout, Recorder.metrics, [None]
iterate = loop.iterate

def rollout(*args, **kwargs):
    def progress(done, total):
        if moment == "rollout" and iteration[0] == int(at):
            os.kill(os.getpid(), signal.SIGKILL)
    played = play(*args, **kwargs | {"progress": progress})
    for t in played:
        t.won = (len(t.tokens) + t.request + (t.task.parent is not None)) % 3 > 0
    return played

def started(setting, state, phase):
    iteration[0] = state.iteration
    return iterate(setting, state, phase)

def metrics(recorder, row):
    record(recorder, row)
    if moment == "metrics" and row["iteration"] == int(at):
        os.kill(os.getpid(), signal.SIGKILL)

loop.rollout, loop.iterate, Recorder.metrics = rollout, started, metrics
edits = [Response(text, True, [], []) for text in ("nonsense", "hint on", "open fridge 1", "hint off")]
adaptation.generate = lambda *args, **kwargs: [edits] * len(args[1])
runpy.run_module("rlanything_jax.train", run_name="__main__", alter_sys=True)
"""

Start = Callable[..., subprocess.Popen]


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    return out


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def timeless(workdir: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("time/")}
        for row in rows(workdir / "metrics.jsonl")
    ]


def trajectories(workdir: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.name: rows(path) for path in sorted((workdir / "trajectories").iterdir())}


def saved(workdir: Path) -> list[str]:
    return sorted(path.name for path in (workdir / "checkpoints").iterdir() if path.name.isdigit())


@pytest.fixture(scope="session")
def finished(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a scripted run of four iterations that nobody disturbed."""
    workdir = tmp_path_factory.mktemp("finished")
    (workdir / "stdout").write_text(finish(start(f"--workdir={workdir}", script=SCRIPTED)))
    return workdir


def test_a_run_leaves_all_that_tools_rely_on(finished: Path) -> None:
    metrics = rows(finished / "metrics.jsonl")
    assert [row["iteration"] for row in metrics] == [0, 1, 2, 3]
    assert set(KEYS.split()) - set().union(*metrics) == set()
    for row in metrics:
        assert all(isinstance(value, int | float) and value == value for value in row.values())
        assert ("eval/success" in row) == (row["iteration"] in (0, 2, 3))
        assert 0 <= row["time/env_s"] <= row["time/rollout_s"] <= row["time/iteration_s"]
    assert metrics[0]["sampler/logprob_gap"] < 1e-4

    written = trajectories(finished)
    assert list(written) == [f"0000{i}.jsonl" for i in range(4)]
    for i, of_iteration in enumerate(written.values()):
        kinds = [row["kind"] for row in of_iteration]
        assert kinds.count("train") == 4 and kinds.count("eval") == (2 if i != 1 else 0)
        for row in of_iteration:
            assert row["iteration"] == i and row["outcome"] in (-1, 1) and row["error"] is None
            for step in row["steps"]:
                judged = (
                    STEP_KEYS if row["kind"] != "eval" else STEP_KEYS - {"verdicts", "reward", "advantage"}
                )
                assert step.keys() == judged and step["label"] in (-1, 1)
                assert len(step.get("verdicts", [1, 1])) == 2
    assert sum(row["kind"] == "verify" for of_iteration in written.values() for row in of_iteration) > 0

    events = rows(finished / "tasks.jsonl")
    kinds = {event["event"] for event in events}
    assert {"refused", "proposed"} < kinds  # and what became of a proposal
    assert sum(event["event"] == "accepted" for event in events) == metrics[-1]["tasks/accepted_total"]
    config = json.loads((finished / "config.json").read_text())
    assert config["iterations"] == 4 and config["world"]["max_steps"] == 4
    assert saved(finished) == ["3", "4"]
    report = (finished / "report.html").read_text()
    assert report.startswith("<!doctype html>") or report.startswith("<!DOCTYPE html>")
    assert len(report) > 10_000
    out = (finished / "stdout").read_text()
    assert "iteration 4/4" in out and f"report: {finished / 'report.html'}" in out
    assert "before" in out and "after" in out


def kill_in_save(process: subprocess.Popen, checkpoints: Path) -> bool:
    """Kills the process while it writes a checkpoint; False where it came too late."""
    while process.poll() is None:
        if list(checkpoints.glob("*.orbax-checkpoint-tmp*")):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.0005)
    process.communicate()
    return bool(list(checkpoints.glob("*.orbax-checkpoint-tmp*")))


def test_a_run_killed_at_several_moments_is_the_run_that_was_not(
    finished: Path, start: Start, tmp_path: Path
) -> None:
    def killed(kill: str, *flags: str) -> None:
        process = start(f"--workdir={tmp_path}", *flags, script=SCRIPTED, KILL=kill)
        _, err = process.communicate(timeout=240)
        assert process.returncode == -signal.SIGKILL, err[-3000:]

    # Before there is any checkpoint.
    killed("rollout 1", "--config.checkpoint_every=3")
    assert len(timeless(tmp_path)) == 1 and saved(tmp_path) == []
    # In the middle of a save, at the first attempt if the disk is not too fast.
    for _ in range(3):
        if kill_in_save(start(f"--workdir={tmp_path}", script=SCRIPTED), tmp_path / "checkpoints"):
            break
    else:
        pytest.fail("three runs were never caught while they saved")
    assert len(timeless(tmp_path)) > len(saved(tmp_path))
    # What is written and not yet saved does not count. A torn line does not either.
    if len(timeless(tmp_path)) < 4:
        killed("metrics 3")
        assert len(timeless(tmp_path)) == 4 and saved(tmp_path)[-1] == "3"
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write('{"iteration": 4, "rollout/succ')
    finish(start(f"--workdir={tmp_path}", script=SCRIPTED))

    assert timeless(tmp_path) == timeless(finished)
    assert rows(tmp_path / "tasks.jsonl") == rows(finished / "tasks.jsonl")
    assert trajectories(tmp_path) == trajectories(finished)
    assert saved(tmp_path) == saved(finished)
    host = [
        (folder / "checkpoints" / "4" / "host" / "metadata").read_text() for folder in (tmp_path, finished)
    ]
    assert host[0] == host[1]


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was trained")

    monkeypatch.setattr(warm_start, "fit", fail)
    monkeypatch.setattr("rlanything_jax.loop.train_epoch", fail)


def test_more_iterations_continue_a_run(finished: Path, copied: Path, tiny: ConfigDict) -> None:
    pytest.importorskip("tensorboardX", reason="TensorBoard events need the dev extra")
    tiny.iterations = 5
    tiny.record_rollouts = 0
    tiny.tensorboard = True
    last = train(tiny, str(copied))
    assert last["iteration"] == 4
    assert timeless(copied)[:4] == timeless(finished)
    assert [row["iteration"] for row in timeless(copied)] == [0, 1, 2, 3, 4]
    assert last["tasks/accepted_total"] >= timeless(finished)[-1]["tasks/accepted_total"]
    assert trajectories(copied) == trajectories(finished) | {"00004.jsonl": []}
    assert saved(copied)[-1] == "5"
    assert json.loads((copied / "config.json").read_text())["iterations"] == 5
    (events,) = (copied / "tensorboard").iterdir()
    assert b"rollout/success" in events.read_bytes()


def test_a_finished_run_is_only_shown(
    finished: Path, copied: Path, tiny: ConfigDict, no_training: None
) -> None:
    (copied / "report.html").unlink()
    assert train(tiny, str(copied)) == rows(finished / "metrics.jsonl")[-1]
    assert timeless(copied) == timeless(finished) and (copied / "report.html").exists()
    assert rows(copied / "tasks.jsonl") == rows(finished / "tasks.jsonl")


def test_a_directory_of_another_config_is_refused_and_told_apart(
    copied: Path, tiny: ConfigDict, no_training: None
) -> None:
    tiny.update_from_flattened_dict({"policy.learning_rate": 0.5, "seed": 7, "iterations": 9})
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(ValueError) as error:
        train(tiny, str(copied))
    message = str(error.value)
    assert str(copied) in message and "--overwrite" in message and "--workdir" in message
    assert "policy.learning_rate" in message and "seed" in message and "judge" not in message
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before


def test_overwrite_deletes_another_run(copied: Path, tiny: ConfigDict) -> None:
    tiny.update(seed=0, iterations=1, record_rollouts=1)
    tiny.policy.learning_rate = 0.001
    train(tiny, str(copied), overwrite=True)
    assert len(timeless(copied)) == 1 and saved(copied) == ["1"]
    assert list(trajectories(copied)) == ["00000.jsonl"]
    config = json.loads((copied / "config.json").read_text())
    assert config["policy"]["learning_rate"] == 0.001


def test_overwrite_keeps_what_can_be_continued(
    finished: Path, copied: Path, tiny: ConfigDict, no_training: None
) -> None:
    train(tiny, str(copied), overwrite=True)
    assert timeless(copied) == timeless(finished)


def test_a_checkpoint_of_another_model_is_refused_by_name(
    copied: Path, tiny: ConfigDict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.model.ff_dim = 48
    config = json.loads((copied / "config.json").read_text())
    config["model"]["ff_dim"] = 48
    (copied / "config.json").write_text(json.dumps(config))
    tiny.pretrain.cache = config["pretrain"]["cache"]
    monkeypatch.setattr(warm_start, "fit", lambda params, *args, **kwargs: params)
    monkeypatch.setattr(warm_start, "rollout", lambda *args, **kwargs: [])
    monkeypatch.setattr("rlanything_jax.loop.train_epoch", None)
    with pytest.raises(
        ValueError, match=r"checkpoint 4 in .*w_down.* is float32\[1, 32, 32\] there, float32\[1, 48, 32\]"
    ):
        train(tiny, str(copied))


def save_games(folder: Path, *splits: str) -> None:
    for split in splits:
        for seed in range(2):
            path = folder / split / f"trial_{seed}" / "game.tw-pddl"
            path.parent.mkdir(parents=True)
            generate(seed, room="kitchen", receptacles=5, objects=4).save(path)


def test_stored_games_are_played(
    tmp_path: Path, setting: Setting, tiny: ConfigDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generated games, written in the format of the released ones: they are the same games."""
    played = {}
    for split in ("train", "valid_seen", "valid_unseen"):
        for i, task in enumerate(setting.world.tasks(split)):
            path = tmp_path / "games" / split / f"trial_{i}" / "game.tw-pddl"
            path.parent.mkdir(parents=True)
            setting.world.game(task).save(path)
            played[f"{split}/trial_{i}"] = task.instruction
    tiny.update(iterations=1, adapt_tasks=False)
    tiny.world.data = str(tmp_path / "games")
    monkeypatch.setattr(warm_start, "fit", lambda params, *args, **kwargs: params)
    tiny.pretrain.cache = str(tmp_path / "cache")
    assert train(tiny, str(tmp_path / "run"))["iteration"] == 0
    written = trajectories(tmp_path / "run")["00000.jsonl"]
    assert {row["kind"] for row in written} == {"train", "eval"}
    assert all(played[row["task"]] == row["instruction"] for row in written)


@pytest.mark.parametrize("broken", ["empty", "missing", "truncated", "other splits"])
def test_data_that_cannot_be_played_is_an_error_before_training(
    tmp_path: Path, tiny: ConfigDict, no_training: None, broken: str
) -> None:
    games, run = tmp_path / "games", tmp_path / "run"
    named = games / "train"
    if broken == "empty":
        named.mkdir(parents=True)
    elif broken == "truncated":
        save_games(games, "train", "valid_seen", "valid_unseen")
        named = named / "trial_1" / "game.tw-pddl"
        whole = named.read_bytes()
        named.write_bytes(whole[: len(whole) - 100])
    elif broken == "other splits":
        save_games(games, "train", "valid_seen")
        named = games / "valid_unseen"
    tiny.world.data = str(games)
    with pytest.raises((ValueError, FileNotFoundError), match=str(named)):
        train(tiny, str(run))
    assert not (run / "metrics.jsonl").exists() and not (run / "checkpoints" / "1").exists()
    # The fixed command is not refused for what the failed one left behind.
    tiny.world.data = ""
    tiny.iterations = 1
    with pytest.raises(AssertionError, match="something was trained"):
        train(tiny, str(run))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollouts_per_task": 1}, "config.rollouts_per_task=1: .*at least 2"),
        ({"votes_per_step": 0}, "config.votes_per_step=0: "),
        ({"adapt.low": 0.9}, "config.adapt.low=0.9: .*low < high"),
        ({"world.name": "webshop"}, "world.name='webshop' is unknown: choose one of alfworld"),
        ({"model.heads": 3, "model.kv_heads": 2}, "model.heads=3 must be a multiple"),
        ({"world.games.valid_seen": 0}, "valid_seen"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else " ",
)
def test_an_option_that_cannot_work_is_an_error_before_training(
    tmp_path: Path, tiny: ConfigDict, no_training: None, changes: dict[str, Any], message: str
) -> None:
    tiny.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=message):
        train(tiny, str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--config.rollouts_per_task=1", "error: config.rollouts_per_task=1: "),
        ("--config.world.data=/nowhere", "error: /nowhere/train is not a folder"),
    ],
)
def test_an_error_is_one_line_and_exit_status_one(
    start: Start, tmp_path: Path, flag: str, message: str
) -> None:
    process = start(f"--workdir={tmp_path}", flag)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith(message) and err.count("\n") == 1
    assert "Traceback" not in out and not (tmp_path / "metrics.jsonl").exists()


def test_a_key_that_does_not_exist_is_named(start: Start, tmp_path: Path) -> None:
    process = start(f"--workdir={tmp_path}", "--config.rollouts_per_tsak=4")
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "rollouts_per_tsak" in err and "rollouts_per_task" in err
    assert not list(tmp_path.iterdir())
