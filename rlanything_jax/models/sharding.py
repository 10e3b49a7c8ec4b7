"""The parameters of a config as shapes, dtypes and places: what a loader fills, and what a planner compiles for."""

from __future__ import annotations

import functools

import jax
from jax.sharding import Mesh, SingleDeviceSharding

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params, init
from rlanything_jax.parallel.layout import shardings


def abstract_params(config: ModelConfig, mesh: Mesh | None = None) -> Params:
    """The parameters of a config as `jax.ShapeDtypeStruct`s with their shardings; nothing is allocated.

    They have the layout of training; without a mesh everything lies on the first device.
    """
    shapes = _shapes(config)
    if mesh is None:
        here = SingleDeviceSharding(jax.local_devices()[0])
        layout = jax.tree.map(lambda _: here, shapes)
    else:
        layout = shardings(shapes, mesh)
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, layout)


@functools.cache
def _shapes(config: ModelConfig) -> Params:
    """What `init` would make; tracing it takes a while, and it is asked for at each load."""
    return jax.eval_shape(functools.partial(init, config), jax.random.key(0))
