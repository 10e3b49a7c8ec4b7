"""The table of adapted tasks: how many, how hard, how diverse, from the rows of the arms that adapt."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from benchmarks.claims.rows import Results, Row
from benchmarks.claims.stats import Interval, bootstrap, entropy, line

PERIODS = 3


def linearity(row: Row) -> tuple[float, float]:
    """(accepted tasks an iteration, R^2 of the line) of a run; (0, 1) where it has one iteration."""
    x, y = row["curves"]["tasks/accepted_total"]
    return line(x, y) if len(x) > 1 else (0.0, 1.0)


def success_by_period(row: Row) -> list[float | None]:
    """Success on accepted rewrites that were drawn again, in each third of the run; None where none were."""
    x, y = row["curves"].get("rollout/success_rewritten", ([], []))
    parts: list[list[float]] = [[] for _ in range(PERIODS)]
    for iteration, value in zip(x, y, strict=True):
        parts[min(PERIODS * iteration // row["iterations"], PERIODS - 1)].append(value)
    return [sum(part) / len(part) if part else None for part in parts]


def diversity(accepted: Sequence[Row]) -> tuple[float, float]:
    """Entropy, in bits, over the kinds of edits and over the families of tasks."""
    return tuple(
        entropy([*collections.Counter(e[key] for e in accepted).values()]) for key in ("edit", "family")
    )  # type: ignore[return-value]


def solvable(row: Row) -> float | None:
    """Share of the proposals that the planner solves; None without proposals."""
    proposed = row["audit"].get("proposed", 0)
    return 1 - row["audit"].get("fault: unsolvable", 0) / proposed if proposed else None


def tasks_body(results: Results, arms: Sequence[str]) -> list[str]:
    (arm,) = arms
    rows = list(results.rows(arm).values())
    fits = [linearity(row) for row in rows]
    lines = [
        "| | mean over seeds |",
        "|---|---|",
        f"| seeds | {len(rows)} |",
        f"| accepted an iteration (slope of the line) | {_shown([slope for slope, _ in fits])} |",
        f"| R^2 of the line | {_shown([r2 for _, r2 in fits])} |",
        f"| accepted, of proposed | {_ratio(rows)} |",
        f"| solvable by the planner | {_shown([s for row in rows if (s := solvable(row)) is not None])} |",
    ]
    for third, values in enumerate(zip(*map(success_by_period, rows), strict=True)):
        there = [value for value in values if value is not None]
        lines.append(f"| success on accepted ones, third {third + 1} of the run | {_shown(there)} |")
    generations = sorted({e["generation"] for row in rows for e in row["accepted"]})
    lines += [
        "",
        "Diversity of the accepted rewrites, entropy in bits, over all seeds together (a collapse to one kind is 0):",
        "",
        "| which | rewrites | kinds of edits | families of tasks |",
        "|---|---|---|---|",
    ]
    accepted = [
        {**e, "third": min(PERIODS * e["iteration"] // row["iterations"], 2)}
        for row in rows
        for e in row["accepted"]
    ]
    groups = [(f"generation {g}", [e for e in accepted if e["generation"] == g]) for g in generations]
    groups += [
        (f"third {t + 1} of the run", [e for e in accepted if e["third"] == t]) for t in range(PERIODS)
    ]
    for name, of_group in [*groups, ("all", accepted)]:
        edits, families = diversity(of_group)
        lines.append(f"| {name} | {len(of_group)} | {edits:.2f} | {families:.2f} |")
    common = collections.Counter(e["edit"] for e in accepted).most_common(6)
    if common:
        lines += ["", f"Commonest edits: {', '.join(f'{name} ({count})' for name, count in common)}."]
    return lines


def _ratio(rows: Sequence[Row]) -> str:
    accepted, proposed = (sum(row["audit"].get(name, 0) for row in rows) for name in ("accepted", "proposed"))
    return f"{accepted} of {proposed}"


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "none"
    found: Interval = bootstrap(values)
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
