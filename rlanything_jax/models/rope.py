"""Rotary position embeddings, and the ways to stretch them beyond the context that a model was trained on.

Each pair of a head's dimensions turns with the position, at a frequency of its own. The variants change the
frequencies alone:

    linear   every frequency is divided by `factor`, which is the same as to squeeze the positions
    llama3   low frequencies are divided, high ones kept, a smooth passage between (Llama 3.1)
    yarn     the same idea with a ramp over dimensions, and sharper attention (arXiv 2309.00071)
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
from jax import Array

KINDS = ("linear", "llama3", "yarn")


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """How the frequencies are changed. Raises ValueError on an unknown kind or a value that makes no sense."""

    kind: str  # one of KINDS
    factor: float
    original_context: int = 0  # positions of the training before the change; llama3 and yarn
    low_frequency_factor: float = 1.0  # llama3: fewer turns than this over the original context is low
    high_frequency_factor: float = 4.0  # llama3: more turns than this is high
    beta_fast: float = 32.0  # yarn: turns over the original context from which a frequency is kept
    beta_slow: float = 1.0  # yarn: turns up to which it is divided
    attention_factor: float | None = None  # yarn: of cos and sin; None: `yarn_magnitude(factor)`
    truncate: bool = True  # yarn: the ramp begins and ends at whole dimensions

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"rope_scaling.kind={self.kind!r} is unknown; choose from {', '.join(KINDS)}")
        if not self.factor > 0:
            raise ValueError(f"rope_scaling.factor={self.factor} must be positive")
        if self.kind != "linear" and self.original_context < 1:
            raise ValueError(
                f"rope_scaling.original_context={self.original_context} must be at least 1 for {self.kind}"
            )
        if not 0 < self.low_frequency_factor < self.high_frequency_factor:
            raise ValueError(
                f"rope_scaling.low_frequency_factor={self.low_frequency_factor} must be positive and below "
                f"high_frequency_factor={self.high_frequency_factor}"
            )
        if not 0 < self.beta_slow < self.beta_fast:
            raise ValueError(
                f"rope_scaling.beta_slow={self.beta_slow} must be positive and below beta_fast={self.beta_fast}"
            )

    @property
    def magnitude(self) -> float:
        """What cos and sin are multiplied by: attention scores grow by its square."""
        if self.kind != "yarn":
            return 1.0
        return yarn_magnitude(self.factor) if self.attention_factor is None else self.attention_factor


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's 0.1 ln(s) + 1 (its section 3.4); `weight` is what configs call mscale."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def rope(x: Array, positions: Array, theta: float, scaling: RopeScaling | None = None) -> Array:
    """Rotary embedding of x [B,T,N,H] at positions [B,T]; the halves of H are rotated against each other."""
    half = x.shape[-1] // 2
    frequency = frequencies(half, theta, scaling)
    angle = positions[..., None, None].astype(jnp.float32) * frequency  # [B,T,1,H/2]
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    if scaling is not None:
        sin, cos = sin * scaling.magnitude, cos * scaling.magnitude
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def frequencies(half: int, theta: float, scaling: RopeScaling | None = None) -> Array:
    """Radians a position, [H/2] float32, fastest first: theta ** (-i / half), changed as `scaling` says."""
    plain = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    if scaling is None:
        return plain
    kept = _kept(plain, theta, scaling)
    return kept * plain + (1 - kept) * plain / scaling.factor


def _kept(plain: Array, theta: float, scaling: RopeScaling) -> Array:
    """How much of each frequency stays as it was, [H/2] in [0, 1]."""
    context = scaling.original_context
    if scaling.kind == "linear":
        return jnp.zeros_like(plain)
    if scaling.kind == "llama3":
        turns = context * plain / (2 * math.pi)
        low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
        return jnp.clip((turns - low) / (high - low), 0, 1)
    half = plain.shape[0]

    def dimension(turns: float) -> float:
        """The dimension, of half, that turns so often over the original context."""
        return half * math.log(context / (turns * 2 * math.pi)) / math.log(theta)

    first, last = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    # The published code bounds the ramp by the size of the head, not by the number of its frequencies.
    first, last = max(first, 0), min(last, 2 * half - 1)
    ramp = (jnp.arange(half) - first) / (last - first or 0.001)
    return 1 - jnp.clip(ramp, 0, 1)
