"""Model families: between Hugging Face's `config.json` and our `ModelConfig`, and the shapes of published models.

Qwen2 and 2.5, Qwen3, Qwen3-MoE and Llama (SmolLM2 is one) are one decoder with different options. A config that asks
for anything else is refused here: weights that load into a slightly different model give slightly wrong numbers, and
nobody notices. Both spellings of the rotary options are read, that of transformers 4 (`rope_theta`, `rope_scaling`)
and of 5 (`rope_parameters`); the older one is written, which both read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlanything_jax.models.config import DTYPES, ModelConfig
from rlanything_jax.models.rope import RopeScaling, yarn_magnitude

# model_type -> the class of transformers that runs it
FAMILIES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
# What the decoder has no place for -> the values that ask for nothing. Qwen2 has its biases whatever its config says.
WITHOUT: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False, None),
    "attention_bias": (False, None),
    "mlp_only_layers": ([], (), None),
    "decoder_sparse_step": (1, None),
    "quantization_config": (None,),
}
FULL, SLIDING = "full_attention", "sliding_attention"  # the entries of `layer_types`


@dataclasses.dataclass(frozen=True)
class _Fields:
    """The fields of a config file, with errors that name both."""

    values: Mapping[str, Any]
    source: str

    def error(self, field: str, problem: str) -> ValueError:
        return ValueError(f"{self.source}: {field} {problem}")

    def number(self, field: str, default: float | None = None) -> Any:
        value = self.values.get(field)
        if value is None:
            value = default
        if value is None:
            raise self.error(field, "is missing")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(field, f"= {value!r} is not a number")
        return value


def config_from_hf(values: Mapping[str, Any], source: str) -> ModelConfig:
    """The shape that a `config.json` describes.

    Args:
      values: the parsed file.
      source: its name, for errors.

    Raises ValueError that names `source` and the field: an unknown `model_type`, a field that is missing or asks for
    what this decoder cannot do.
    """
    fields = _Fields(values, source)
    family = values.get("model_type")
    if family not in FAMILIES:
        raise fields.error("model_type", f"= {family!r} is not supported; {', '.join(FAMILIES)} are")
    for field, harmless in WITHOUT.items():
        if field == "attention_bias" and family == "qwen2":
            continue
        if field in values and values[field] not in harmless:
            raise fields.error(field, f"= {values[field]!r} is not supported, only {harmless[0]!r} is")
    width, heads, layers = (
        fields.number(field) for field in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    theta, scaling = _rope(fields)
    window, sliding = _windows(fields, family, layers)
    experts: dict[str, Any] = {}
    if family == "qwen3_moe":
        # transformers 5 saves the number under its own name for it.
        count = "num_local_experts" if "num_local_experts" in values else "num_experts"
        experts = {
            "experts": fields.number(count),
            "experts_per_token": fields.number("num_experts_per_tok"),
            "expert_ff_dim": fields.number("moe_intermediate_size"),
            "normalise_experts": bool(values.get("norm_topk_prob", False)),
        }
    return ModelConfig(
        vocab_size=fields.number("vocab_size"),
        embed_dim=width,
        layers=layers,
        heads=heads,
        kv_heads=fields.number("num_key_value_heads", heads),
        head_dim=fields.number("head_dim", 128 if family == "qwen3" else width // heads),
        ff_dim=fields.number("intermediate_size"),
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=family == "qwen2",
        qk_norm=family in ("qwen3", "qwen3_moe"),
        sliding_window=window,
        sliding_layers=sliding,
        tie_embeddings=bool(values.get("tie_word_embeddings", False)),
        context=fields.number("max_position_embeddings", 32_768),
        dtype=_dtype(fields),
        **experts,
    )


def _dtype(fields: _Fields) -> str:
    field = "dtype" if "dtype" in fields.values else "torch_dtype"
    name = str(fields.values.get(field) or "float32").removeprefix("torch.")
    if name not in DTYPES:
        raise fields.error(field, f"= {name!r} is not supported; {', '.join(DTYPES)} are")
    return name


def _rope(fields: _Fields) -> tuple[float, RopeScaling | None]:
    """(theta, scaling), from either spelling."""
    field = "rope_scaling" if fields.values.get("rope_scaling") else "rope_parameters"
    values = fields.values.get(field) or {}
    if not isinstance(values, Mapping):
        raise fields.error(field, f"= {values!r} is not a table of options")
    rope = _Fields(
        {"rope_theta": fields.values.get("rope_theta")} | dict(values), f"{fields.source}: {field}"
    )
    theta = float(rope.number("rope_theta", 10_000.0))
    if (part := fields.values.get("partial_rotary_factor") or values.get("partial_rotary_factor") or 1) != 1:
        raise fields.error("partial_rotary_factor", f"= {part!r} is not supported, only 1 is")
    kind = values.get("rope_type") or values.get("type") or "default"
    if kind == "default":
        return theta, None
    factor = float(rope.number("factor")) if kind in ("linear", "llama3", "yarn") else 0.0
    if kind == "linear":
        return theta, RopeScaling("linear", factor)
    context = fields.values.get("original_max_position_embeddings") or rope.number(
        "original_max_position_embeddings", fields.values.get("max_position_embeddings")
    )
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        return theta, RopeScaling("llama3", factor, context, float(low), float(high))
    if kind == "yarn":
        return theta, RopeScaling(
            "yarn",
            factor,
            context,
            beta_fast=float(rope.number("beta_fast", 32)),
            beta_slow=float(rope.number("beta_slow", 1)),
            attention_factor=_yarn_attention(values, factor),
            truncate=bool(values.get("truncate", True)),
        )
    raise fields.error(field, f"has rope_type {kind!r}, which is not supported; linear, llama3 and yarn are")


def _yarn_attention(values: Mapping[str, Any], factor: float) -> float | None:
    if (explicit := values.get("attention_factor")) is not None:
        return float(explicit)
    mscale, all_dim = values.get("mscale"), values.get("mscale_all_dim")
    if mscale and all_dim:
        return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim)
    return None


def _windows(fields: _Fields, family: str, layers: int) -> tuple[int, tuple[int, ...]]:
    """(window, layers that have it). Only Qwen models have windows, and only where `use_sliding_window` says so."""
    values = fields.values
    window = values.get("sliding_window") if values.get("use_sliding_window") else None
    if family == "llama" or window is None:
        if family != "llama" and SLIDING in (values.get("layer_types") or ()):
            raise fields.error("layer_types", f"has {SLIDING!r} layers, but no sliding_window is in use")
        return 0, ()
    if family == "qwen3_moe":  # its every layer
        return window, tuple(range(layers))
    types = values.get("layer_types")
    if types is None:
        sliding = tuple(range(int(fields.number("max_window_layers", 28)), layers))
    elif len(types) != layers or set(types) - {FULL, SLIDING}:
        raise fields.error(
            "layer_types", f"= {types!r} must name {FULL} or {SLIDING} for each of {layers} layers"
        )
    else:
        sliding = tuple(i for i, kind in enumerate(types) if kind == SLIDING)
    return (window, sliding) if sliding else (0, ())


def config_to_hf(config: ModelConfig) -> dict[str, Any]:
    """The `config.json` of a model, which `transformers` loads.

    Raises ValueError where no family has this combination of options.
    """
    family = _family(config)
    values: dict[str, Any] = {
        "architectures": [FAMILIES[family]],
        "model_type": family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.embed_dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ff_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": config.context,
        "rope_theta": config.rope_theta,
        "rope_scaling": _scaling_to_hf(config.rope_scaling),
        "torch_dtype": config.param_dtype or config.dtype,
    }
    if family != "llama":
        sliding = set(config.sliding_layers)
        values |= {"use_sliding_window": bool(sliding), "sliding_window": config.sliding_window or None}
        if family != "qwen3_moe":
            types = [SLIDING if i in sliding else FULL for i in range(config.layers)]
            values |= {"layer_types": types, "max_window_layers": min(sliding, default=config.layers)}
    if family == "qwen3_moe":
        values |= {
            "num_experts": config.experts,
            "num_experts_per_tok": config.experts_per_token,
            "moe_intermediate_size": config.expert_ff_dim,
            "norm_topk_prob": config.normalise_experts,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return values


def _family(config: ModelConfig) -> str:
    """The family that has these options."""
    everywhere = config.sliding_layers in ((), tuple(range(config.layers)))
    if config.scale_embeddings:
        problem = "scale_embeddings"
    elif config.qkv_bias and config.qk_norm:
        problem = "qkv_bias together with qk_norm"
    elif config.experts and not config.qk_norm:
        problem = "experts without qk_norm"
    elif config.experts and not everywhere:
        problem = "experts with a window in some layers only"
    elif config.sliding_layers and not (config.qkv_bias or config.qk_norm):
        problem = "sliding_layers without qkv_bias or qk_norm"
    else:
        if config.experts:
            return "qwen3_moe"
        return "qwen3" if config.qk_norm else "qwen2" if config.qkv_bias else "llama"
    raise ValueError(f"no Hugging Face model has {problem}; it cannot be exported")


def _scaling_to_hf(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    values: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind != "linear":
        values["original_max_position_embeddings"] = scaling.original_context
    if scaling.kind == "llama3":
        values |= {
            "low_freq_factor": scaling.low_frequency_factor,
            "high_freq_factor": scaling.high_frequency_factor,
        }
    if scaling.kind == "yarn":
        values |= {
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
            "truncate": scaling.truncate,
        }
        if scaling.attention_factor is not None:
            values["attention_factor"] = scaling.attention_factor
    return values


def _qwen2(
    width: int, layers: int, heads: int, kv_heads: int, ff: int, *, vocab: int, tied: bool
) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab,
        embed_dim=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads,
        ff_dim=ff,
        rope_theta=1e6,
        qkv_bias=True,
        tie_embeddings=tied,
        dtype="bfloat16",
    )


def _qwen3(width: int, layers: int, heads: int, ff: int, *, tied: bool, kv_heads: int = 8) -> ModelConfig:
    return ModelConfig(
        vocab_size=151_936,
        embed_dim=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        ff_dim=ff,
        rope_theta=1e6,
        qk_norm=True,
        tie_embeddings=tied,
        context=40_960,
        dtype="bfloat16",
    )


def _llama(
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    ff: int,
    *,
    vocab: int = 49_152,
    theta: float = 1e5,
    scaling: RopeScaling | None = None,
    context: int = 8192,
) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab,
        embed_dim=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads,
        ff_dim=ff,
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=1e-5,
        context=context,
        dtype="bfloat16",
    )


_LLAMA32: dict[str, Any] = {
    "vocab": 128_256,
    "theta": 5e5,
    "scaling": RopeScaling("llama3", 32.0, 8192),
    "context": 131_072,
}
# The instruction-tuned checkpoints, as published.
PRESETS: dict[str, ModelConfig] = {
    "qwen2.5-0.5b": _qwen2(896, 24, 14, 2, 4864, vocab=151_936, tied=True),
    "qwen2.5-1.5b": _qwen2(1536, 28, 12, 2, 8960, vocab=151_936, tied=True),
    "qwen2.5-3b": _qwen2(2048, 36, 16, 2, 11_008, vocab=151_936, tied=True),
    "qwen2.5-7b": _qwen2(3584, 28, 28, 4, 18_944, vocab=152_064, tied=False),
    "qwen2.5-14b": _qwen2(5120, 48, 40, 8, 13_824, vocab=152_064, tied=False),
    "qwen3-0.6b": _qwen3(1024, 28, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen3(2048, 28, 16, 6144, tied=True),
    "qwen3-4b": _qwen3(2560, 36, 32, 9728, tied=True),
    "qwen3-8b": _qwen3(4096, 36, 32, 12_288, tied=False),
    "qwen3-30b-a3b": dataclasses.replace(
        _qwen3(2048, 48, 32, 6144, tied=False, kv_heads=4),
        experts=128,
        experts_per_token=8,
        expert_ff_dim=768,
    ),
    "smollm2-135m": _llama(576, 30, 9, 3, 1536),
    "smollm2-360m": _llama(960, 32, 15, 5, 2560),
    "smollm2-1.7b": _llama(2048, 24, 32, 32, 8192, theta=130_000.0),
    "llama3.2-1b": _llama(2048, 16, 32, 8, 8192, **_LLAMA32),
    "llama3.2-3b": _llama(3072, 28, 24, 8, 8192, **_LLAMA32),
}
