"""The meshes of a run: one over all hosts for training, and one of each host's own devices for sampling.

Training and sampling alternate on the same devices, or each has some of them to itself. Samples of one host depend on nothing
that another host does, so each host generates by itself, with whole weights in `layout.DECODE`, and no collective runs between
two tokens but those of the `tensor` and `expert` axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AxisType, Mesh

AXES = ("data", "fsdp", "tensor", "sequence", "expert")


class Meshes(NamedTuple):
    train: Mesh  # the devices that train, of all hosts, axes AXES
    by_host: Mesh  # the same ones, host by host, axes data, tensor, expert: where weights come together for each host
    here: Mesh  # this host's part of `by_host`
    local: Mesh  # this host's devices that sample; `here`, where the same ones train


def make_meshes(
    sizes: Mapping[str, int],
    devices: Sequence[jax.Device] | None = None,
    *,
    rollout: Mapping[str, int] | None = None,
) -> Meshes:
    """The meshes of a config's `mesh` and `rollout_mesh` sections.

    Args:
      sizes: of the axes of training; one of them may be -1, which takes what the others leave.
      devices: of all hosts; by default all there are.
      rollout: `devices`, how many of each host's devices (the last ones) sample and do not train, 0 for all of them in turns;
        `tensor` and `expert`, how these split a model, 0 for as in training.

    Raises:
      ValueError: an unknown axis, sizes that do not make up the devices, a model that one host cannot hold because the
        tensor and expert axes of sampling are larger than what a host samples with.
    """
    devices = list(jax.devices() if devices is None else devices)
    rollout = {"devices": 0, "tensor": 0, "expert": 0} | dict(rollout or {})
    apart = rollout["devices"]
    hosts = sorted({device.process_index for device in devices})
    of_host = {host: [d for d in devices if d.process_index == host] for host in hosts}
    least = min(map(len, of_host.values()))
    if not 0 <= apart < least:
        raise ValueError(
            f"config.rollout_mesh.devices={apart}: of the {least} devices of a host some must be left to train; 0 is for all "
            "of them in turns"
        )
    training = {host: of[: len(of) - apart] for host, of in of_host.items()}
    order = [device for device in devices if device in training[device.process_index]]
    shape = axis_sizes(sizes, len(order))
    # An axis may take a part of a dimension of the torus: 2 x 32 chips of 4 x 4 x 4.
    grid_of_all = create_device_mesh(tuple(shape.values()), order, allow_split_physical_axes=True)
    train = Mesh(grid_of_all, AXES, axis_types=(AxisType.Auto,) * len(AXES))
    tensor, expert = (rollout[name] or shape[name] for name in ("tensor", "expert"))
    this = jax.process_index()
    sampling = of_host[this][-apart:] if apart else of_host[this]
    if len(sampling) % (tensor * expert):
        raise ValueError(
            f"tensor={tensor} times expert={expert} must divide the {len(sampling)} devices with which a host samples, each "
            "time with whole models: see config.rollout_mesh"
        )
    # On their way to devices that only sample, weights are split as far as a host's devices allow.
    parts = (least - apart, 1) if apart else (tensor, expert)

    def grid(devices: list[jax.Device], tensor: int, expert: int) -> Mesh:
        array = np.array(devices).reshape(-1, tensor, expert)
        return Mesh(array, ("data", "tensor", "expert"), axis_types=(AxisType.Auto,) * 3)

    return Meshes(
        train,
        grid([device for host in hosts for device in training[host]], *parts),
        grid(training[this], *parts),
        grid(sampling, tensor, expert),
    )


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
