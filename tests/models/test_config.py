"""The shape of a decoder: errors name the value, equal configs are one, parameters are counted."""

import dataclasses
import math

import jax
import pytest

from rlanything_jax.models import ModelConfig, init

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
    ],
)
def test_parameter_count_is_the_number_of_numbers_in_the_parameters(options: dict) -> None:
    config = dataclasses.replace(ModelConfig(**SIZES), **options)
    shapes = jax.eval_shape(lambda key: init(config, key), jax.random.key(0))
    assert config.parameter_count() == sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
