"""Parameters as shapes and places."""

import jax
from flax.traverse_util import flatten_dict

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.sharding import abstract_params
from rlanything_jax.parallel.mesh import make_meshes

CONFIG = ModelConfig(
    vocab_size=32, embed_dim=16, layers=2, heads=4, kv_heads=2, head_dim=4, ff_dim=24, dtype="bfloat16"
)


def test_abstract_params_state_shape_dtype_and_place() -> None:
    leaves = flatten_dict(abstract_params(CONFIG), sep="/")
    assert leaves["layers/w_gate/kernel"].shape == (2, 16, 24)
    assert leaves["layers/w_gate/kernel"].dtype == "bfloat16"
    assert leaves["norm"].sharding.device_set == {jax.local_devices()[0]}


def test_on_a_mesh_they_have_the_layout_of_training() -> None:
    mesh = make_meshes({"data": -1}, jax.devices()[:1]).train
    kernel = flatten_dict(abstract_params(CONFIG, mesh), sep="/")["layers/wo/kernel"]
    assert kernel.sharding.spec == jax.P(None, "tensor", "fsdp")
