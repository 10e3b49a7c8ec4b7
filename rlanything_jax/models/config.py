"""The shape of a decoder, as data.

One frozen dataclass describes every model of the Llama / Qwen type; the decoder reads nothing else. It is
hashable, so it can be a static argument of a jitted function: two configs that are equal share their compiled
programs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from rlanything_jax.models.rope import RopeScaling

# What the backward pass finds stored, by name; the rest of a layer it computes again.
REMAT: dict[str, Callable[..., Any] | None] = {
    "none": None,  # all is stored
    "full": jax.checkpoint_policies.nothing_saveable,  # the layer's input only
    "dots": jax.checkpoint_policies.dots_saveable,  # results of all matrix products
    "dots_no_batch": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # as dots, without attention scores
}
DTYPES = ("float32", "bfloat16", "float16")
SIZES = ("vocab_size", "embed_dim", "layers", "heads", "kv_heads", "head_dim", "ff_dim", "scan_unroll")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of a decoder. Letters are the axis names used throughout: see `models.decoder`."""

    vocab_size: int  # V
    embed_dim: int  # D
    layers: int  # L
    heads: int  # N
    kv_heads: int  # K
    head_dim: int  # H
    ff_dim: int  # F; with experts, of no layer
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-6
    qkv_bias: bool = False
    qk_norm: bool = False
    sliding_window: int = 0  # positions that the layers of `sliding_layers` see, their own included
    sliding_layers: tuple[int, ...] = ()
    experts: int = 0  # E, of each layer; 0 for a dense model
    experts_per_token: int = 0
    expert_ff_dim: int = 0  # F of one expert
    normalise_experts: bool = True  # the shares of a token's experts add up to 1
    tie_embeddings: bool = True
    scale_embeddings: bool = False  # multiply the input embedding by sqrt(D)
    context: int = (
        32_768  # positions that the model was trained for; stated in an export, nothing is cut at it
    )
    dtype: str = "float32"  # of activations; norms, softmax and logits are always float32
    param_dtype: str | None = None  # of parameters, but for norms; None: as dtype
    remat: str = "none"  # a name of REMAT
    scan_unroll: int = (
        1  # layers per iteration of the training scan; `layers` unrolls it, faster to run, slower to compile
    )

    def __post_init__(self) -> None:
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name}={getattr(self, name)} must be at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(f"model.heads={self.heads} must be a multiple of model.kv_heads={self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"model.head_dim={self.head_dim} must be even: rotary embeddings turn pairs")
        if self.remat not in REMAT:
            raise ValueError(f"model.remat={self.remat!r} is no policy; choose from {', '.join(REMAT)}")
        for name in ("dtype", "param_dtype"):
            if getattr(self, name) not in (*DTYPES, *((None,) if name == "param_dtype" else ())):
                raise ValueError(f"model.{name}={getattr(self, name)!r} must be one of {', '.join(DTYPES)}")
        self._check_windows()
        self._check_experts()

    def _check_windows(self) -> None:
        if (self.sliding_window > 0) != bool(self.sliding_layers):
            raise ValueError(
                f"model.sliding_window={self.sliding_window} and model.sliding_layers={self.sliding_layers} "
                "belong together: a positive window and the layers that have it"
            )
        if outside := [i for i in self.sliding_layers if not 0 <= i < self.layers]:
            raise ValueError(f"model.sliding_layers={outside} are not among the {self.layers} layers")

    def _check_experts(self) -> None:
        if self.experts == 0:
            if self.experts_per_token or self.expert_ff_dim:
                raise ValueError("model.experts_per_token and model.expert_ff_dim need model.experts")
            return
        if not 1 <= self.experts_per_token <= self.experts:
            raise ValueError(
                f"model.experts_per_token={self.experts_per_token} must lie between 1 and model.experts={self.experts}"
            )
        if self.expert_ff_dim < 1:
            raise ValueError(f"model.expert_ff_dim={self.expert_ff_dim} must be at least 1")

    @property
    def jax_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)

    @property
    def jax_param_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.param_dtype or self.dtype)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, vocab_size: int) -> ModelConfig:
        """A config from the `model` section of a run's config; ValueError on a key that no decoder reads."""
        known = {field.name for field in dataclasses.fields(cls)} - {"vocab_size"}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown model option(s) {unknown}; the options are {sorted(known)}")
        values = dict(values)
        if isinstance(values.get("rope_scaling"), Mapping):
            values["rope_scaling"] = RopeScaling(**values["rope_scaling"])
        if "sliding_layers" in values:
            values["sliding_layers"] = tuple(values["sliding_layers"])  # lists have no hash
        return cls(vocab_size=vocab_size, **values)

    def parameter_count(self) -> int:
        """Number of parameters, embeddings included."""
        attention = self.embed_dim * self.head_dim * 2 * (self.heads + self.kv_heads)
        bias = self.head_dim * (self.heads + 2 * self.kv_heads) if self.qkv_bias else 0
        norms = 2 * self.embed_dim + (2 * self.head_dim if self.qk_norm else 0)
        ff = 3 * self.embed_dim * self.ff_dim
        if self.experts:
            ff = self.experts * self.embed_dim * (1 + 3 * self.expert_ff_dim)  # the router has a row for each
        layer = attention + bias + norms + ff
        tables = self.vocab_size * self.embed_dim * (1 if self.tie_embeddings else 2)
        return self.layers * layer + tables + self.embed_dim
