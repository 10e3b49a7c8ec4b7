"""One figure of how policy, judge and tasks learn together, over one run or several seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlanything_jax.report.curves import average_window
from rlanything_jax.report.read import Run, moving_average, series

BLUE, ORANGE, GREEN, INK, SOFT = "#2463a8", "#cf5c26", "#23876a", "#2b2e34", "#62666e"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#b9bcc2",
    "axes.labelcolor": SOFT,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#ededea",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "rlanything_jax",  # the same runs give the same file
}


def learning_picture(runs: Sequence[Run], path: str | Path) -> Path:
    """Draw three panels (policy, judge, tasks) to `path` (.svg, .png or .pdf) and return it.

    Every run is a thin line and their mean over the iterations that all runs reached a thick one. Raises
    ValueError for no runs or another kind of file.
    """
    path = Path(path)
    if not runs:
        raise ValueError("a picture needs at least one run; pass --workdir=DIR")
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"cannot draw {path}: name the picture .svg, .png or .pdf")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 2.9), dpi=200, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        policy, judge, tasks = figure.subplots(1, 3)
        smooth = average_window(runs[0].metrics)
        _curve(policy, runs, "rollout/success", BLUE, "training rollouts", smooth)
        _curve(policy, runs, "eval/success", INK, "held out", 1, marker="o")
        _curve(policy, runs, "eval/success_ood", ORANGE, "held out, OOD", 1, marker="o")
        _curve(policy, runs, "rollout/inadmissible", SOFT, "inadmissible actions", smooth, linestyle="--")
        policy.set_title("Policy")
        policy.set_ylim(0, 1)
        policy.yaxis.set_major_formatter(PercentFormatter(1.0))
        if any(series(run.metrics, "judge/test_accuracy")[0] for run in runs):
            _curve(judge, runs, "judge/test_accuracy", ORANGE, "true tests", smooth)
            _curve(judge, runs, "judge/detect_rate", BLUE, "that detect every wrong program", smooth)
            _curve(judge, runs, "eval/test_accuracy", ORANGE, "held out", 1, marker="o")
            _curve(judge, runs, "eval/detect_rate", BLUE, "held out", 1, marker="o")
            judge.set_title("Unit tests")
            judge.set_ylim(0, 1)
            judge.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            _curve(judge, runs, "judge/balanced_accuracy", ORANGE, "balanced accuracy", smooth)
            _curve(judge, runs, "judge/auc", INK, "AUC", smooth)
            judge.axhline(0.5, color=SOFT, linestyle=":", linewidth=1)
            judge.set_title("Judge")
        _curve(tasks, runs, "tasks/accepted_total", GREEN, "accepted rewrites", 1)
        tasks.set_title("Tasks")
        tasks.set_ylim(bottom=0)
        for axes in (policy, judge, tasks):
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="best", handlelength=1.4)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def _curve(
    axes: Axes,
    runs: Sequence[Run],
    key: str,
    color: str,
    label: str,
    window: int,
    *,
    marker: str = "",
    linestyle: str = "-",
) -> None:
    """Smoothed `key` of every run, thin where there are several, and their mean."""
    lines = [(x, moving_average(y, window)) for run in runs for x, y in [series(run.metrics, key)] if x]
    if not lines:
        return
    if len(lines) > 1:
        for x, y in lines:
            axes.plot(x, y, color=color, linewidth=0.8, alpha=0.35, linestyle=linestyle)
    shared = sorted(set.intersection(*(set(x) for x, _ in lines)))
    mean = np.mean([[dict(zip(x, y, strict=True))[i] for i in shared] for x, y in lines], axis=0)
    few = marker if len(shared) <= 40 else ""
    axes.plot(
        shared, mean, color=color, linewidth=1.8, label=label, marker=few, markersize=3.2, linestyle=linestyle
    )
