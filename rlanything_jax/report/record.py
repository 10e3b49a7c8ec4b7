"""The writing side of a run directory: metrics, tasks, trajectories; cut back to a checkpoint on resume."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Recorder:
    """Appends one iteration at a time; opening it at iteration i forgets what was written for i and later."""

    def __init__(self, workdir: str, iteration: int, events: Sequence[Mapping[str, Any]]) -> None:
        self._folder = Path(workdir)
        self._trajectories = self._folder / "trajectories"
        self._trajectories.mkdir(parents=True, exist_ok=True)
        for path in self._trajectories.glob("*.jsonl"):
            if int(path.stem) >= iteration:
                path.unlink()
        metrics = self._folder / "metrics.jsonl"
        _replace(metrics, [row for row in _complete(metrics) if row["iteration"] < iteration])
        _replace(self._folder / "tasks.jsonl", events)

    def metrics(self, row: Mapping[str, Any]) -> None:
        _append(self._folder / "metrics.jsonl", [row])

    def tasks(self, events: Sequence[Mapping[str, Any]]) -> None:
        _append(self._folder / "tasks.jsonl", events)

    def trajectories(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        _replace(self._trajectories / f"{iteration:05d}.jsonl", rows)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a JSON file so that a reader sees the old one or the new one, never half of it."""
    _write(Path(path), json.dumps(value, indent=2, sort_keys=True) + "\n")


def _complete(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that may not exist, or whose last line a kill may have torn."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with open(path, "a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _replace(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    _write(path, "".join(json.dumps(row) + "\n" for row in rows))


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text)
    os.replace(partial, path)
