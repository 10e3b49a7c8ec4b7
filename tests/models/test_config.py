"""The shape of a decoder: errors name the value, equal configs are one, parameters are counted."""

import dataclasses
import math

import jax
import pytest

from rlanything_jax.models import ModelConfig, RopeScaling, init

SIZES = dict(vocab_size=40, embed_dim=16, layers=2, heads=4, kv_heads=2, head_dim=8, ff_dim=24)


@pytest.mark.parametrize("name", [*SIZES, "scan_unroll"])
def test_a_size_below_one_is_refused_by_name_and_value(name: str) -> None:
    with pytest.raises(ValueError, match=rf"model\.{name}=0 must be at least 1"):
        ModelConfig(**SIZES | {name: 0})


def test_heads_that_do_not_divide_into_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.heads=4 must be a multiple of model\.kv_heads=3"):
        ModelConfig(**SIZES | {"kv_heads": 3})


def test_an_odd_head_dim_cannot_be_rotated() -> None:
    with pytest.raises(ValueError, match=r"model\.head_dim=7 must be even"):
        ModelConfig(**SIZES | {"head_dim": 7})


def test_an_unknown_option_is_named_and_the_known_ones_listed() -> None:
    section = {name: value for name, value in SIZES.items() if name != "vocab_size"}
    with pytest.raises(ValueError, match=r"\['n_layers'\].*'layers'"):
        ModelConfig.from_dict(section | {"n_layers": 3}, vocab_size=40)
    assert ModelConfig.from_dict(section, vocab_size=40) == ModelConfig(**SIZES)


def test_the_vocabulary_belongs_to_the_tokenizer_and_not_to_the_config_file() -> None:
    with pytest.raises(ValueError, match="vocab_size"):
        ModelConfig.from_dict(SIZES, vocab_size=40)


def test_equal_configs_hash_alike_so_they_share_compiled_programs() -> None:
    assert hash(ModelConfig(**SIZES)) == hash(ModelConfig(**SIZES))
    assert ModelConfig(**SIZES) != ModelConfig(**SIZES, qkv_bias=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"qkv_bias": True},
        {"qk_norm": True},
        {"tie_embeddings": False, "kv_heads": 4},
        {"qkv_bias": True, "qk_norm": True, "tie_embeddings": False, "layers": 3},
        {"experts": 4, "experts_per_token": 2, "expert_ff_dim": 12, "qk_norm": True},
    ],
)
def test_parameter_count_is_the_number_of_numbers_in_the_parameters(options: dict) -> None:
    config = dataclasses.replace(ModelConfig(**SIZES), **options)
    shapes = jax.eval_shape(lambda key: init(config, key), jax.random.key(0))
    assert config.parameter_count() == sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


@pytest.mark.parametrize("remat", [True, False, "everything"])
def test_remat_is_the_name_of_a_policy(remat: object) -> None:
    with pytest.raises(
        ValueError, match=rf"model\.remat={remat!r} is no policy; choose from none, full, dots"
    ):
        ModelConfig(**SIZES, remat=remat)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, r"model\.dtype='int8' must be one of float32, bfloat16, float16"),
        ({"dtype": None}, r"model\.dtype=None must be one of"),
        ({"param_dtype": "f32"}, r"model\.param_dtype='f32' must be one of"),
        ({"sliding_window": 4}, r"model\.sliding_window=4 and model\.sliding_layers=\(\) belong together"),
        (
            {"sliding_layers": (0,)},
            r"model\.sliding_window=0 and model\.sliding_layers=\(0,\) belong together",
        ),
        ({"sliding_window": 4, "sliding_layers": (0, 2)}, r"model\.sliding_layers=\[2\] are not among the 2"),
        ({"experts_per_token": 2}, r"need model\.experts"),
        (
            {"experts": 4, "expert_ff_dim": 8},
            r"model\.experts_per_token=0 must lie between 1 and model\.experts=4",
        ),
        ({"experts": 4, "experts_per_token": 5}, r"model\.experts_per_token=5 must lie between"),
        ({"experts": 4, "experts_per_token": 1}, r"model\.expert_ff_dim=0 must be at least 1"),
    ],
)
def test_options_that_do_not_fit_together_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**SIZES, **options)


def test_nested_options_of_a_config_file_become_hashable() -> None:
    section = {name: value for name, value in SIZES.items() if name != "vocab_size"} | {
        "rope_scaling": {"kind": "linear", "factor": 2.0},
        "sliding_window": 4,
        "sliding_layers": [1],
    }
    config = ModelConfig.from_dict(section, vocab_size=40)
    assert config.rope_scaling == RopeScaling("linear", 2.0)
    assert config.sliding_layers == (1,)
    assert hash(config) == hash(ModelConfig.from_dict(section, vocab_size=40))


@pytest.mark.parametrize(("param_dtype", "expected"), [(None, "bfloat16"), ("float32", "float32")])
def test_parameters_have_their_own_dtype(param_dtype: str | None, expected: str) -> None:
    config = ModelConfig(**SIZES, tie_embeddings=False, dtype="bfloat16", param_dtype=param_dtype)
    shapes = jax.eval_shape(lambda key: init(config, key), jax.random.key(0))
    assert {str(shapes[name].dtype) for name in ("embed", "head")} == {expected}
    assert shapes["layers"]["w_up"]["kernel"].dtype == expected
