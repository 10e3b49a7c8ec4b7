"""What is kept of a finished run: one small JSON file, with all that tables and plots need."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.adaptation import audit
from rlanything_jax.report.read import read_run, series
from rlanything_jax.report.summary import before_after

ROOT = Path(__file__).resolve().parents[2]
CURVES = (
    "eval/success",
    "eval/success_ood",
    "eval/success_greedy",
    "eval/inadmissible",
    "rollout/success",
    "rollout/success_rewritten",
    "rollout/inadmissible",
    "judge/balanced_accuracy",
    "judge/auc",
    "judge/outcome_accuracy",
    "judge/p_plus",
    "judge/p_minus",
    "judge/mu",
    "theory/precision",
    "theory/precision_exact",
    "theory/bound_paper",
    "theory/bound_hoeffding",
    "theory/importance_ratio",
    "tasks/accepted_total",
)
# Of benchmarks.process_accuracy: the judge of the start (before) and of the end (after) on the same held-out episodes.
PROCESS = ("balanced_accuracy", "auc", "outcome_accuracy")
EPISODES = {"first": "start", "last": "eval"}  # of the policy of the start, of that of the end
_DIGITS = 4

Row = dict[str, Any]


def make_row(folder: Path, *, arm: str, mark: str, seed: int, judged: Sequence[Row] = ()) -> Row:
    """The row of the finished run in `folder`.

    mark: its `config_hash`. judged: what benchmarks.process_accuracy says of it; as 'start/auc' and so on in 'before' and
      'after' on episodes of the policy that the run began with, as 'eval/auc' on those of the policy that it ended with.
    """
    run = read_run(folder)
    curves = {key: series(run.metrics, key) for key in CURVES}
    measured = {key: found for key in CURVES if (found := before_after(run.metrics, key))}
    total = {
        name: sum(series(run.metrics, key)[1])
        for name, key in (("seconds", "time/iteration_s"), ("tokens", "rollout/tokens"))
    }
    row = {
        "arm": arm,
        "hash": mark,
        "seed": seed,
        "commit": commit(),
        "iterations": len(run.metrics),
        "votes_per_step": run.config["votes_per_step"],
        "seconds": round(total["seconds"], 1),
        "tokens": round(total["tokens"]),
        "before": {key: round(found[0], _DIGITS) for key, found in measured.items()},
        "after": {key: round(found[1], _DIGITS) for key, found in measured.items()},
        "curves": {key: [x, [round(v, _DIGITS) for v in y]] for key, (x, y) in curves.items() if x},
    }
    for found in judged:
        when = "before" if found["judge"] == "first" else "after"
        names = {name: found.get(f"judge/{name}") for name in PROCESS}
        row[when] |= {
            f"{EPISODES[found['policy']]}/{n}": round(v, _DIGITS) for n, v in names.items() if v is not None
        }
    if run.config["adapt_tasks"]:
        row["accepted"] = [_accepted(event) for event in run.events if event["event"] == "accepted"]
        row["audit"] = {name: count for name, count in sorted(audit(folder).items()) if count}
    return row


def _accepted(event: Mapping[str, Any]) -> Row:
    """Of a rewrite: when, how deep, by which verb of the edits, of which family of tasks, and its success then."""
    verbs = sorted({change.split()[0] for change in event["edit"].split(";") if change.split()})
    family = event["parent"].partition("#")[0].rpartition("/")[2].partition("-")[0]
    kept = {key: event[key] for key in ("iteration", "generation", "direction", "accuracy_after")}
    return kept | {"edit": "+".join(verbs), "family": family}


def commit() -> str:
    """The commit of the working tree, with '+' where files differ from it; 'unknown' outside of git."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def row_path(results: Path, arm: str, mark: str, seed: int) -> Path:
    """Where a row goes; slashes of an arm's name are dots."""
    return results / f"{arm.replace('/', '.')}.{mark}.{seed}.json"


def find_row(results: Path, mark: str, seed: int) -> Path | None:
    """The row of a config and a seed, under whichever arm's name it was made."""
    return next(iter(sorted(results.glob(f"*.{mark}.{seed}.json"))), None)


def write_row(path: Path, row: Row) -> None:
    """Whole or not at all; a list of numbers to a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in row.items()]
    partial.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    partial.replace(path)


class Results:
    """The finished rows of arms under their present configs, read once."""

    def __init__(self, folder: Path, marks: Mapping[str, str]) -> None:
        self.marks = dict(marks)  # arm -> config hash
        self._rows: dict[str, dict[int, Row]] = {}  # by hash and seed
        for path in sorted(folder.glob("*.json")):
            row = json.loads(path.read_text())
            self._rows.setdefault(row["hash"], {})[row["seed"]] = row
        self.stale = sorted(
            {
                row["arm"]
                for mark, rows in self._rows.items()
                if mark not in self.marks.values()
                for row in rows.values()
            }
        )

    def rows(self, arm: str) -> dict[int, Row]:
        """The rows of an arm by seed."""
        return self._rows.get(self.marks.get(arm, ""), {})

    def values(self, arm: str, key: str, when: str = "after") -> dict[int, float]:
        """A metric of an arm by seed, where it was measured."""
        return {seed: row[when][key] for seed, row in self.rows(arm).items() if key in row.get(when, {})}

    def all_rows(self) -> list[Row]:
        """Every row of a present config, once."""
        return [row for mark in sorted(set(self.marks.values())) for row in self._rows.get(mark, {}).values()]
