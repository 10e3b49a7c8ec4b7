"""Losses: free functions of per-token log-probabilities, for policy and judge; each returns (loss, metrics).

Arrays are [B,S]. `mask` is bool and says which tokens are trained on; what an array holds elsewhere, NaN and
infinities included, reaches neither a value nor a gradient. A loss is a weighted sum over tokens, and
`token_weights` decides what a mean is, for one sequence a row and for packed rows. Weights sum to 1 over the
batch, so losses and metrics of micro-batches whose weights were computed together simply add up.
Left out: the log-probabilities themselves (the model's), entropy bonuses, value functions.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

AGGREGATIONS = ("sequence", "token")
KL_KINDS = ("k1", "k2", "k3")

# Differences of log-probabilities are clamped to this before they are exponentiated, as in the paper's code;
# beyond it the gradient is 0.
LOG_RATIO_LIMIT = 10.0

Metrics = dict[str, Array]


def _log_ratio(logp: Array, logp_other: Array, mask: Array) -> Array:
    """logp - logp_other in float32, 0 where masked. It masks inputs: 0 * nan is nan in a gradient too."""
    logp = jnp.where(mask, logp, 0.0).astype(jnp.float32)
    logp_other = jnp.where(mask, logp_other, 0.0).astype(jnp.float32)
    return logp - logp_other


def _clamp(log_ratio: Array) -> Array:
    return jnp.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _tokens_in_segment(mask: Array, segments: Array) -> Array:
    """[S]: number of trained tokens in the segment of each token of a row; nan where an id is above S."""
    counts = jnp.zeros(segments.size + 1).at[segments].add(mask)
    return counts.at[segments].get(mode="fill", fill_value=jnp.nan)


@partial(jax.jit, static_argnames="kind")
def token_weights(mask: Array, segments: Array | None = None, *, kind: str = "sequence") -> Array:
    """Weight of every token in a mean over the batch; they sum to 1, or are all 0 if nothing is trained on.

    'sequence': mean over the tokens of each sequence, then over the sequences that have any (the paper's
      loss).
    'token': mean over all tokens of the batch, so that long sequences weigh more.

    Args:
      mask: [B,S] bool.
      segments: [B,S] int, which sequence of its row a token belongs to, for packed rows; None: a row is one
        sequence. Ids are at most S and mean nothing across rows. A larger id makes the weights nan rather
        than silently wrong.
      kind: one of `AGGREGATIONS`, static.
    Returns:
      [B,S] float32.
    Raises:
      ValueError: unknown kind.
    """
    if kind not in AGGREGATIONS:
        raise ValueError(
            f"unknown aggregation {kind!r}: set kind to one of {', '.join(map(repr, AGGREGATIONS))}"
        )
    weights = mask.astype(jnp.float32)
    if kind == "sequence":
        segments = jnp.zeros(mask.shape, jnp.int32) if segments is None else segments
        weights = jnp.where(mask, 1.0 / jax.vmap(_tokens_in_segment)(weights, segments), 0.0)
    total = jnp.sum(weights)  # the number of tokens or of sequences
    return weights / jnp.where(total == 0, 1.0, total)


@partial(jax.jit, static_argnames="kind")
def aggregate(values: Array, mask: Array, segments: Array | None = None, *, kind: str = "sequence") -> Array:
    """Mean of `values` [B,S] over the batch, as `token_weights` defines it; 0 if nothing is trained on."""
    return jnp.sum(jnp.where(mask, values, 0.0) * token_weights(mask, segments, kind=kind))


@jax.jit
def clipped_surrogate(
    logp: Array,
    logp_old: Array,
    advantage: Array,
    mask: Array,
    *,
    eps_low: float | Array,
    eps_high: float | Array,
    weights: Array | None = None,
) -> tuple[Array, Metrics]:
    """The clipped policy-gradient loss, -mean min(r A, clip(r, 1 - eps_low, 1 + eps_high) A).

    r = exp(logp - logp_old), with the exponent clamped to +-`LOG_RATIO_LIMIT`.

    The paper clips symmetrically at 0.2. A correction for the sampler's own log-probabilities is a factor of
    the advantage: pass `advantage * importance_correction(...)`.

    Args:
      logp: [B,S], log-probabilities of the trained tokens under the current parameters.
      logp_old: [B,S], the same under the parameters before the update; no gradient flows into it.
      advantage: [B,S], or [B] for one advantage a row; no gradient flows into it.
      mask: [B,S] bool.
      eps_low, eps_high: clip range below and above 1, traced values.
      weights: [B,S] from `token_weights`, 0 where masked; None: mean over a row's tokens, then over rows.
    Returns:
      (loss, metrics): scalars; metrics are weighted as the loss is. 'ratio' is the mean of r, 'clip_fraction'
      the share of tokens whose gradient the clip removes, 'approx_kl' the k3 estimate of KL(old || current).
    """
    weights = token_weights(mask) if weights is None else weights
    advantage = advantage[..., None] if advantage.ndim == logp.ndim - 1 else advantage
    advantage = jax.lax.stop_gradient(jnp.where(mask, advantage, 0.0).astype(jnp.float32))
    log_ratio = _clamp(_log_ratio(logp, jax.lax.stop_gradient(logp_old), mask))
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - eps_low, 1.0 + eps_high)
    loss = jnp.sum(weights * -jnp.minimum(ratio * advantage, clipped * advantage))
    metrics = {
        "ratio": ratio,
        "clip_fraction": clipped * advantage < ratio * advantage,
        "approx_kl": ratio - 1.0 - log_ratio,
    }
    return loss, {name: jax.lax.stop_gradient(jnp.sum(weights * value)) for name, value in metrics.items()}


@partial(jax.jit, static_argnames="kind")
def kl_estimate(logp: Array, logp_ref: Array, mask: Array, *, kind: str = "k3") -> Array:
    """Per-token estimate of KL(current || reference) at tokens sampled from the current policy.

    With d = logp - logp_ref: 'k1' is d (unbiased, may be negative; to report, as its gradient is 0 in
    expectation), 'k2' is d^2 / 2 (biased, its gradient is not), 'k3' is exp(-d) - 1 + d (unbiased, never
    negative; the paper's, which takes the policy before the update as reference).

    Args:
      logp, logp_ref: [B,S].
      mask: [B,S] bool.
      kind: one of `KL_KINDS`, static.
    Returns:
      [B,S] float32, 0 where masked, for `aggregate` or a weighted sum.
    Raises:
      ValueError: unknown kind.
    """
    log_ratio = _log_ratio(logp, logp_ref, mask)
    if kind == "k1":
        return log_ratio
    if kind == "k2":
        return log_ratio**2 / 2
    if kind == "k3":
        # Both terms: clamping the exponential alone would turn the gradient's sign around beyond the limit.
        log_ratio = _clamp(log_ratio)
        return jnp.expm1(-log_ratio) + log_ratio
    raise ValueError(f"unknown KL estimate {kind!r}: set kind to one of {', '.join(map(repr, KL_KINDS))}")


@jax.jit
def importance_correction(logp_old: Array, logp_sampler: Array, mask: Array, *, cap: float | Array) -> Array:
    """Truncated importance weight of every token, min(exp(logp_old - logp_sampler), cap), without gradient.

    Sampler and trainer disagree about the log-probabilities of the same parameters (other kernels, other
    precision, older weights); this corrects for it at bounded variance.

    Args:
      logp_old: [B,S], the trainer's log-probabilities before the update.
      logp_sampler: [B,S], those recorded when the tokens were sampled.
      mask: [B,S] bool.
      cap: largest weight, a traced value.
    Returns:
      [B,S] float32, 1 where masked (or `cap`, if that is below 1).
    """
    weight = jnp.exp(_clamp(_log_ratio(logp_old, logp_sampler, mask)))
    return jax.lax.stop_gradient(jnp.minimum(weight, cap))


@jax.jit
def cross_entropy(logp: Array, mask: Array, *, weights: Array | None = None) -> tuple[Array, Metrics]:
    """Negative log-likelihood of the target tokens, for a supervised warm start.

    Args:
      logp: [B,S], log-probabilities of the targets.
      mask: [B,S] bool.
      weights: [B,S] from `token_weights`, possibly times a weight of each example, 0 where masked; None: mean
        over the tokens of a row, then over rows.
    Returns:
      (loss, metrics): scalars; 'likelihood' is the mean probability of a target token.
    """
    weights = token_weights(mask) if weights is None else weights
    logp = jnp.where(mask, logp, 0.0).astype(jnp.float32)
    likelihood = jax.lax.stop_gradient(jnp.sum(weights * jnp.exp(logp)))
    return -jnp.sum(weights * logp), {"likelihood": likelihood}
