"""Logits against `transformers`, float32, random weights: every family, every variant of the rotary embedding."""

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np
import pytest

from rlanything_jax.models import ModelConfig, Params, logits, unstack
from rlanything_jax.models.families import config_from_hf, config_to_hf
from rlanything_jax.sampler.session import extend, new_sessions

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of their imports
    torch = pytest.importorskip("torch", reason="parity needs transformers and torch")
    transformers = pytest.importorskip("transformers", reason="parity needs transformers and torch")

TOLERANCE = 2e-4
S = 40  # tokens, beyond the original context of the stretched variants
ORIGINAL = 16

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
WINDOW = {"use_sliding_window": True, "sliding_window": 7}
MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "head_dim": 16}
CASES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "rope_theta": 1e4},
    "llama linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama llama3": {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3},
    "smollm2": {
        "model_type": "llama",
        "rope_theta": 1e5,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "hidden_size": 24,
        "tie_word_embeddings": True,
    },
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen2 yarn": {"model_type": "qwen2", "rope_scaling": YARN},
    "qwen2 window": {"model_type": "qwen2", **WINDOW, "max_window_layers": 1},
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "rope_theta": 1e6},
    "qwen3 yarn": {
        "model_type": "qwen3",
        "head_dim": 16,
        "rope_parameters": YARN
        | {"rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 8, "truncate": False},
    },
    "qwen3 windows": {
        "model_type": "qwen3",
        "head_dim": 16,
        "num_hidden_layers": 3,
        **WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen3-moe": {"model_type": "qwen3_moe", **MOE, "norm_topk_prob": True},
    "qwen3-moe window": {"model_type": "qwen3_moe", **MOE, **WINDOW, "norm_topk_prob": False},
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def build(values: dict[str, Any]) -> Any:
    """A model of `transformers` with random norms and biases, as large as those of trained models."""
    values = {key: value for key, value in values.items() if key != "model_type"} | {
        "attn_implementation": "eager"
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        config = transformers.AutoConfig.for_model(values.pop("_family"), **values)
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.2 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            base = 1.0 if "norm" in name else 0.0
            parameter.copy_(base + spread * torch.randn(parameter.shape))
    return model


def from_torch(model: Any, config: ModelConfig) -> Params:
    """Their parameters in our tree."""
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}

    def stacked(name: str) -> np.ndarray:
        return np.stack([state[f"model.layers.{i}.{name}"] for i in range(config.layers)])

    def linear(name: str, bias: bool = False) -> Params:
        layer = {"kernel": stacked(f"{name}.weight").swapaxes(-1, -2)}
        return layer | ({"bias": stacked(f"{name}.bias")} if bias else {})

    layers: Params = {
        "attn_norm": {"scale": stacked("input_layernorm.weight")},
        "ff_norm": {"scale": stacked("post_attention_layernorm.weight")},
        "wo": linear("self_attn.o_proj"),
    }
    for x in "qkv":
        layers[f"w{x}"] = linear(f"self_attn.{x}_proj", config.qkv_bias)
    if config.qk_norm:
        layers |= {f"{x}_norm": {"scale": stacked(f"self_attn.{x}_norm.weight")} for x in "qk"}
    if config.experts:
        gate, up = np.split(stacked("mlp.experts.gate_up_proj").swapaxes(-1, -2), 2, axis=-1)
        down = stacked("mlp.experts.down_proj").swapaxes(-1, -2)
        layers |= {"router": linear("mlp.gate"), "experts": {"w_gate": gate, "w_up": up, "w_down": down}}
    else:
        layers |= {f"w_{x}": linear(f"mlp.{x}_proj") for x in ("gate", "up", "down")}
    params: Params = {
        "embed": state["model.embed_tokens.weight"],
        "layers": layers,
        "norm": state["model.norm.weight"],
    }
    return params if config.tie_embeddings else params | {"head": state["lm_head.weight"]}


def cached_logits(params: Params, config: ModelConfig, tokens: np.ndarray) -> np.ndarray:
    """The logits [B,S,V] as a sampler sees them: row 0 reads token by token, the others in chunks of several sizes."""
    b, s = tokens.shape
    layers, sessions = unstack(params, config), new_sessions(config, b, s)
    steps = [1] + [1 + i % 4 for i in range(b - 1)]
    at, out = np.zeros(b, int), np.full((b, s, config.vocab_size), np.nan)
    while (at < s).any():
        count = np.minimum(steps, s - at)
        chunk = np.stack(
            [np.resize(row[i : i + 4], 4) if i < s else row[:4] for row, i in zip(tokens, at, strict=True)]
        )
        sessions = extend(layers, config, sessions, chunk, count)
        for row in np.flatnonzero(count):
            out[row, at[row] + count[row] - 1] = sessions.logits[row]
        at += count
    return out


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(name: str) -> None:
    values = SIZES | CASES[name]
    model = build({**values, "_family": values["model_type"]})
    config = config_from_hf(values, source=name)
    # What transformers writes for this model describes it as well, and so does what we write.
    assert config_from_hf(model.config.to_dict(), source=name) == config
    assert config_from_hf(config_to_hf(config), source=name) == config
    params = jax.tree.map(np.asarray, from_torch(model, config))
    assert sum(x.size for x in jax.tree.leaves(params)) == config.parameter_count()

    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (3, S))
    mask = np.ones((3, S), bool)
    mask[1, :9], mask[2, -9:] = False, False
    with torch.no_grad():
        theirs = model(
            input_ids=torch.tensor(tokens),
            attention_mask=torch.tensor(mask, dtype=torch.long),
            position_ids=torch.tensor(np.maximum(mask.cumsum(1) - 1, 0)),
        ).logits.numpy()
    full = np.abs(np.asarray(logits(params, config, tokens, mask)) - theirs)[mask].max()

    text = np.stack([tokens[0, :31], tokens[1, 9:], tokens[2, :31]])  # the rows without their padding
    expected = np.stack([theirs[0, :31], theirs[1, 9:], theirs[2, :31]])
    got = cached_logits(params, config, text)
    cached = np.nanmax(np.abs(got - expected))
    assert np.isfinite(got[0]).all()
    print(
        f"{name}: full {full:.1e}, cached {cached:.1e}, spread of the logits {theirs.std():.2f}"
    )  # pytest -rP
    assert full <= TOLERANCE
    assert cached <= TOLERANCE


@pytest.mark.parametrize("name", ["llama linear", "llama llama3", "qwen2 yarn", "qwen2 window"])
def test_parity_would_notice_if_the_option_were_ignored(name: str) -> None:
    values = SIZES | CASES[name]
    config = config_from_hf(values, source=name)
    plain = dataclasses.replace(config, rope_scaling=None, sliding_window=0, sliding_layers=())
    params = jax.tree.map(np.asarray, from_torch(build({**values, "_family": values["model_type"]}), config))
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (1, S))
    with_option, without = (logits(params, c, tokens, np.ones((1, S), bool)) for c in (config, plain))
    assert np.abs(with_option - without).max() > 100 * TOLERANCE


def test_transformers_loads_an_exported_config() -> None:
    stretched = {"rope_scaling": YARN | {"attention_factor": 1.5}}
    config = config_from_hf(SIZES | CASES["qwen3 windows"] | stretched, source="test")
    loaded = transformers.AutoConfig.for_model(**config_to_hf(config))
    assert loaded.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    assert (loaded.sliding_window, loaded.head_dim) == (7, 16)
    assert loaded.rope_parameters["rope_type"] == "yarn"
    assert loaded.rope_parameters["attention_factor"] == 1.5
