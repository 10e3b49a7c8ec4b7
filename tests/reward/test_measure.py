"""Metrics of the judge on votes counted by hand."""

import numpy as np
import pytest

from rlanything_jax.reward.measure import judge_metrics

# One task, two rollouts (won, lost) of three and two steps, three votes a step.
OUTCOME = np.array([[1, -1]])
SCORES = np.array(
    [
        [
            [[1, 1, 1], [1, -1, 0], [1, 1, -1]],  # mean 1, 0, 1/3
            [[-1, -1, 0], [1, 1, 1], [9, 9, 9]],  # mean -2/3, 1; the last is no step
        ]
    ]
)
MASK = np.array([[[True, True, True], [True, True, False]]])
LABELS = np.array([[[1, 1, -1], [-1, 0, 1]]])


def test_metrics_by_hand() -> None:
    metrics = judge_metrics(OUTCOME, SCORES, MASK, LABELS)
    assert metrics == pytest.approx(
        {
            "judge/parse_rate": 13 / 15,
            "judge/unanimous": 2 / 5,
            # Good steps score 1 (right) and 0 (a tie, half); bad ones 1/3 (wrong) and -2/3 (right).
            "judge/balanced_accuracy": (3 / 4 + 1 / 2) / 2,
            # Pairs (good, bad): 1 > 1/3, 1 > -2/3, 0 < 1/3, 0 > -2/3.
            "judge/auc": 3 / 4,
            # The won rollout's mean is 4/9 (right), the lost one's 1/6 (wrong).
            "judge/outcome_accuracy": (1 + 0) / 2,
        }
    )


def test_auc_counts_a_tie_as_half() -> None:
    def auc(good: list[int], bad: list[int]) -> float:
        scores = np.array([*good, *bad])[None, None, :, None]
        labels = np.array([1] * len(good) + [-1] * len(bad))[None, None]
        return judge_metrics(np.array([[1]]), scores, labels != 0, labels)["judge/auc"]

    assert auc([1], [1]) == 0.5
    assert auc([1, 1], [1, -1]) == 0.75
    assert auc([1, 0, -1], [0, 0]) == 0.5
    assert auc([1, 1, 0], [-1]) == 1.0
    assert auc([-1], [1, 1]) == 0.0


def test_auc_equals_a_comparison_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(-1, 2, (3, 4, 5, 3))
    labels = rng.integers(-1, 2, (3, 4, 5))
    mask = rng.random((3, 4, 5)) < 0.8
    mean = scores.mean(-1)
    good, bad = mean[mask & (labels > 0)][:, None], mean[mask & (labels < 0)]
    pairs = np.mean((good > bad) + 0.5 * (good == bad))
    assert judge_metrics(np.ones((3, 4)), scores, mask, labels)["judge/auc"] == pytest.approx(pairs)


def test_a_metric_without_the_steps_it_needs_is_left_out() -> None:
    assert "judge/outcome_accuracy" not in judge_metrics(np.array([[1, 1]]), SCORES, MASK, LABELS)
    for labels in (np.zeros_like(LABELS), np.abs(LABELS)):
        metrics = judge_metrics(OUTCOME, SCORES, MASK, labels)
        assert "judge/auc" not in metrics and "judge/balanced_accuracy" not in metrics
    lost = MASK & [[[True], [False]]]  # the lost rollout has no steps: the environment lost it
    assert "judge/outcome_accuracy" not in judge_metrics(OUTCOME, SCORES, lost, LABELS)


def test_no_steps_and_no_votes_are_no_error() -> None:
    """Warnings are errors here: a mean over nothing would raise."""
    assert "judge/auc" not in judge_metrics(OUTCOME, SCORES, np.zeros_like(MASK), LABELS)
    assert "judge/auc" not in judge_metrics(OUTCOME, SCORES[..., :0], MASK, LABELS)


def test_votes_that_did_not_parse_are_not_unanimous() -> None:
    metrics = judge_metrics(OUTCOME, np.zeros_like(SCORES), MASK, LABELS)
    assert metrics["judge/parse_rate"] == metrics["judge/unanimous"] == 0.0
    assert metrics["judge/balanced_accuracy"] == metrics["judge/auc"] == 0.5
