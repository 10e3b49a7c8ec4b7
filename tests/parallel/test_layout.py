"""The tables of the layout, on meshes without devices."""

import jax
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import init, unstack
from rlanything_jax.models.lora import init_adapters
from rlanything_jax.models.quantize import quantize_params
from rlanything_jax.models.weights import NAMES
from rlanything_jax.parallel.layout import DECODE, LEAVES, partition_spec, place_rows, specs, split
from rlanything_jax.trainer.optimizers import optimizer
from rlanything_jax.trainer.step import TrainState

CONFIG = ModelConfig(
    vocab_size=32, embed_dim=16, layers=2, heads=4, kv_heads=4, head_dim=4, ff_dim=24, dtype="bfloat16"
)
MESH = AbstractMesh((2, 2, 4), ("data", "fsdp", "tensor"))


def test_kernel_is_split_along_both_of_its_dimensions() -> None:
    assert partition_spec("layers/wq/kernel", (2, 16, 16), MESH) == PartitionSpec(None, "fsdp", "tensor")
    assert partition_spec("layers/wo/kernel", (2, 16, 16), MESH) == PartitionSpec(None, "tensor", "fsdp")
    assert partition_spec("embed", (32, 16), MESH) == PartitionSpec("tensor", "fsdp")


def test_decoding_gathers_no_weights() -> None:
    assert partition_spec("layers/wq/kernel", (16, 16), MESH, DECODE) == PartitionSpec(None, "tensor")
    assert partition_spec("layers/wo/kernel", (16, 16), MESH, DECODE) == PartitionSpec("tensor", None)


def test_dimension_that_does_not_divide_stays_whole() -> None:
    assert partition_spec("embed", (30, 16), MESH) == PartitionSpec(None, "fsdp")
    assert split(("rows", "positions"), (6, 8), MESH) == PartitionSpec(None, None)


def test_rows_are_split_over_data_and_fsdp() -> None:
    assert split(("rows", "positions"), (8, 8), MESH) == PartitionSpec(("data", "fsdp"), None)
    assert split(("rows",), (8,), AbstractMesh((2,), ("data",))) == PartitionSpec("data")


def test_axis_that_the_mesh_lacks_splits_nothing() -> None:
    assert partition_spec("layers/experts/w_up", (2, 8, 16, 4), MESH) == PartitionSpec(
        None, None, "fsdp", "tensor"
    )
    assert partition_spec("embed", (32, 16), AbstractMesh((8,), ("data",))) == PartitionSpec(None, None)


def test_leaf_without_a_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="no sharding rule for parameter 'layers/wq/other'"):
        partition_spec("layers/wq/other", (2, 16), MESH)
    with pytest.raises(ValueError, match="'layers/wq/kernel' of shape"):
        partition_spec("layers/wq/kernel", (16,), MESH)


def test_every_leaf_with_a_name_has_a_rule() -> None:
    assert {leaf.removeprefix("layers/") for leaf in NAMES} <= set(LEAVES)


def test_moments_and_master_weights_lie_where_their_parameters_do() -> None:
    def make() -> TrainState:
        params = init(CONFIG, jax.random.key(0))
        tx = optimizer(0.1, moments="bfloat16", master_weights=True)
        return TrainState(params, tx.init(params), jax.numpy.zeros((), "int32"))

    state = jax.eval_shape(make)
    stated = specs(state, MESH)
    found = jax.tree.leaves(stated, is_leaf=lambda x: isinstance(x, PartitionSpec))
    kernel = PartitionSpec(None, "fsdp", "tensor")
    assert found.count(kernel) == 4 * 5  # wq, wk, wv, w_gate, w_up: parameters, master copy, two moments
    assert found.count(PartitionSpec()) >= 2 and stated.step == PartitionSpec()


def test_adapters_int8_kernels_and_layers_one_by_one_have_rules() -> None:
    pytest.importorskip("qwix", reason="int8 weights need the int8 extra")
    base = quantize_params(init(CONFIG, jax.random.key(0)))
    frozen, adapters = init_adapters(base, rank=2, alpha=1.0, targets=("wo",), key=jax.random.key(1))
    wo = specs(frozen, MESH)["layers"]["wo"]
    assert wo["kernel_int8"] == PartitionSpec(None, "tensor", "fsdp")
    assert wo["kernel_scale"] == PartitionSpec(None, "fsdp") and wo["lora_scale"] == PartitionSpec(None)
    assert specs(adapters, MESH)["layers"]["wo"] == {
        "lora_a": PartitionSpec(None, "tensor", None),
        "lora_b": PartitionSpec(None, None, "fsdp"),
    }
    layer = specs(unstack(adapters, CONFIG), MESH)["layers"][1]["wo"]
    assert layer == {"lora_a": PartitionSpec("tensor", None), "lora_b": PartitionSpec(None, "fsdp")}


def test_without_a_mesh_a_batch_stays_with_the_host() -> None:
    batch = {"tokens": [1, 2]}
    assert place_rows(batch) is batch
