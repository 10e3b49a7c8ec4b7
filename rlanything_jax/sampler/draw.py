"""One token a row from a distribution that each row shapes for itself: temperature, top-k, top-p.

A draw is two small ones: the vocabulary is cut into about sqrt(V) pieces, a piece is drawn by its mass and a token within
it, both by the Gumbel trick. That is the same distribution with sqrt(V) random numbers instead of V, and unlike
an inverse of the cumulative sum it does not turn on the last bits of a long sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Sampling(NamedTuple):
    """What may differ from row to row; all arrays, so that no value of them compiles anything anew."""

    temperature: np.ndarray | Array  # [B] float32; 0 takes the likeliest token
    budget: np.ndarray | Array  # [B] tokens to sample at most; 0 leaves the row alone
    stop: np.ndarray | Array  # [B,E] ids that end a turn (they are kept); -1 stands for none
    request: np.ndarray | Array  # [B] uint32, names the row's random stream
    seed: np.uint32 | Array  # []
    top_k: np.ndarray | np.integer | Array = np.int32(0)  # [B] or []: tokens to choose from; 0 for all
    top_p: np.ndarray | np.floating | Array = np.float32(
        1
    )  # [B] or []: of the likeliest, with this mass together


class Draw(NamedTuple):
    token: Array  # [B]
    logprob: Array  # [B] float32, of the distribution that was sampled; 0 where it has one token
    kept: Array  # [B] float32 log of the mass that top-k and top-p left of softmax(logits / temperature)


def draw(logits: Array, sampling: Sampling, position: Array) -> Draw:
    """One token a row of logits [B,V], for the place `position` [B] of its text.

    `logprob + kept` is the token's log-probability under softmax(logits / temperature), which is what a trainer computes.
    The key is folded from (seed, request, position) only, so that a sample does not depend on the row's slot
    or neighbours.
    """
    greedy = jnp.asarray(sampling.temperature) <= 0
    temperature = jnp.where(greedy, 1.0, sampling.temperature)
    top_k, top_p = jnp.asarray(sampling.top_k), jnp.asarray(sampling.top_p)
    least, kept = jax.lax.cond(
        jnp.any(top_k > 0) | jnp.any(top_p < 1),
        lambda x, t: least_kept(x, t, top_k, top_p),
        lambda x, t: (jnp.full(x.shape[0], -jnp.inf), jnp.zeros(x.shape[0])),
        logits,
        temperature,
    )
    # Compared before they are scaled: a quotient that is computed twice may differ in its last bit.
    scaled = jnp.where(logits >= least[:, None], logits / temperature[:, None], -jnp.inf)
    width = 1 << ((logits.shape[1] - 1).bit_length() + 1) // 2
    pieces = jnp.pad(scaled, ((0, 0), (0, -scaled.shape[1] % width)), constant_values=-jnp.inf)
    pieces = pieces.reshape(len(scaled), -1, width)  # [B,C,W]
    count = pieces.shape[1]
    tops = jnp.max(pieces, axis=2)
    top = jnp.max(tops, axis=1)
    mass = jnp.sum(jnp.exp(pieces - top[:, None, None]), axis=2)

    def noise(request: Array, position: Array) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(sampling.seed), request), position)
        return jax.random.gumbel(key, (count + width,))

    gumbel = jax.vmap(noise)(jnp.asarray(sampling.request), position)
    likeliest = greedy[:, None]
    piece = jnp.argmax(jnp.where(likeliest, tops, jnp.log(mass) + gumbel[:, :count]), axis=1)
    inside = jnp.take_along_axis(pieces, piece[:, None, None], axis=1)[:, 0]  # [B,W]
    place = jnp.argmax(jnp.where(likeliest, inside, inside + gumbel[:, count:]), axis=1)
    chosen = jnp.take_along_axis(inside, place[:, None], axis=1)[:, 0]
    logprob = chosen - top - jnp.log(jnp.sum(mass, axis=1))
    return Draw(
        (piece * width + place).astype(jnp.int32),
        jnp.where(greedy, 0.0, logprob),
        jnp.where(greedy, 0.0, kept),
    )


def least_kept(logits: Array, temperature: Array, top_k: Array, top_p: Array) -> tuple[Array, Array]:
    """The least logit among the top k, and of these among the top p, of logits [B,V]; and the log of their mass, both [B].

    Found by bisection over the bits of a float: 32 passes instead of a sort. Tokens that are as likely as the last one
    belong to it.
    """
    probs = jax.nn.softmax(logits / temperature[:, None], axis=-1)
    bits = jax.lax.bitcast_convert_type(jnp.where(logits == 0, 0.0, logits), jnp.uint32)  # -0 is 0
    sign = jnp.uint32(1 << 31)
    rank = jnp.where(bits & sign, ~bits, bits | sign)  # in the order of the logits
    bottom, top = jnp.min(rank, axis=1), jnp.max(rank, axis=1)

    def largest(holds: Callable[[Array], Array]) -> Array:
        """The largest rank [B] down to which the kept tokens [B,V] satisfy `holds`; the bottom where none does."""

        def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bounds
            gap = high - low
            middle = low + (gap - gap // 2)
            enough = holds(rank >= middle[:, None])
            return jnp.where(enough, middle, low), jnp.where(enough, high, middle - (gap > 0))

        return jax.lax.fori_loop(0, 32, halve, (bottom, top))[0]

    def mass(keep: Array) -> Array:
        return jnp.sum(jnp.where(keep, probs, 0.0), axis=1)

    of_k = jnp.where(top_k > 0, largest(lambda keep: jnp.sum(keep, axis=1) >= top_k), bottom)
    wanted = top_p * mass(rank >= of_k[:, None])
    of_p = jnp.where(top_p < 1, largest(lambda keep: mass(keep) >= wanted), bottom)
    last = jnp.maximum(of_k, of_p)
    keep = rank >= last[:, None]
    least = jax.lax.bitcast_convert_type(jnp.where(last & sign, last ^ sign, ~last), jnp.float32)
    return least, jnp.where(jnp.all(keep, axis=1), 0.0, jnp.log(mass(keep)))
