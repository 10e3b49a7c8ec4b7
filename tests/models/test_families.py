"""config.json in and out: published sizes, both spellings, and everything that must be refused by name."""

import dataclasses
from typing import Any

import pytest

from rlanything_jax.models import ModelConfig, RopeScaling
from rlanything_jax.models.families import PRESETS, config_from_hf, config_to_hf

# As the model cards and the headers of the published weights say.
PARAMETERS = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
}
BASE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}
LLAMA = BASE | {"model_type": "llama"}
QWEN2 = BASE | {"model_type": "qwen2"}
QWEN3 = BASE | {"model_type": "qwen3", "head_dim": 16}
MOE = BASE | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
}


def read(values: dict[str, Any]) -> ModelConfig:
    return config_from_hf(values, source="m/config.json")


def test_presets_have_the_published_number_of_parameters() -> None:
    assert {name: config.parameter_count() for name, config in PRESETS.items()} == PARAMETERS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_an_export(name: str) -> None:
    assert read(config_to_hf(PRESETS[name])) == PRESETS[name]


def test_published_file_of_transformers_4_gives_the_preset() -> None:
    llama = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 24,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
    }
    assert read(llama) == PRESETS["llama3.2-3b"]


def test_both_spellings_of_the_rotary_options_mean_the_same() -> None:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 32}
    old = QWEN2 | {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", **scaling}}
    new = QWEN2 | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **scaling}}
    assert read(old) == read(new)
    assert read(new).rope_scaling == RopeScaling("yarn", 4.0, 32)
    assert read(new).rope_theta == 1e6


def test_yarn_without_an_original_context_takes_that_of_the_model() -> None:
    got = read(QWEN2 | {"rope_scaling": {"type": "yarn", "factor": 4.0}}).rope_scaling
    assert got == RopeScaling("yarn", 4.0, 128)


def test_yarn_attention_follows_from_its_two_scales() -> None:
    scaling = {"rope_type": "yarn", "factor": 2.718281828459045, "mscale": 2.0, "mscale_all_dim": 1.0}
    got = read(QWEN2 | {"rope_scaling": scaling}).rope_scaling
    assert got is not None and got.magnitude == pytest.approx(1.2 / 1.1)


@pytest.mark.parametrize(
    ("options", "window", "layers"),
    [
        ({}, 0, ()),
        ({"sliding_window": 8, "use_sliding_window": False}, 0, ()),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, 8, (1, 2)),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, 0, ()),
        (
            {
                "sliding_window": 8,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            8,
            (0, 2),
        ),
    ],
)
def test_windows_are_those_of_the_layers_that_ask_for_one(
    options: dict[str, Any], window: int, layers: tuple[int, ...]
) -> None:
    config = read(QWEN3 | options)
    assert (config.sliding_window, config.sliding_layers) == (window, layers)
    assert read(config_to_hf(config)) == config


def test_a_window_of_qwen3_moe_is_that_of_every_layer() -> None:
    config = read(MOE | {"sliding_window": 8, "use_sliding_window": True})
    assert config.sliding_layers == (0, 1, 2)
    assert read(config_to_hf(config)) == config


def test_experts_are_read_under_both_names_of_their_number() -> None:
    renamed = {key: value for key, value in MOE.items() if key != "num_experts"} | {"num_local_experts": 8}
    config = read(MOE | {"norm_topk_prob": True})
    assert (config.experts, config.experts_per_token, config.expert_ff_dim) == (8, 2, 12)
    assert config.normalise_experts and not read(MOE).normalise_experts
    assert read(renamed) == read(MOE)


def test_defaults_are_those_of_transformers() -> None:
    config = read({key: value for key, value in LLAMA.items() if key != "num_key_value_heads"})
    assert (config.kv_heads, config.head_dim, config.rope_theta) == (4, 8, 10_000.0)
    assert (config.tie_embeddings, config.dtype, config.qkv_bias) == (False, "float32", False)
    assert read(QWEN2).qkv_bias and read(QWEN3).qk_norm
    assert read({key: value for key, value in QWEN3.items() if key != "head_dim"}).head_dim == 128


@pytest.mark.parametrize(
    ("values", "field", "problem"),
    [
        (BASE, "model_type", "= None is not supported; llama, qwen2, qwen3, qwen3_moe are"),
        (BASE | {"model_type": "gemma3"}, "model_type", "= 'gemma3' is not supported"),
        ({key: value for key, value in LLAMA.items() if key != "hidden_size"}, "hidden_size", "is missing"),
        (LLAMA | {"hidden_size": "32"}, "hidden_size", "= '32' is not a number"),
        (LLAMA | {"mlp_bias": True}, "mlp_bias", "= True is not supported"),
        (LLAMA | {"attention_bias": True}, "attention_bias", "= True is not supported"),
        (QWEN3 | {"attention_bias": True}, "attention_bias", "= True is not supported"),
        (LLAMA | {"hidden_act": "gelu"}, "hidden_act", "= 'gelu' is not supported, only 'silu' is"),
        (MOE | {"mlp_only_layers": [0]}, "mlp_only_layers", r"= \[0\] is not supported"),
        (MOE | {"decoder_sparse_step": 2}, "decoder_sparse_step", "= 2 is not supported"),
        (LLAMA | {"quantization_config": {"bits": 4}}, "quantization_config", "is not supported"),
        (LLAMA | {"torch_dtype": "float64"}, "torch_dtype", "= 'float64' is not supported"),
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling", "'dynamic'"),
        (LLAMA | {"rope_scaling": {"type": "linear"}}, "rope_scaling: factor", "is missing"),
        (LLAMA | {"rope_parameters": [1]}, "rope_parameters", r"= \[1\] is not a table"),
        (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor", "= 0.5 is not supported"),
        (
            QWEN3 | {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["full_attention"]},
            "layer_types",
            "for each of 3 layers",
        ),
        (QWEN3 | {"layer_types": ["sliding_attention"] * 3}, "layer_types", "no sliding_window is in use"),
    ],
)
def test_what_the_decoder_cannot_do_is_refused_with_file_and_field(
    values: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=rf"^m/config\.json: {field}.*{problem}"):
        read(values)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"scale_embeddings": True}, "scale_embeddings"),
        ({"qkv_bias": True, "qk_norm": True}, "qkv_bias together with qk_norm"),
        ({"sliding_window": 4, "sliding_layers": (0,)}, "sliding_layers without"),
        ({"experts": 4, "experts_per_token": 1, "expert_ff_dim": 8}, "experts without qk_norm"),
        (
            {
                "qk_norm": True,
                "experts": 4,
                "experts_per_token": 1,
                "expert_ff_dim": 8,
                "sliding_window": 4,
                "sliding_layers": (0,),
            },
            "a window in some layers only",
        ),
    ],
)
def test_what_no_family_has_cannot_be_exported(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        config_to_hf(dataclasses.replace(read(LLAMA), **options))
