"""The two meshes of a run: one of all devices for training, one of each host's own devices for sampling.

Training and sampling alternate on the same devices. Samples of one host depend on nothing that another host does, so each
host generates by itself, with whole weights in `layout.DECODE`, and no collective runs between two tokens but those of the
`tensor` and `expert` axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

AXES = ("data", "fsdp", "tensor", "sequence", "expert")


class Meshes(NamedTuple):
    train: Mesh  # all devices of all hosts, axes AXES
    rollout: Mesh  # the devices of every host in its order, axes data, tensor, expert
    local: Mesh  # the part of `rollout` that is this host's


def make_meshes(sizes: Mapping[str, int], devices: Sequence[jax.Device] | None = None) -> Meshes:
    """The meshes of a config's `mesh` section.

    Args:
      sizes: of the axes; one of them may be -1, which takes what the others leave.
      devices: of all hosts; by default all there are.

    Raises:
      ValueError: an unknown axis, sizes that do not make up the devices, a model that one host cannot hold because its
        tensor and expert axes are larger than a host.
    """
    devices = list(jax.devices() if devices is None else devices)
    shape = axis_sizes(sizes, len(devices))
    train = jax.make_mesh(
        tuple(shape.values()), AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices
    )
    model = shape["tensor"] * shape["expert"]
    hosts = sorted({device.process_index for device in devices})
    here = [device for device in devices if device.process_index == jax.process_index()]
    if len(here) % model:
        raise ValueError(
            f"mesh.tensor={shape['tensor']} times mesh.expert={shape['expert']} must divide the {len(here)} devices of a "
            "host, which samples with whole models"
        )
    by_host = [device for host in hosts for device in devices if device.process_index == host]

    def rollout(devices: list[jax.Device]) -> Mesh:
        grid = np.array(devices).reshape(-1, shape["tensor"], shape["expert"])
        return Mesh(grid, ("data", "tensor", "expert"), axis_types=(AxisType.Auto,) * 3)

    return Meshes(train, rollout(by_host), rollout(here))


def axis_sizes(sizes: Mapping[str, int], devices: int) -> dict[str, int]:
    """Sizes of all AXES, with -1 filled in; ValueError where they do not make up that many devices."""
    if unknown := sorted(set(sizes) - set(AXES)):
        raise ValueError(f"config.mesh has no axes {unknown}; choose from {', '.join(AXES)}")
    shape = {name: sizes.get(name, 1) for name in AXES}
    rest = [name for name, size in shape.items() if size == -1]
    known = math.prod(size for size in shape.values() if size != -1)
    if len(rest) > 1 or known < 1 or (devices % known if rest else devices != known):
        raise ValueError(
            f"config.mesh={shape} does not make up {devices} device(s): the product must be that number, and one axis may "
            "be -1 for what the others leave"
        )
    return shape | {name: devices // known for name in rest}
