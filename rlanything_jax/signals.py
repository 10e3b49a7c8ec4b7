"""What a judge of steps can be taught by when nobody labels steps: the signal that its votes should agree with.

The paper teaches it by the outcome O of the episode, the same for every step. The others here use more of what a run
knows anyway: how the siblings of the episode fared, and whether a step led anywhere. All are pure, jitted functions over
[task Q, rollout N, step T], with `step_mask` [Q,N,T] for steps that exist.

`state` [Q,N,T+1] numbers the states in which an episode was: entry t is the state before step t, the entry behind the last
step is the last state. Equal numbers are the same state, within a task; which states are the same is for the world to say,
and by default for the text that was read.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

SIGNALS = (
    "outcome",
    "balanced",
    "relative",
    "discounted",
    "anchored",
    "repetition",
    "evidence",
    "agreement",
    "sifted",
)

DISCOUNT = 0.95  # a step, of 'anchored'
RELATIVE = 0.5  # weight of the relative outcome in 'evidence'
LARGEST = 3.0  # of a centred signal


@partial(jax.jit, static_argnames="kind")
def judge_signal(outcome: Array, state: Array, step_mask: Array, *, kind: str = "outcome") -> Array:
    """The signal c of every step, which takes the place of O in the judge's own reward.

    'outcome': O, as in the paper (arXiv 2602.02488, equation 3). It comes as it is.
    'balanced': O over the share of the batch's steps that have this outcome (the ratio of Theorem 2 as weights).
    'relative': `relative_outcome`, 0 for tasks whose rollouts all end alike.
    'discounted': O times 1 - t / 2T, with t the length of the episode: a long success is worth less.
    'anchored': the sign of `anchored_credit` where the step has any, else of the relative outcome.
    'repetition': -1 for a step that led to a state in which the episode had been before, else +1.
    'evidence': 'repetition' + `RELATIVE` times the relative outcome.
    'agreement': 'repetition' where the outcome has the same sign, else 0.
    'sifted': -1 for a repetition, +1 for another step of a success, 0 for another step of a failure, which may be either.

    All but 'outcome' are centred: divided by their root mean square, less their mean over the steps of the batch that
    have a signal, divided once more and clipped to `LARGEST`. What all steps have in common teaches a judge only to say
    the same of every step.

    Args:
      outcome: [Q,N] in [-1,+1].
      state: [Q,N,T+1] int.
      step_mask: [Q,N,T] bool.
      kind: one of `SIGNALS`, static.
    Returns:
      [Q,N,T] float32, 0 where `step_mask` is False.
    Raises:
      ValueError: unknown kind.
    """
    if kind not in SIGNALS:
        raise ValueError(f"unknown signal {kind!r}: set it to one of {', '.join(map(repr, SIGNALS))}")
    by_step = jnp.where(step_mask, outcome[..., None], 0).astype(jnp.float32)
    if kind == "outcome":
        return by_step
    relative = relative_outcome(outcome, step_mask)[..., None]
    evidence = jnp.where(repeated(state, step_mask), -1.0, 1.0)
    steps = step_mask.shape[-1]
    if kind == "balanced":
        won = by_step > 0
        share = jnp.sum(won) / jnp.maximum(jnp.sum(step_mask), 1)
        signal = by_step / jnp.maximum(jnp.where(won, share, 1 - share), 1e-6)
    elif kind == "relative":
        signal = relative
    elif kind == "discounted":
        signal = by_step * (1 - jnp.sum(step_mask, -1, keepdims=True) / (2 * steps))
    elif kind == "anchored":
        credit = anchored_credit(outcome, state, step_mask)
        signal = jnp.where(credit != 0, jnp.sign(credit), jnp.sign(relative))
    elif kind == "repetition":
        signal = evidence
    elif kind == "evidence":
        signal = evidence + RELATIVE * relative
    elif kind == "agreement":
        signal = jnp.where(evidence == jnp.sign(by_step), evidence, 0.0)
    else:
        signal = jnp.where(evidence < 0, -1.0, jnp.maximum(by_step, 0.0))
    return _centred(jnp.where(step_mask, signal, 0.0))


def repeated(state: Array, step_mask: Array) -> Array:
    """Whether a step led to a state in which the episode had been before, [Q,N,T] bool.

    That it changed nothing is one case of it: error messages, closed doors, the same question asked twice.
    """
    before = jnp.tril(jnp.ones((step_mask.shape[-1],) * 2, bool))  # [step, earlier state]
    same = state[..., 1:, None] == state[..., None, :-1]
    return jnp.any(same & before, -1) & step_mask


def relative_outcome(outcome: Array, step_mask: Array) -> Array:
    """O standardised over the rollouts of its task that have steps, [Q,N]; 0 where all are alike."""
    there = jnp.any(step_mask, -1)
    outcome = jnp.where(there, outcome, 0).astype(jnp.float32)
    count = jnp.maximum(jnp.sum(there, -1, keepdims=True), 1)
    deviation = jnp.where(there, outcome - jnp.sum(outcome, -1, keepdims=True) / count, 0.0)
    variance = jnp.sum(deviation**2, -1, keepdims=True) / count
    varied = variance > 1e-6
    return jnp.where(varied, deviation / jnp.sqrt(jnp.where(varied, variance, 1.0)), 0.0)


def anchored_credit(outcome: Array, state: Array, step_mask: Array) -> Array:
    """What a step changed in the chance to win, as the siblings' visits tell it, [Q,N,T].

    The value of a state is the mean, over the rollouts of the task that were in it, of the discounted success from their
    first visit on; a step's credit is `DISCOUNT` V(after) - V(before). The state behind a success is worth 1. States as anchors
    of credit among siblings: Feng et al. 2025 (arXiv 2505.10978); deviation: a difference of values, not a normalised return.
    """
    q, n, t = step_mask.shape
    length = jnp.sum(step_mask, -1)[..., None]
    index = jnp.arange(t + 1)
    there = (index <= length) & (length > 0)
    won = outcome[..., None] > 0
    ahead = jnp.where(won & there, DISCOUNT ** jnp.maximum(length - 1 - index, 0), 0.0)
    earlier = jnp.tril(jnp.ones((t + 1, t + 1), bool), -1)
    first = there & ~jnp.any((state[..., :, None] == state[..., None, :]) & earlier & there[..., None, :], -1)
    flat = state.reshape(q, -1)
    same = (flat[:, :, None] == flat[:, None, :]) & first.reshape(q, 1, -1)
    visits = jnp.sum(same, -1)
    value = jnp.einsum("qij,qj->qi", same.astype(jnp.float32), ahead.reshape(q, -1)) / jnp.maximum(visits, 1)
    value = jnp.where(won & (index == length), 1.0, value.reshape(q, n, t + 1))
    return jnp.where(step_mask, DISCOUNT * value[..., 1:] - value[..., :-1], 0.0)


def _centred(signal: Array) -> Array:
    """Without the mean over all entries that are not 0, at unit root mean square, clipped."""
    given = signal != 0
    count = jnp.maximum(jnp.sum(given), 1)

    def scaled(x: Array) -> Array:
        square = jnp.sum(x**2) / count
        return x / jnp.sqrt(jnp.where(square > 1e-12, square, 1.0))

    signal = scaled(signal)
    signal = scaled(jnp.where(given, signal - jnp.sum(signal) / count, 0.0))
    return jnp.clip(signal, -LARGEST, LARGEST)
