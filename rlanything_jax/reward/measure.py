"""How good the judge's votes are, against outcomes and the ground truth of some worlds. Never trained on."""

from __future__ import annotations

import numpy as np


def judge_metrics(
    outcome: np.ndarray, scores: np.ndarray, step_mask: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Accuracies of a batch of votes.

    Args:
      outcome: [Q,N] in {-1,+1}.
      scores: [Q,N,T,M] in {-1,0,+1}.
      step_mask: [Q,N,T] bool.
      labels: [Q,N,T] in {-1,0,+1}, 0 where there is no ground truth.

    Returns:
      'judge/balanced_accuracy': mean over the two labels of the share of steps whose mean score has the
        label's sign; a tie counts half.
      'judge/auc': probability that a good step's mean score exceeds a bad one's.
      'judge/outcome_accuracy': share of trajectories whose mean score over all steps has the outcome's sign,
        balanced over outcomes likewise.
      'judge/parse_rate', 'judge/unanimous': share of votes that parsed, of steps on which all votes agree.
      The first three are left out where the steps they need are missing; without votes there are none.
    """
    if not scores.size:
        return {}
    mean = scores.mean(-1)
    metrics = {
        "judge/parse_rate": _mean(scores[step_mask] != 0),
        "judge/unanimous": _mean(np.abs(mean[step_mask]) == 1),
    }
    labelled = step_mask & (labels != 0)
    good, bad = mean[labelled & (labels > 0)], mean[labelled & (labels < 0)]
    if good.size and bad.size:
        metrics["judge/balanced_accuracy"] = (_right(good) + _right(-bad)) / 2
        metrics["judge/auc"] = _auc(good, bad)
    steps = step_mask.sum(-1)
    overall = np.where(step_mask, mean, 0).sum(-1) / np.maximum(steps, 1)
    won, lost = overall[(steps > 0) & (outcome > 0)], overall[(steps > 0) & (outcome < 0)]
    if won.size and lost.size:
        metrics["judge/outcome_accuracy"] = (_right(won) + _right(-lost)) / 2
    return metrics


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0


def _right(scores: np.ndarray) -> float:
    return float(np.mean((np.sign(scores) + 1) / 2))


def _auc(good: np.ndarray, bad: np.ndarray) -> float:
    """Mann-Whitney: P(good > bad) + P(good = bad) / 2, by counting, since mean scores take few values."""
    ordered = np.sort(bad)
    below = np.searchsorted(ordered, good, side="left")
    not_above = np.searchsorted(ordered, good, side="right")
    return float((below + not_above).mean() / 2 / bad.size)
