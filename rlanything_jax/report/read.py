"""Reads a run directory, finished or still going: metrics, task events, config and a sample of trajectories.

A line that cannot be parsed (the torn last line of a run that was killed or is being written) is skipped.
Only a handful of trajectory files are opened, so a run of any length is read in seconds.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

EDGE_FILES = (
    3  # trajectory files opened at each end of the run, besides the first and last evaluated iterations
)
ROWS_PER_FILE = 512


@dataclass(frozen=True)
class Run:
    """What a run directory holds.

    metrics: one row an iteration, sorted; where a resumed run repeated an iteration, the row logged last.
    events: the task pool's log in order. trajectories: rows of the first, last and evaluated iterations.
    unread: number of lines that were not JSON objects.
    """

    folder: Path
    metrics: list[Row]
    events: list[Row]
    trajectories: list[Row]
    config: Row
    unread: int


def read_run(folder: str | Path) -> Run:
    """Read the run directory `folder`.

    Raises FileNotFoundError where it has no metrics.jsonl, ValueError where that has no complete line yet.
    """
    folder = Path(folder)
    path = folder / "metrics.jsonl"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} is not a run directory: it has no metrics.jsonl; pass the --workdir of a run"
        )
    rows, unread = _read_lines(path)
    by_iteration = {int(row["iteration"]): row for row in rows if _number(row.get("iteration")) is not None}
    metrics = [by_iteration[i] for i in sorted(by_iteration)]
    if not metrics:
        raise ValueError(
            f"{path} has no complete line with an 'iteration' yet; wait for the first iteration to end"
        )
    events, unread_events = _read_lines(folder / "tasks.jsonl")
    trajectories, unread_trajectories = _read_trajectories(folder / "trajectories", metrics)
    return Run(
        folder=folder,
        metrics=metrics,
        events=_without_repeats(events),
        trajectories=trajectories,
        config=_read_config(folder / "config.json"),
        unread=unread + unread_events + unread_trajectories,
    )


def series(metrics: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Iterations and values of `key`, leaving out the rows where it is absent, null or not finite."""
    points = [(int(row["iteration"]), _number(row.get(key))) for row in metrics]
    kept = [(x, y) for x, y in points if y is not None]
    return [x for x, _ in kept], [y for _, y in kept]


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Trailing mean over up to `window` values; same length as `values`."""
    return [
        sum(tail) / len(tail) for i in range(len(values)) for tail in [values[max(0, i + 1 - window) : i + 1]]
    ]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings to one level with sorted dotted keys: {'adapt': {'low': 0}} -> {'adapt.low': 0}."""
    flat: dict[str, Any] = {}
    for key in sorted(tree, key=str):
        if isinstance(tree[key], Mapping) and tree[key]:
            flat |= flatten(tree[key], f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = tree[key]
    return flat


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _read_lines(path: Path, limit: int | None = None) -> tuple[list[Row], int]:
    """The JSON objects of a JSONL file (none if absent) and how many of its lines were not one."""
    rows: list[Row] = []
    unread = 0
    if not path.is_file():
        return rows, unread
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if limit is not None and len(rows) >= limit:
                break
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict):
                rows.append(row)
            else:
                unread += 1
    return rows, unread


def _read_config(path: Path) -> Row:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _read_trajectories(folder: Path, metrics: Sequence[Row]) -> tuple[list[Row], int]:
    files = {int(path.stem): path for path in folder.glob("*.jsonl") if path.stem.isdigit()}
    order = sorted(files)
    evaluated = [i for i in series(metrics, "eval/success")[0] if i in files]
    chosen = {*order[:EDGE_FILES], *order[-EDGE_FILES:], *evaluated[:1], *evaluated[-1:]}
    rows: list[Row] = []
    unread = 0
    for iteration in sorted(chosen):
        found, bad = _read_lines(files[iteration], limit=ROWS_PER_FILE)
        rows += [{**row, "iteration": iteration} for row in found if isinstance(row.get("steps"), list)]
        unread += bad
    return rows, unread


def _without_repeats(events: Sequence[Row]) -> list[Row]:
    """A resumed run logs again what it did after its last checkpoint; keep each event once."""
    unique = {json.dumps(event, sort_keys=True): event for event in events}
    return list(unique.values())
