"""Theorem 1 against the measured precision, Theorem 2 against tasks that are held too easy or too hard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.claims.rows import Results, Row
from benchmarks.claims.stats import bootstrap

EDGES = (0.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 2.0)  # of mu


class Point(NamedTuple):
    """One iteration of one run; see `theory.theory_metrics`."""

    mu: float
    precision: float
    exact: float
    paper: float
    hoeffding: float


def points(rows: Sequence[Row]) -> list[Point]:
    """All iterations with votes of all rows."""
    keys = (
        "judge/mu",
        "theory/precision",
        "theory/precision_exact",
        "theory/bound_paper",
        "theory/bound_hoeffding",
    )
    found = []
    for row in rows:
        if all(key in row["curves"] for key in keys):
            found += [Point(*values) for values in zip(*(row["curves"][key][1] for key in keys), strict=True)]
    return found


def bins(found: Sequence[Point]) -> list[tuple[str, int, Point, float, float]]:
    """By mu: (range, iterations, means, share of the iterations below the paper's bound, and below Hoeffding's)."""
    lines = []
    for low, high in zip(EDGES, EDGES[1:], strict=False):
        inside = np.array([p for p in found if low <= p.mu < high or p.mu == high == EDGES[-1]])
        if len(inside):
            mean = Point(*map(float, inside.mean(0)))
            below = [float(np.mean(inside[:, 1] < inside[:, column])) for column in (3, 4)]
            lines.append((f"{low:g}-{high:g}", len(inside), mean, *below))
    return lines


def theory_body(results: Results, arms: Sequence[str]) -> list[str]:
    lines = [
        "Theorem 1, over all iterations of all finished runs, whatever their votes a step: the measured precision (a tie is a "
        "miss), what it would be if all votes of a class were alike ('exact'), and the two lower bounds.",
        "",
        "| mu | iterations | precision | exact | paper's bound | Hoeffding's | below the paper's | below Hoeffding's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, count, mean, paper, hoeffding in bins(points(results.all_rows())):
        values = (mean.precision, mean.exact, mean.paper, mean.hoeffding)
        lines.append(
            f"| {name} | {count} | {' | '.join(f'{v:.3f}' for v in values)} | {paper:.0%} | {hoeffding:.0%} |"
        )
    lines += [
        "",
        "Below a bound means that the theorem's assumption fails: p+ and p- are not the same for all steps of a class.",
        "",
        "Theorem 2, tasks held too easy (all instructions say where the target is) or too hard (none does, ten receptacles). "
        "Accuracies are on episodes of the same kind of games, so only before and after compare.",
        "",
        "| tasks | seeds | success in training | importance ratio | process accuracy | AUC | p+ | p- |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in arms:
        rows = results.rows(arm).values()
        if rows:
            ratio = bootstrap(
                [float(np.median(row["curves"]["theory/importance_ratio"][1])) for row in rows]
            ).mean
            cells = [
                _change(results, arm, key)
                for key in ("eval/balanced_accuracy", "eval/auc", "judge/p_plus", "judge/p_minus")
            ]
            success = _change(results, arm, "rollout/success")
            lines.append(
                f"| {arm.rpartition('/')[2]} | {len(rows)} | {success} | {ratio:.2f} | {' | '.join(cells)} |"
            )
    return lines


def _change(results: Results, arm: str, key: str) -> str:
    before, after = (list(results.values(arm, key, when).values()) for when in ("before", "after"))
    return f"{np.mean(before):.3f} -> {np.mean(after):.3f}" if before and after else ""
