"""The numbers a run is judged by, before and after: the report's headline and the terminal's last table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlanything_jax.report.read import series


@dataclass(frozen=True)
class Headline:
    """A headline metric: its key in metrics.jsonl, a label, which way is better and how it is printed."""

    key: str
    label: str
    better: int  # +1: higher is better, -1: lower is better
    pattern: str  # of str.format


HEADLINES = (
    Headline("eval/success", "Held-out success", +1, "{:.1%}"),
    Headline("eval/success_ood", "OOD success", +1, "{:.1%}"),
    Headline("rollout/inadmissible", "Inadmissible actions", -1, "{:.1%}"),
    Headline("judge/balanced_accuracy", "Judge balanced accuracy", +1, "{:.3f}"),
    Headline("judge/auc", "Judge AUC", +1, "{:.3f}"),
    Headline("eval/test_accuracy", "Accuracy of written tests", +1, "{:.1%}"),
    Headline("eval/detect_rate", "Detect rate", +1, "{:.1%}"),
    Headline("tasks/accepted_total", "Accepted tasks", +1, "{:.0f}"),
)


def before_after(metrics: Sequence[Mapping[str, Any]], key: str) -> tuple[float, float, int] | None:
    """Value of `key` before and after, and over how many iterations each was averaged; None if never logged.

    Evaluations and running totals are taken as they are, first and last. What is measured on an iteration's
    rollouts is noisy: it is averaged over the first and last tenth of the run, at most ten iterations each.
    """
    _, values = series(metrics, key)
    if not values:
        return None
    exact = key.startswith("eval/") or key.endswith("_total")
    k = 1 if exact else max(1, min(10, len(values) // 10))
    return sum(values[:k]) / k, sum(values[-k:]) / k, k
