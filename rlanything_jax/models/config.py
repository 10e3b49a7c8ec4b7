"""The shape of a decoder, as data.

One frozen dataclass describes every model of the Llama / Qwen type; the decoder reads nothing else. It is
hashable, so it can be a static argument of a jitted function: two configs that are equal share their compiled
programs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of a decoder. Letters are the axis names used throughout: see `models.decoder`."""

    vocab_size: int  # V
    embed_dim: int  # D
    layers: int  # L
    heads: int  # N
    kv_heads: int  # K
    head_dim: int  # H
    ff_dim: int  # F
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    qkv_bias: bool = False
    qk_norm: bool = False
    tie_embeddings: bool = True
    scale_embeddings: bool = False  # multiply the input embedding by sqrt(D)
    dtype: str = "float32"  # of activations and parameters; norms, softmax and logits are always float32
    remat: bool = False  # recompute each layer in the backward pass
    scan_unroll: int = (
        1  # layers per iteration of the training scan; `layers` unrolls it, faster to run, slower to compile
    )

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "embed_dim",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "ff_dim",
            "scan_unroll",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name}={getattr(self, name)} must be at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(f"model.heads={self.heads} must be a multiple of model.kv_heads={self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"model.head_dim={self.head_dim} must be even: rotary embeddings turn pairs")

    @property
    def jax_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, vocab_size: int) -> ModelConfig:
        """A config from the `model` section of a run's config; ValueError on a key that no decoder reads."""
        known = {field.name for field in dataclasses.fields(cls)} - {"vocab_size"}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown model option(s) {unknown}; the options are {sorted(known)}")
        return cls(vocab_size=vocab_size, **values)

    def parameter_count(self) -> int:
        """Number of parameters, embeddings included."""
        attention = self.embed_dim * self.head_dim * 2 * (self.heads + self.kv_heads)
        bias = self.head_dim * (self.heads + 2 * self.kv_heads) if self.qkv_bias else 0
        norms = 2 * self.embed_dim + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + bias + norms + 3 * self.embed_dim * self.ff_dim
        tables = self.vocab_size * self.embed_dim * (1 if self.tie_embeddings else 2)
        return self.layers * layer + tables + self.embed_dim
