"""Statistics over few seeds: paired differences, bootstrap intervals, sign-flip tests. NumPy only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
_EXACT = 12  # up to so many pairs all 2^n sign flips are counted


class Interval(NamedTuple):
    """A mean over seeds with its 95 % bootstrap interval (percentiles)."""

    mean: float
    low: float
    high: float


class Difference(NamedTuple):
    """Mean of paired differences, its 95 % bootstrap interval, the two-sided p-value of a sign-flip test, and the seeds."""

    mean: float
    low: float
    high: float
    p: float
    seeds: tuple[int, ...]

    @property
    def shown(self) -> bool:
        """Whether the interval leaves out 0; never for a single pair."""
        return len(self.seeds) > 1 and (self.low > 0 or self.high < 0)


def bootstrap(values: Sequence[float]) -> Interval:
    """The mean of `values` [n] with its interval. ValueError where there are none."""
    if not len(values):
        raise ValueError("no values: an interval needs at least one")
    x = np.asarray(values, float)
    means = x[np.random.default_rng(0).integers(len(x), size=(RESAMPLES, len(x)))].mean(1)
    low, high = np.percentile(means, (2.5, 97.5))
    return Interval(float(x.mean()), float(low), float(high))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p-value of the mean under flips of the signs; n pairs reach 2^(1-n) at least."""
    x = np.asarray(differences, float)
    if len(x) <= _EXACT:
        signs = np.array(list(itertools.product((-1, 1), repeat=len(x))))
    else:
        # The observed signs count among the drawn ones, so that no p-value is 0.
        signs = np.random.default_rng(0).choice((-1, 1), size=(RESAMPLES, len(x)))
        signs[0] = 1
    return float(np.mean(np.abs(signs @ x) >= abs(x.sum()) - 1e-12))


def paired(better: Mapping[int, float], worse: Mapping[int, float]) -> Difference | None:
    """`better` - `worse` over the seeds that both have; None where there are none."""
    seeds = tuple(sorted(better.keys() & worse.keys()))
    if not seeds:
        return None
    differences = [better[seed] - worse[seed] for seed in seeds]
    return Difference(*bootstrap(differences), sign_flip_p(differences), seeds)


def entropy(counts: Sequence[float]) -> float:
    """Of the distribution that counts stand for, in bits; 0 for none."""
    x = np.asarray(counts, float)
    x = x[x > 0] / max(x.sum(), 1e-300)
    return float((x * -np.log2(x)).sum()) + 0.0  # never -0


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """(slope, R^2) of the least-squares line; R^2 is 1 where y is constant. ValueError for fewer than two points."""
    if len(x) < 2:
        raise ValueError(f"a line through {len(x)} points: at least 2")
    slope, offset = np.polyfit(x, y, 1)
    residual = np.asarray(y) - (slope * np.asarray(x) + offset)
    spread = np.asarray(y) - np.mean(y)
    total = float(spread @ spread)
    return float(slope), 1 - float(residual @ residual) / total if total else 1.0
