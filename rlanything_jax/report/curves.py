"""Which curves of metrics.jsonl the report shows: the three parts that learn, the theory and the time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from statistics import median
from typing import Any

from rlanything_jax.report.charts import FORMATS, Series, Style, line_chart, sparkline, stacked
from rlanything_jax.report.read import moving_average, series

Metrics = Sequence[Mapping[str, Any]]

PHASES = {"rollout": 1, "judge": 2, "train": 3, "adapt": 4, "env": 5}  # time/NAME_s and its colour
BARS = 40  # at most this many bars in the chart of rewrites
MAX_OTHER = 60  # metrics outside the standard ones that get a small chart


def curves(metrics: Metrics) -> str:
    """The section of charts: a column each for policy, judge and tasks, then time, then every other key."""
    window = average_window(metrics)
    group = math.ceil(len(metrics) / BARS)

    def raw_and_average(key: str, name: str, color: int) -> list[Series]:
        x, y = series(metrics, key)
        return [
            Series(name, x, y, color, "faint"),
            Series(f"{window}-iteration mean", x, moving_average(y, window), color),
        ]

    def curve(key: str, name: str, color: int, style: Style = "line") -> Series:
        return Series(name, *series(metrics, key), color, style)

    def counts(key: str, name: str, color: int) -> Series:
        x, y = series(metrics, key)
        sums = [sum(y[i : i + group]) for i in range(0, len(y), group)]
        return Series(
            name, [x[min(i + group, len(x)) - 1] for i in range(0, len(x), group)], sums, color, "bars"
        )

    columns = {
        "Policy": [
            line_chart(
                "Success",
                [
                    *raw_and_average("rollout/success", "training rollouts", 1),
                    curve("eval/success", "held out", 6, "marked"),
                    curve("eval/success_ood", "held out, OOD", 2, "marked"),
                ],
                note="Share of episodes that reach the goal.",
                unit="percent",
                y_range=(0, None),
                height=SUCCESS_HEIGHT,
            ),
            line_chart(
                "Inadmissible actions",
                raw_and_average("rollout/inadmissible", "share of steps", 1),
                note="Steps whose action the environment did not offer.",
                unit="percent",
                y_range=(0, None),
            ),
        ],
        "Judge": [
            line_chart(
                "Agreement with the truth",
                [
                    curve("judge/balanced_accuracy", "balanced accuracy", 2),
                    curve("judge/auc", "AUC", 6),
                    curve("judge/outcome_accuracy", "outcome accuracy", 5, "dashed"),
                ],
                note="Step verdicts against ground-truth labels; chance is 0.5.",
                rule=0.5,
            ),
            line_chart(
                "Written tests",
                [
                    curve("judge/test_accuracy", "accurate", 2),
                    curve("judge/detect_rate", "detect", 6),
                    curve("eval/test_accuracy", "accurate, held out", 3, "marked"),
                    curve("eval/detect_rate", "detect, held out", 1, "marked"),
                ],
                note="Tests that all correct programs pass; those that moreover fail all wrong ones.",
                unit="percent",
                y_range=(0, None),
            ),
            line_chart(
                "Reward precision",
                [
                    curve("judge/mu", "μ = p₊ + p₋", 2),
                    curve("judge/p_plus", "p₊", 3),
                    curve("judge/p_minus", "p₋", 4),
                ],
                note="More votes help only while μ > 1 (Theorem 1).",
                rule=1.0,
            ),
            line_chart(
                "Parsed verdicts",
                [curve("judge/parse_rate", "share of verdicts", 2)],
                unit="percent",
                y_range=(0, 1),
                height=150,
            ),
        ],
        "Tasks": [
            line_chart(
                "Rewrites" if group == 1 else f"Rewrites in every {group} iterations",
                [counts("tasks/proposed", "proposed", 5), counts("tasks/accepted", "accepted", 3)],
                unit="count",
                y_range=(0, None),
            ),
            line_chart(
                "Accepted rewrites so far",
                [curve("tasks/accepted_total", "accepted", 3)],
                unit="count",
                y_range=(0, None),
                height=150,
            ),
            line_chart(
                "Importance ratio",
                raw_and_average("theory/importance_ratio", "norm of f₊ over f₋", 3),
                note="How a task weighs the judge's two kinds of error (Theorem 2); "
                "shaded: within a factor of 4.",
                unit="ratio",
                log=True,
                band=(0.25, 4.0),
            ),
        ],
    }
    html = "".join(
        f'<section class="part"><h3>{name}</h3>{"".join(charts) or NOTHING}</section>'
        for name, charts in columns.items()
    )
    numerics = line_chart(
        "Sampler–trainer gap",
        [curve("sampler/logprob_gap", "log-probability gap", 6)],
        note="Behaviour log-probabilities against the trainer's own.",
        unit="small",
        y_range=(0, None),
    )
    system = "".join(
        f'<section class="part">{part}</section>' for part in (*_time(metrics), numerics) if part
    )
    return f'<div class="columns">{html}</div><div class="columns system">{system}</div>{_others(metrics)}'


SUCCESS_HEIGHT = 420  # beside two charts of the judge and their captions
NOTHING = '<p class="empty">Nothing logged yet.</p>'


def average_window(metrics: Metrics) -> int:
    """Iterations in the moving average of a curve: a fifteenth of the run, from 3 to 20."""
    return max(3, min(20, len(metrics) // 15))


def _time(metrics: Metrics) -> tuple[str, str]:
    """The stacked time of an iteration's phases, and the table of their medians."""
    rows = [row for row in metrics if series([row], "time/iteration_s")[1]]
    x, total = series(rows, "time/iteration_s")
    if not x:
        return "", ""
    layers = []
    for name, color in PHASES.items():
        y = [(series([row], f"time/{name}_s")[1] or [0.0])[0] for row in rows]
        if any(y):
            layers.append(Series(name, x, y, color))
    # Waiting for environments is part of the rollout where the phases alone fill the iteration; show it once.
    if median(sum(layer.y[i] for layer in layers) - t for i, t in enumerate(total)) > 0:
        env = next((layer.y for layer in layers if layer.name == "env"), [0.0] * len(x))
        layers = [
            replace(layer, y=[max(0.0, y - e) for y, e in zip(layer.y, env, strict=True)])
            if layer.name == "rollout"
            else layer
            for layer in layers
        ]
    rest = [max(0.0, t - sum(layer.y[i] for layer in layers)) for i, t in enumerate(total)]
    if median(rest) > 0.01 * median(total):
        layers.append(Series("other", x, rest, 7))
    chart = (
        line_chart("Time of an iteration", stacked(layers), unit="seconds", y_range=(0, None))
        if layers
        else ""
    )
    medians = {layer.name: (median(layer.y), layer.color) for layer in layers}
    whole = sum(seconds for seconds, _ in medians.values()) or 1.0
    body = "".join(
        f'<tr><th scope="row">{name}</th>'
        f'<td class="bar"><i style="--c:var(--s{color});width:{100 * s / whole:.1f}%"></i></td>'
        f"<td>{FORMATS['seconds'](s)}</td><td>{100 * s / whole:.0f}%</td></tr>"
        for name, (s, color) in medians.items()
    )
    table = (
        '<figure class="chart"><figcaption><h4>Where the time goes</h4><p>Median over iterations; '
        f"{_duration(sum(total))} in all.</p></figcaption>"
        f'<table class="times"><tbody>{body}</tbody></table></figure>'
    )
    return chart, table


def _duration(seconds: float) -> str:
    minutes, hours = round(seconds / 60), seconds / 3600
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{hours:.1f} h"


def _others(metrics: Metrics) -> str:
    """A small line for every numeric key that has no chart above, folded away."""
    keys = sorted({key for row in metrics for key in row} - STANDARD)
    drawn = []
    for key in keys:
        _, y = series(metrics, key)
        if y:
            show = FORMATS["number"]
            drawn.append(
                f"<li><code>{escape(key)}</code>{sparkline(y, color=6, width=200, height=36)}"
                f"<small>{show(y[0])} → <b>{show(y[-1])}</b></small></li>"
            )
    if not drawn:
        return ""
    dropped = f"<p>{len(drawn) - MAX_OTHER} more are in metrics.jsonl.</p>" if len(drawn) > MAX_OTHER else ""
    return (
        f'<details class="others"><summary>Other logged metrics ({len(drawn)})</summary>'
        f"<ul>{''.join(drawn[:MAX_OTHER])}</ul>{dropped}</details>"
    )


STANDARD = {
    "iteration",
    *("eval/success", "eval/success_ood", "rollout/success", "rollout/inadmissible"),
    *("judge/balanced_accuracy", "judge/auc", "judge/outcome_accuracy"),
    *("judge/test_accuracy", "judge/detect_rate", "eval/test_accuracy", "eval/detect_rate"),
    *("judge/p_plus", "judge/p_minus", "judge/mu", "judge/parse_rate"),
    *("tasks/proposed", "tasks/accepted", "tasks/accepted_total"),
    *("theory/importance_ratio", "sampler/logprob_gap", "time/iteration_s"),
    *(f"time/{name}_s" for name in PHASES),
}
