"""What one slice would have to do for a config: its programs, compiled for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from rlanything_jax.parallel.mesh import AXES, make_meshes
from rlanything_jax.planning import sizes
from rlanything_jax.planning.chips import Topology, topology
from rlanything_jax.planning.compiled import compile_program
from rlanything_jax.planning.models import cast
from rlanything_jax.planning.programs import build
from rlanything_jax.planning.report import Plan


def plan(
    config: ConfigDict,
    slice_name: str,
    assumes: sizes.Assumed,
    *,
    only: Sequence[str] = (),
    progress: Callable[[str], None] = lambda name: None,
) -> Plan:
    """Compiles the programs of a config for one slice, such as 'v5p:4x4x4'.

    Raises ValueError for a slice, a mesh or a checkpoint that there is not, ImportError without libtpu.
    """
    top, models = topology(slice_name), cast(config)
    meshes = make_meshes(config.mesh.to_dict(), top.devices, rollout=config.rollout_mesh.to_dict())
    meshes = meshes._replace(local=_by_itself(meshes.local, top))
    size = sizes.sizes(config, models.policy, top.hosts)
    programs = build(config, models, size, meshes)
    rows = {program.name.split()[0]: program.batch for program in programs.programs if program.batch}
    runs = sizes.runs(config, size, assumes, rows.get("policy", 0), rows.get("judge", 0))
    compiled = []
    for program in programs.programs:
        if not only or any(part in program.name for part in only):
            progress(f"{slice_name}: {program.name}")
            compiled.append(compile_program(program, programs, top))
    counted = sizes.tokens(config, size, assumes)
    return Plan(top, dict(meshes.train.shape), compiled, runs, counted, config.iterations)


def _by_itself(mesh: Mesh, top: Topology) -> Mesh:
    """The mesh of a host's chips, on a slice of that host alone.

    The compiler takes a part of a slice only where its chips have the lowest numbers, and a host's have not: those of the
    first one of v5e:4x4 are 0, 1, 4 and 5.
    """
    if top.hosts == 1:
        return mesh
    places = [device.coords for device in top.devices if device.process_index == 0]
    shape = np.max(places, axis=0)[: top.chip.dimensions] + 1
    host = topology(f"{top.name.partition(':')[0]}:{'x'.join(map(str, shape))}")
    chips = {tuple(device.coords): device for device in host.devices}
    devices = np.array([chips[tuple(device.coords)] for device in mesh.devices.flat]).reshape(
        mesh.devices.shape
    )
    return Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)


def with_mesh(config: ConfigDict, mesh: Sequence[str]) -> ConfigDict:
    """The config with the axes of --mesh, all others of size 1."""
    if not mesh:
        return config
    try:
        axes = {name: int(size) for name, size in (axis.split(":") for axis in mesh)}
    except ValueError:
        raise ValueError(f"--mesh={','.join(mesh)!r}: give axes and sizes, as fsdp:64,tensor:4") from None
    if unknown := sorted(set(axes) - set(AXES)):
        raise ValueError(f"--mesh has no axes {unknown}; choose from {', '.join(AXES)}")
    config = config.copy_and_resolve_references()
    config.mesh = ConfigDict({name: axes.get(name, 1) for name in AXES})
    return config
