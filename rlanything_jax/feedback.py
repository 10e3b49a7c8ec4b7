"""Feedback: outcomes and judge votes become rewards and advantages (arXiv 2602.02488, section 2).

Pure, jitted functions over the axes [task Q, rollout N, step T, vote M]. Trajectories are ragged: `step_mask`
[Q,N,T] says which steps exist. What an array holds at a step that does not exist, NaN included, reaches
neither a value nor a gradient.
Tests that a reward model writes for programs are rewarded by [task Q, test M].
Left out: which tasks are trained on (that filter is the loop's), and any clipping of advantages.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

ESTIMATORS = ("centred", "published", "task")

# Differences below this share of the largest magnitude are rounding: about 80 units in the last place of
# float32, and a hundred times less than what one vote of eight adds to a reward at lam = 0.1.
ROUNDING = 1e-5

Axes = int | tuple[int, ...]


def _centre(values: Array, mask: Array, axis: Axes) -> tuple[Array, Array]:
    """Deviations from the group mean and the group's population variance; 0 in a group without variance."""
    values = jnp.where(mask, values, 0.0)
    magnitude = jnp.max(jnp.abs(values), axis, keepdims=True, initial=0.0)
    count = jnp.maximum(jnp.sum(mask, axis, keepdims=True), 1)
    deviation = jnp.where(mask, values - jnp.sum(values, axis, keepdims=True) / count, 0.0)
    variance = jnp.sum(deviation**2, axis, keepdims=True) / count
    varied = variance > (ROUNDING * magnitude) ** 2
    return jnp.where(varied, deviation, 0.0), jnp.where(varied, variance, 0.0)


def _standardise(values: Array, mask: Array, axis: Axes) -> Array:
    """Zero mean and unit population standard deviation in each group; 0 in a group without variance."""
    deviation, variance = _centre(values, mask, axis)
    return deviation / jnp.sqrt(jnp.where(variance > 0, variance, 1.0))


@jax.jit
def integrated_reward(outcome: Array, scores: Array, step_mask: Array, *, lam: float | Array = 1.0) -> Array:
    """The policy's reward of every step, R = O + lam * mean_j S_j.

    Args:
      outcome: [Q,N] in {-1,+1}, or [Q,N,T] where every step has a signal of its own.
      scores: [Q,N,T,M] in {-1,0,+1}; 0 is a verdict that could not be parsed, which counts as 0 among the M
        of the mean.
      step_mask: [Q,N,T] bool.
      lam: weight of the judge, a traced value; the paper uses 1.
    Returns:
      [Q,N,T] float32, 0 where `step_mask` is False; O alone if M is 0.
    """
    scores = jnp.where(step_mask[..., None], scores, 0).astype(jnp.float32)
    by_step = outcome if outcome.ndim == step_mask.ndim else outcome[..., None]
    outcome = jnp.where(step_mask, by_step, 0).astype(jnp.float32)
    reward = outcome + lam * jnp.sum(scores, -1) / max(scores.shape[-1], 1)
    # Outcome and votes may cancel. The rounding left of that is all there is in a group of such rewards, or
    # in the votes of such a step, and a division by its standard deviation would make it a full advantage.
    return jnp.where(jnp.abs(reward) > ROUNDING * jnp.abs(outcome), reward, 0.0)


@jax.jit
def policy_advantage(reward: Array, step_mask: Array) -> Array:
    """The policy's advantage: rewards standardised over the rollouts of a task that reached the step index.

    The standard deviation is the population's. A group of fewer than two rollouts, or one whose rewards are
    equal up to rounding, gives exactly 0. Deviation: the reference code gives a rollout that is alone at its
    step index its raw reward; late steps are reached by failures only, so that would push against long
    trajectories as such.

    Args:
      reward: [Q,N,T].
      step_mask: [Q,N,T] bool.
    Returns:
      [Q,N,T] float32, 0 where `step_mask` is False.
    """
    return _standardise(reward.astype(jnp.float32), step_mask, axis=1)


@jax.jit
def consistency_reward(reward: Array, scores: Array, *, invalid: float | Array = -2.0) -> Array:
    """The judge's reward of every vote, R * S_j; a vote that could not be parsed gets `invalid`.

    A parsed vote gets no less than -(1 + lam). Keep `invalid` at or below that (-2 for the paper's lam = 1),
    or a verdict that cannot be parsed may be worth more than a wrong one.

    Args:
      reward: [Q,N,T], from `integrated_reward`.
      scores: [Q,N,T,M] in {-1,0,+1}.
      invalid: reward of an unparsed vote, a traced value.
    Returns:
      [Q,N,T,M] float32; at steps that do not exist it means nothing, and `judge_advantage` drops it.
    """
    parsed = jnp.isfinite(scores) & (scores != 0)
    votes = jnp.where(parsed, scores, 0).astype(jnp.float32)
    return jnp.where(parsed, reward[..., None] * votes, invalid)


@partial(jax.jit, static_argnames="estimator")
def judge_advantage(consistency: Array, step_mask: Array, *, estimator: str = "centred") -> Array:
    """The judge's advantage of every vote.

    With c_j = R * S_j, the reward of vote j of a step:

    'centred' (default): c_j - mean_j c, times one constant for the whole batch that makes the root mean
      square of the nonzero entries 1. It equals R * (S_j - mean S) up to that constant, so a step on which
      votes and outcome agree weighs more than one on which they do not.
    'published': c_j standardised over the M votes of its step, as in the paper. If lam <= 1 and the votes are
      parsed and not unanimous, it equals sign(O) * (S_j - mean S) / std S: the votes' consistency |R| has no
      effect. Proof: not unanimous means |mean S| < 1, so |lam * mean S| < 1 = |O|, hence R != 0 and sign R =
      sign O. The mean of c is R * mean S and its standard deviation |R| * std S, so the quotient is R / |R| *
      (S_j - mean S) / std S.
    'task': c_j standardised over all votes of its task. It keeps |R| and also trains on unanimous steps, but
      its baseline is not the step's own: a verdict may be rewarded for the step it was asked about.

    'centred' and 'published' are 0 on unanimous steps, hence everywhere if M is 1: a judge trained by them
    needs M >= 2.

    Args:
      consistency: [Q,N,T,M], from `consistency_reward`.
      step_mask: [Q,N,T] bool.
      estimator: one of `ESTIMATORS`, static.
    Returns:
      [Q,N,T,M] float32, 0 where `step_mask` is False.
    Raises:
      ValueError: unknown estimator.
    """
    consistency = consistency.astype(jnp.float32)
    mask = jnp.broadcast_to(step_mask[..., None], consistency.shape)
    if estimator == "published":
        return _standardise(consistency, mask, axis=3)
    if estimator == "task":
        return _standardise(consistency, mask, axis=(1, 2, 3))
    if estimator == "centred":
        return _to_unit_square(_centre(consistency, mask, axis=3)[0])
    raise _unknown(estimator)


class CheckedTests(NamedTuple):
    """What the programs of a task say about its M written tests."""

    true: Array  # [Q,M] bool: every correct program passes it; False where none is correct, or it could not be parsed
    rejected: Array  # [Q,M] wrong programs that fail it
    accepted: Array  # [Q,M] wrong programs that pass it


@jax.jit
def check_tests(correct: Array, scores: Array, step_mask: Array) -> CheckedTests:
    """Judges written tests by the programs whose correctness is known.

    Args:
      correct: [Q,N,T] bool, the program passes all tests of the data set.
      scores: [Q,N,T,M] in {-1,0,+1}, the program fails or passes test m; 0 is a test that could not be parsed.
      step_mask: [Q,N,T] bool, there is such a program.
    """
    passed, failed = (step_mask[..., None] & (scores == sign) for sign in (1, -1))
    correct = correct & step_mask
    wrong = (step_mask & ~correct)[..., None]
    true = jnp.all(passed | ~correct[..., None], (1, 2)) & jnp.any(correct, (1, 2))[:, None]
    return CheckedTests(true, jnp.sum(wrong & failed, (1, 2)), jnp.sum(wrong & passed, (1, 2)))


@jax.jit
def unit_test_reward(correct: Array, scores: Array, step_mask: Array) -> Array:
    """The reward of every written test (arXiv 2602.02488, the coding domain).

    With W wrong programs among those of the task: a true test gets the number of wrong programs that it rejects, another
    one minus the number that it accepts; with W = 0 that is +1 or -1. Deviations: a test that could not be parsed gets
    -max(W, 1), the least of all, where the reference code gives it 0, more than a wrong test; and where no program is correct,
    so that nothing tells true from false, every test that can be parsed gets 0, where every test counts as true there.

    Args: as of `check_tests`.
    Returns:
      [Q,M] float32.
    """
    true, rejected, accepted = check_tests(correct, scores, step_mask)
    correct = correct & step_mask
    wrong = jnp.sum(step_mask & ~correct, (1, 2))[:, None]
    reward = jnp.where(true, rejected, -accepted)
    reward = jnp.where(wrong == 0, jnp.where(true, 1, -1), reward)
    reward = jnp.where(jnp.any(correct, (1, 2))[:, None], reward, 0)
    parsed = jnp.any(step_mask[..., None] & (scores != 0), (1, 2))
    return jnp.where(parsed, reward, -jnp.maximum(wrong, 1)).astype(jnp.float32)


@partial(jax.jit, static_argnames="estimator")
def unit_test_advantage(reward: Array, *, estimator: str = "published") -> Array:
    """The advantage of every written test, from rewards [Q,M].

    'published' and 'task', which are one here: standardised over the tests of its task, as in the paper.
    'centred': minus the mean of its task, times one constant that makes the batch's root mean square 1, so that
    tasks on which tests differ more weigh more. Where all tests of a task are alike they get 0.

    Raises:
      ValueError: unknown estimator.
    """
    mask = jnp.ones(reward.shape, bool)
    if estimator in ("published", "task"):
        return _standardise(reward, mask, axis=1)
    if estimator == "centred":
        return _to_unit_square(_centre(reward, mask, axis=1)[0])
    raise _unknown(estimator)


def _to_unit_square(deviation: Array) -> Array:
    """Scaled so that the root mean square of the nonzero entries is 1."""
    nonzero = jnp.sum(deviation != 0)
    mean_square = jnp.sum(deviation**2) / jnp.maximum(nonzero, 1)
    return deviation / jnp.sqrt(jnp.where(nonzero > 0, mean_square, 1.0))


def _unknown(estimator: str) -> ValueError:
    return ValueError(f"unknown estimator {estimator!r}: set it to one of {', '.join(map(repr, ESTIMATORS))}")
