"""The table of sharding rules on meshes without devices."""

import jax
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import AbstractMesh, PartitionSpec

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.sharding import RULES, abstract_params, partition_spec
from rlanything_jax.models.weights import NAMES

CONFIG = ModelConfig(
    vocab_size=32, embed_dim=16, layers=2, heads=4, kv_heads=2, head_dim=4, ff_dim=24, dtype="bfloat16"
)
MESH = AbstractMesh((2, 2, 4), ("data", "fsdp", "tensor"))


def test_kernel_is_split_along_both_of_its_dimensions() -> None:
    assert partition_spec("layers/wq/kernel", (2, 16, 16), MESH) == PartitionSpec(None, "fsdp", "tensor")
    assert partition_spec("layers/wo/kernel", (2, 16, 16), MESH) == PartitionSpec(None, "tensor", "fsdp")
    assert partition_spec("embed", (32, 16), MESH) == PartitionSpec("tensor", "fsdp")


def test_dimension_that_does_not_divide_stays_whole() -> None:
    assert partition_spec("embed", (30, 16), MESH) == PartitionSpec(None, "fsdp")


def test_axis_that_the_mesh_lacks_splits_nothing() -> None:
    assert partition_spec("layers/experts/w_up", (2, 8, 16, 4), MESH) == PartitionSpec(
        None, None, "fsdp", "tensor"
    )
    assert partition_spec("embed", (32, 16), AbstractMesh((8,), ("data",))) == PartitionSpec(None, None)


def test_leaf_without_a_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="no sharding rule for parameter 'layers/wq/other'"):
        partition_spec("layers/wq/other", (2, 16), MESH)


def test_every_leaf_with_a_name_has_a_rule() -> None:
    assert {leaf.removeprefix("layers/") for leaf in NAMES} == set(RULES)


def test_abstract_params_state_shape_dtype_and_place() -> None:
    leaves = flatten_dict(abstract_params(CONFIG), sep="/")
    assert leaves["layers/w_gate/kernel"].shape == (2, 16, 24)
    assert leaves["layers/w_gate/kernel"].dtype == "bfloat16"
    assert leaves["norm"].sharding.device_set == {jax.local_devices()[0]}
