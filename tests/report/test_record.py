"""The writing side of a run directory: appended while it runs, cut back where it resumes."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlanything_jax.report.record import Recorder, write_json


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_iterations(folder: Path, *iterations: int) -> Recorder:
    recorder = Recorder(str(folder), iterations[0], [])
    for i in iterations:
        recorder.metrics({"iteration": i, "loss": i / 2})
        recorder.tasks([{"event": "proposed", "iteration": i}, {"event": "accepted", "iteration": i}])
        recorder.trajectories(i, [{"iteration": i, "rollout": j} for j in range(2)])
    return recorder


def test_a_fresh_run_writes_one_line_an_iteration(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    write_iterations(folder, 0, 1, 2)
    assert rows(folder / "metrics.jsonl") == [{"iteration": i, "loss": i / 2} for i in range(3)]
    assert len(rows(folder / "tasks.jsonl")) == 6
    assert [p.name for p in sorted((folder / "trajectories").iterdir())] == [
        "00000.jsonl", "00001.jsonl", "00002.jsonl",
    ]  # fmt: skip
    assert rows(folder / "trajectories" / "00001.jsonl") == [{"iteration": 1, "rollout": j} for j in range(2)]


def test_a_resumed_run_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    """Else the repeated iterations are in every curve twice."""
    write_iterations(tmp_path, 0, 1, 2, 3)
    events = [{"event": "proposed", "iteration": 0}, {"event": "rejected", "iteration": 1}]
    Recorder(str(tmp_path), 2, events)
    assert [row["iteration"] for row in rows(tmp_path / "metrics.jsonl")] == [0, 1]
    assert rows(tmp_path / "tasks.jsonl") == events
    assert sorted(p.name for p in (tmp_path / "trajectories").iterdir()) == ["00000.jsonl", "00001.jsonl"]


def test_an_interrupted_run_has_the_files_of_one_that_was_not(tmp_path: Path) -> None:
    write_iterations(tmp_path / "whole", 0, 1, 2)
    write_iterations(tmp_path / "killed", 0, 1)
    checkpointed = rows(tmp_path / "killed" / "tasks.jsonl")[:2]
    recorder = Recorder(str(tmp_path / "killed"), 1, checkpointed)
    for i in (1, 2):
        recorder.metrics({"iteration": i, "loss": i / 2})
        recorder.tasks([{"event": "proposed", "iteration": i}, {"event": "accepted", "iteration": i}])
        recorder.trajectories(i, [{"iteration": i, "rollout": j} for j in range(2)])
    for path in (tmp_path / "whole").rglob("*.jsonl"):
        other = tmp_path / "killed" / path.relative_to(tmp_path / "whole")
        assert other.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("resume", [2, 3])
def test_killed_mid_write_of_the_last_line(tmp_path: Path, resume: int) -> None:
    """Case 24: a torn last line is dropped, whether its iteration is repeated or not, and nothing is glued to
    it.
    """
    write_iterations(tmp_path, 0, 1)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 2, "lo')
    recorder = Recorder(str(tmp_path), resume, [])
    assert [row["iteration"] for row in rows(tmp_path / "metrics.jsonl")] == [0, 1]
    recorder.metrics({"iteration": resume})
    assert [row["iteration"] for row in rows(tmp_path / "metrics.jsonl")] == [0, 1, resume]


def test_a_missing_line_does_not_keep_a_later_one(tmp_path: Path) -> None:
    """Lines are cut by the iteration they name, not by their number."""
    write_iterations(tmp_path, 0, 1, 2, 3)
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([lines[0], *lines[2:]]))
    Recorder(str(tmp_path), 3, [])
    assert [row["iteration"] for row in rows(metrics)] == [0, 2]


def test_a_fresh_run_eats_stale_rollouts_in_its_folder(tmp_path: Path) -> None:
    """Case 24: starting at 0 in a used folder keeps nothing of the other run."""
    write_iterations(tmp_path, 0, 1, 2)
    Recorder(str(tmp_path), 0, [])
    assert rows(tmp_path / "metrics.jsonl") == rows(tmp_path / "tasks.jsonl") == []
    assert list((tmp_path / "trajectories").iterdir()) == []


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    write_json(path, {"b": 1, "a": [1, None]})
    assert json.loads(path.read_text()) == {"a": [1, None], "b": 1}
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "write_text", lambda self, text: Path.write_bytes(self, text[:5].encode()) and 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": [1, None], "b": 1}
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": [1, None], "b": 1}
