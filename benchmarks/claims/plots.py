"""One picture a table, in the style of the reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from benchmarks.claims.rows import Results
from benchmarks.claims.theory import points
from rlanything_jax.report.picture import BLUE, GREEN, INK, ORANGE, SOFT, STYLE
from rlanything_jax.report.read import moving_average

COLORS = (INK, BLUE, ORANGE, GREEN, "#8a4fa3", "#b08b1e", "#3a9aa8", "#a33b4f")
_SMOOTH = 5  # iterations, of what is measured in training
# Metric, title and smoothing of the panels of each table; the others have those of "ablation".
PANELS: dict[str, list[tuple[str, str, int]]] = {
    "ablation": [
        ("eval/success", "Success, held out", 1),
        ("judge/balanced_accuracy", "Judge, process accuracy", _SMOOTH),
    ],
    "tasks": [
        ("tasks/accepted_total", "Accepted rewrites", 1),
        ("rollout/success_rewritten", "Success on them", _SMOOTH),
    ],
    "judge": [("judge/balanced_accuracy", "Process accuracy", _SMOOTH), ("judge/auc", "AUC", _SMOOTH)],
}


def draw(table: str, results: Results, arms: Sequence[str], path: Path) -> bool:
    """Draws the finished arms of a table to `path` (.svg); False where they have nothing to draw."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 3.0), dpi=200, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        if table == "theory":
            drawn = _bounds(figure.subplots(), results)
        else:
            panels = PANELS.get(table, PANELS["ablation"])
            drawn = False
            for axes, (key, title, window) in zip(figure.subplots(1, len(panels)), panels, strict=True):
                for arm, color in zip(arms, COLORS * 3, strict=False):
                    drawn |= _curve(axes, results, arm, key, window, color)
                axes.set_title(title)
                axes.set_xlabel("iteration")
                axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
                if not key.startswith("tasks/"):
                    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            figure.axes[0].legend(fontsize=6.5, handlelength=1.2)
        if drawn:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, metadata={"Date": None})
    return drawn


def _curve(axes: Axes, results: Results, arm: str, key: str, window: int, color: str) -> bool:
    """The mean over seeds of a smoothed metric, with its range."""
    curves = [
        dict(zip(*row["curves"][key], strict=True))
        for row in results.rows(arm).values()
        if key in row["curves"]
    ]
    shared = sorted(set.intersection(*map(set, curves))) if curves else []
    if not shared:
        return False
    values = np.array([moving_average([curve[i] for i in shared], window) for curve in curves])
    axes.plot(shared, values.mean(0), color=color, linewidth=1.6, label=arm.rpartition("/")[2])
    if len(curves) > 1:
        axes.fill_between(shared, values.min(0), values.max(0), color=color, alpha=0.10, linewidth=0)
    return True


def _bounds(axes: Axes, results: Results) -> bool:
    """Every iteration's precision over mu with its two bounds, which depend on the votes a step."""
    found = points(results.all_rows())
    if not found:
        return False
    mu, precision, _, paper, hoeffding = np.array(found).T
    axes.scatter(mu, precision, s=5, color=INK, alpha=0.35, linewidths=0, label="measured")
    axes.scatter(mu, hoeffding, s=4, color=ORANGE, linewidths=0, label="Hoeffding's bound")
    axes.scatter(mu, paper, s=4, color=BLUE, linewidths=0, label="the paper's bound")
    axes.axvline(1.0, color=SOFT, linestyle=":", linewidth=1)
    axes.set_title("Reward precision")
    axes.set_xlabel("μ = p₊ + p₋")
    axes.legend(fontsize=7)
    return True
