"""Hugging Face tensors in our layout and back, on arrays that say where they came from."""

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import init
from rlanything_jax.models.sharding import abstract_params
from rlanything_jax.models.tensor_files import TensorInfo
from rlanything_jax.models.weights import _read, _tensors, export_tensors, load_params

CONFIG = ModelConfig(
    vocab_size=6, embed_dim=4, layers=3, heads=2, kv_heads=1, head_dim=4, ff_dim=5, qkv_bias=True, qk_norm=True,
    tie_embeddings=False,
)  # fmt: skip
FILE = Path("model.safetensors")


class Memory:
    """Tensors in a dict; counts what is read of them."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.reads: list[tuple[str, tuple[int, ...]]] = []

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        return {name: TensorInfo(FILE, array.shape) for name, array in self.arrays.items()}

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        piece = self.arrays[name][index]
        self.reads.append((name, piece.shape))
        return piece


def source(config: ModelConfig = CONFIG) -> Memory:
    """Every tensor of the config in Hugging Face's shape, filled with random numbers."""
    rng = np.random.default_rng(0)
    leaves = flatten_dict(abstract_params(config), sep="/")
    return Memory(
        {
            name: rng.normal(size=shape).astype(np.float32)
            for leaf, spec in leaves.items()
            for name, shape in _tensors(leaf, spec.shape)
        }
    )


def test_kernels_are_transposed_and_stacked_tables_are_not() -> None:
    s = source()
    params = load_params(s, CONFIG)
    np.testing.assert_array_equal(
        params["layers"]["wk"]["kernel"][2], s.arrays["model.layers.2.self_attn.k_proj.weight"].T
    )
    np.testing.assert_array_equal(
        params["layers"]["wk"]["bias"][1], s.arrays["model.layers.1.self_attn.k_proj.bias"]
    )
    np.testing.assert_array_equal(params["embed"], s.arrays["model.embed_tokens.weight"])
    np.testing.assert_array_equal(params["head"], s.arrays["lm_head.weight"])


def test_loaded_tree_is_the_tree_that_init_makes() -> None:
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    ours = jax.eval_shape(functools.partial(init, config), jax.random.key(0))
    loaded = load_params(source(config), config)
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (ours, loaded)]
    assert shapes[0] == shapes[1]
    assert loaded["layers"]["wq"]["kernel"].dtype == "bfloat16"


def test_export_gives_back_what_was_loaded() -> None:
    s = source()
    exported = {t.name: t for t in export_tensors(load_params(s, CONFIG))}
    assert exported.keys() == s.arrays.keys()
    for name, tensor in exported.items():
        assert tensor.shape == s.arrays[name].shape
        np.testing.assert_array_equal(tensor.make(), s.arrays[name])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_piece_is_the_slice_of_the_whole_and_no_more_is_read(data: st.DataObject) -> None:
    s = source()
    leaves = flatten_dict(abstract_params(CONFIG), sep="/")
    leaf = data.draw(st.sampled_from(sorted(leaves)))
    spec = leaves[leaf]
    whole = _read(s, leaf, spec.dtype, tuple((0, n) for n in spec.shape))
    bounds = tuple(
        tuple(sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))))
        for n in spec.shape
    )
    s.reads.clear()
    piece = _read(s, leaf, spec.dtype, bounds)
    np.testing.assert_array_equal(piece, whole[tuple(slice(*b) for b in bounds)])
    assert sum(np.prod(shape) for _, shape in s.reads) == piece.size


def problem(s: Memory, config: ModelConfig = CONFIG) -> str:
    with pytest.raises(ValueError) as caught:
        load_params(s, config)
    return str(caught.value)


def test_missing_tensor_is_named_with_its_file() -> None:
    s = source()
    del s.arrays["model.layers.1.mlp.up_proj.weight"]
    assert "model.layers.1.mlp.up_proj.weight [5, 4] is missing from model.safetensors" in problem(s)


def test_extra_tensor_is_named_with_its_file() -> None:
    s = source()
    s.arrays["model.layers.3.mlp.up_proj.weight"] = np.zeros((5, 4), np.float32)
    assert "model.layers.3.mlp.up_proj.weight [5, 4] in model.safetensors has no place" in problem(s)


def test_mis_shaped_tensor_is_named_with_its_file() -> None:
    s = source()
    s.arrays["lm_head.weight"] = np.zeros((7, 4), np.float32)
    assert "lm_head.weight in model.safetensors has shape [7, 4], the config asks for [6, 4]" in problem(s)


def test_many_problems_are_counted() -> None:
    s = source()
    s.arrays = {"model.norm.weight": s.arrays["model.norm.weight"]}
    # 3 layers of 14 tensors and two tables are missing, five of them named.
    assert problem(s).endswith(f"and {3 * 14 + 2 - 5} more")


def test_nothing_is_read_before_all_names_fit() -> None:
    s = source()
    s.arrays["other"] = np.zeros(1, np.float32)
    problem(s)
    assert not s.reads


def test_rotary_tables_of_old_exports_are_passed_over() -> None:
    s = source()
    s.arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(2, np.float32)
    s.arrays["model.rotary_emb.inv_freq"] = np.zeros(2, np.float32)
    load_params(s, CONFIG)


def test_tied_model_may_store_its_table_twice_but_not_two_tables() -> None:
    tied = dataclasses.replace(CONFIG, tie_embeddings=True)
    s = source(tied)
    s.arrays["lm_head.weight"] = s.arrays["model.embed_tokens.weight"].copy()
    assert "head" not in load_params(s, tied)
    s.arrays["lm_head.weight"][5, 3] += 1
    assert "lm_head.weight in model.safetensors differs from model.embed_tokens.weight" in problem(s, tied)


def test_untied_model_without_a_head_is_missing_it() -> None:
    s = source()
    del s.arrays["lm_head.weight"]
    assert "lm_head.weight [6, 4] is missing" in problem(s)


def test_adapters_cannot_be_exported() -> None:
    params = abstract_params(CONFIG)
    params["layers"]["wq"]["lora_a"] = params["layers"]["wq"]["kernel"]
    with pytest.raises(ValueError, match="'layers/wq/lora_a' has no Hugging Face name; merge adapters"):
        export_tensors(params)
