"""Theory: what Theorems 1 and 2 of arXiv 2602.02488 say about the judge, measured on every iteration's batch.

Pure functions over the arrays of `feedback`: outcome [Q,N] in {-1,+1}, scores [Q,N,T,M] in {-1,0,+1} (0: not
parsed), step_mask [Q,N,T] bool. What has no sample behind it is reported at chance, 1/2 for a probability and
1 for a ratio of norms, so that every metric is finite.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

BOUNDS = ("paper", "hoeffding")
RATIO_LOW, RATIO_HIGH = 1 / 4, 4.0
RATIO_CAP_LOG2 = 10.0


def _mean(values: Array, mask: Array) -> Array:
    """Mean of `values` where `mask` is True; 1/2 if it is True nowhere."""
    count = jnp.sum(mask)
    return jnp.where(count > 0, jnp.sum(jnp.where(mask, values, 0)) / jnp.maximum(count, 1), 0.5)


@jax.jit
def estimate_mu(outcome: Array, scores: Array, step_mask: Array) -> tuple[Array, Array, Array]:
    """Theorem 1's p+ = P(S = 1 | O = 1), p- = P(S = -1 | O = -1) and mu = p+ + p-, from all votes.

    An unparsed vote counts as a wrong one, in both classes; the bounds stay valid, as its score of 0 is
    better than that.

    Returns:
      (p_plus, p_minus, mu), three float32 scalars; a class without votes gives 1/2.
    """
    success, failure = (outcome > 0)[..., None, None], (outcome < 0)[..., None, None]
    voted = jnp.broadcast_to(step_mask[..., None], scores.shape)
    p_plus = _mean(scores == 1, voted & success)
    p_minus = _mean(scores == -1, voted & failure)
    return p_plus, p_minus, p_plus + p_minus


@jax.jit
def reward_precision(outcome: Array, scores: Array, step_mask: Array) -> Array:
    """Theorem 1's precision, P(mean S(tau+, i) > mean S(tau-, i) | O(tau+) = 1, O(tau-) = -1).

    The share of all pairs of a step of a successful and a step of a failed trajectory, at the same step index
    of the same task, in which the former has the higher mean score. A tie counts as a miss, as in the
    theorem's strict inequality.

    Returns:
      float32 scalar in [0, 1]; 1/2 if the batch has no such pair.
    """
    # M is the same for both steps, so sums of votes compare as means do, without rounding.
    total = jnp.sum(jnp.where(step_mask[..., None], scores, 0), -1)
    success = step_mask & (outcome > 0)[..., None]
    failure = step_mask & (outcome < 0)[..., None]
    pair = success[:, :, None] & failure[:, None, :]  # [Q, N of tau+, N of tau-, T]
    return _mean(total[:, :, None] > total[:, None, :], pair)


@partial(jax.jit, static_argnames="kind")
def precision_bound(mu: float | Array, m: int | Array, *, kind: str = "paper") -> Array:
    """Lower bound on the precision of the mean of `m` votes; 0 for mu <= 1, where there is none.

    'paper': Theorem 1, 1 - exp(-m (mu - 1)^2 / 4).
    'hoeffding': 1 - exp(-m (mu - 1)^2). The 2m votes of a pair of steps are independent, each moves the
      difference of means by at most 2/m, and its expectation is 2 (mu - 1): Hoeffding over all 2m gives
      exp(-2 (2 (mu - 1))^2 / (2m (2/m)^2)).

    Args:
      mu: any shape, in [0, 2].
      m: votes a step, a traced value that broadcasts against `mu`.
      kind: one of `BOUNDS`, static.
    Returns:
      float32 of the broadcast shape.
    Raises:
      ValueError: unknown kind.
    """
    if kind not in BOUNDS:
        raise ValueError(f"unknown bound {kind!r}: set kind to one of {', '.join(map(repr, BOUNDS))}")
    scale = {"paper": 0.25, "hoeffding": 1.0}[kind]
    excess = jnp.maximum(jnp.asarray(mu, jnp.float32) - 1.0, 0.0)
    return -jnp.expm1(-scale * m * excess**2)


@partial(jax.jit, static_argnames="m")
def exact_precision(p_plus: float | Array, p_minus: float | Array, m: int) -> Array:
    """The value that Theorem 1 bounds, P(mean S+ > mean S-), for `m` independent votes a step that all parse.

    Votes of +1 are binomial, X ~ B(m, p_plus) on the successful step and Y ~ B(m, 1 - p_minus) on the failed
    one, and the precision is P(X > Y). `m` sizes the tables, so it is static, as is the M of `scores`.

    Returns:
      float32 scalar.
    """
    votes = jnp.arange(m + 1)
    success = jax.scipy.stats.binom.pmf(votes, m, jnp.asarray(p_plus, jnp.float32))
    failure = jax.scipy.stats.binom.pmf(votes, m, 1.0 - jnp.asarray(p_minus, jnp.float32))
    below = jnp.cumsum(failure) - failure  # P(Y < x)
    return jnp.sum(success * below)


@jax.jit
def importance_ratio(outcome: Array, scores: Array, step_mask: Array) -> Array:
    """Theorem 2's ||f+|| / ||f-|| of each task, for lam = 1: the weight of successes over that of failures.

    f+(tau) = p_old(S = 1 | tau) 1[O = 1] and f-(tau) = p_old(S = -1 | tau) 1[O = -1] under the L2 norm over
    the policy's trajectories. Estimator: p_old of a step is the share of its M votes; its square is averaged
    over the steps of a trajectory, then over the task's rollouts. That overestimates p_old^2 by its sampling
    variance, p_old (1 - p_old) / M, in both norms alike.

    Returns:
      [Q] float32 in [0, inf]: 0 if no success got a vote of +1, inf if no failure got a vote of -1, 1 if both
      hold.
    """
    length = jnp.maximum(jnp.sum(step_mask, -1), 1)

    def square_norm(vote: int) -> Array:
        share = jnp.sum(scores == vote, -1) / max(scores.shape[-1], 1)
        per_rollout = jnp.sum(jnp.where(step_mask, share**2, 0.0), -1) / length
        return jnp.sum(jnp.where(outcome == vote, per_rollout, 0.0), -1)

    plus, minus = square_norm(1), square_norm(-1)
    return jnp.where((plus == 0) & (minus == 0), 1.0, jnp.sqrt(plus / minus))


def _typical_ratio(outcome: Array, scores: Array, step_mask: Array) -> Array:
    """Median of `importance_ratio` over the tasks with both outcomes; over all tasks if no task has both."""
    reached = jnp.any(step_mask, -1)
    success, failure = jnp.any(reached & (outcome > 0), -1), jnp.any(reached & (outcome < 0), -1)
    mixed = success & failure
    counted = jnp.where(jnp.any(mixed), mixed, success | failure)
    # A median of logarithms treats f+ and f- alike; the cap keeps 0 and inf finite.
    log_ratio = jnp.log2(importance_ratio(outcome, scores, step_mask))
    log_ratio = jnp.where(counted, jnp.clip(log_ratio, -RATIO_CAP_LOG2, RATIO_CAP_LOG2), jnp.nan)
    return jnp.where(jnp.any(counted), jnp.exp2(jnp.nanmedian(log_ratio)), 1.0)


@jax.jit
def theory_metrics(outcome: Array, scores: Array, step_mask: Array) -> dict[str, Array]:
    """The batch's metrics of Theorems 1 and 2 under their names in `metrics.jsonl`; finite float32 scalars.

    'theory/precision' is measured. 'theory/precision_exact' is what it would be if all votes of a class were
    alike, and the bounds lie below that; a measured value far from it says that p+ and p- differ between
    steps. 'theory/importance_ratio' is the median over the tasks with both outcomes (over all tasks if there
    is none), kept in [2^-10, 2^10].
    """
    p_plus, p_minus, mu = estimate_mu(outcome, scores, step_mask)
    m = scores.shape[-1]
    return {
        "judge/p_plus": p_plus,
        "judge/p_minus": p_minus,
        "judge/mu": mu,
        "theory/precision": reward_precision(outcome, scores, step_mask),
        "theory/precision_exact": exact_precision(p_plus, p_minus, m),
        "theory/bound_paper": precision_bound(mu, m, kind="paper"),
        "theory/bound_hoeffding": precision_bound(mu, m, kind="hoeffding"),
        "theory/importance_ratio": _typical_ratio(outcome, scores, step_mask),
    }


def warnings_for(metrics: Mapping[str, float | Array]) -> list[str]:
    """Host function: a sentence for every assumption of the theorems that `theory_metrics` shows violated."""
    mu, ratio = float(metrics["judge/mu"]), float(metrics["theory/importance_ratio"])
    warnings = []
    if mu <= 1:
        warnings.append(
            f"judge/mu is {mu:.3f}, not above 1: by Theorem 1 more votes do not make the judge's step scores "
            "more precise. Warm-start the judge or train it further, or lower feedback.lam."
        )
    if ratio < RATIO_LOW:
        warnings.append(
            f"theory/importance_ratio is {ratio:.3g}, below {RATIO_LOW:g}: by Theorem 2 failures dominate "
            "the judge's training. Make the tasks easier (set adapt_tasks, raise adapt.low)."
        )
    if ratio > RATIO_HIGH:
        warnings.append(
            f"theory/importance_ratio is {ratio:.3g}, above {RATIO_HIGH:g}: by Theorem 2 successes dominate "
            "the judge's training. Make the tasks harder (set adapt_tasks, lower adapt.high)."
        )
    return warnings
