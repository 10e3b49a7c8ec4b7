"""TPU chips as data, and slices of them by name.

Sources: the pages "TPU v4", "v5e", "v5p" and "v6e" of the Cloud TPU documentation (operations, bandwidths, links; the bandwidth
of a link and direction is that of the chip over all its links and directions); what libtpu 0.0.42 says a program may
use at most (memory).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip. Both TensorCores of a v4 or v5p work as one device."""

    operations: float  # peak, bfloat16, a second
    memory: float  # bytes of HBM that programs may use
    bandwidth: float  # bytes a second, of HBM
    link: float  # bytes a second, of one link in one direction
    dimensions: int  # of the torus: two links each
    ring: int  # a dimension of a slice closes to a ring where its length is a multiple of this; else it is a line
    options: tuple[tuple[str, str], ...] = ()  # of the topology, as libtpu wants them


CHIPS = {
    "v4": Chip(275e12, 30.75 * GIB, 1.20e12, 50e9, 3, 4, (("chip_config_name", "megacore"),)),
    "v5e": Chip(197e12, 15.75 * GIB, 0.82e12, 50e9, 2, 16),
    "v5p": Chip(459e12, 95.74 * GIB, 2.765e12, 100e9, 3, 4),
    "v6e": Chip(918e12, 31.25 * GIB, 1.638e12, 100e9, 2, 16),
}


class Topology(NamedTuple):
    """A slice."""

    name: str
    chip: Chip
    shape: tuple[int, ...]
    devices: Sequence[Any]  # of the compiler, one a chip; those of a host have its process_index

    @property
    def hosts(self) -> int:
        return len({device.process_index for device in self.devices})


def parse(name: str) -> tuple[Chip, tuple[int, ...]]:
    """'v5e:4x8' -> the chip and the shape of the slice; ValueError where there is no such slice."""
    match = re.fullmatch(r"(\w+):(\d+(?:x\d+)*)", name)
    if not match or match[1] not in CHIPS:
        raise ValueError(
            f"--topology={name!r} is no slice: give one of {', '.join(CHIPS)} and its shape, as v5e:16x16 or v5p:4x4x4"
        )
    chip, shape = CHIPS[match[1]], tuple(map(int, match[2].split("x")))
    if len(shape) != chip.dimensions:
        raise ValueError(
            f"--topology={name!r}: {match[1]} has {chip.dimensions} dimensions, not {len(shape)}"
        )
    return chip, shape


def topology(name: str) -> Topology:
    """The slice of this name, as the compiler knows it; no device is touched.

    Raises ValueError for a slice that does not exist, ImportError without libtpu.
    """
    chip, shape = parse(name)
    if importlib.util.find_spec("libtpu") is None:
        raise ImportError("compiling for a TPU needs libtpu: pip install -e '.[plan]'")
    # There is no machine to ask what it is, and no device that two processes could claim.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    try:
        with _quiet():
            found = topologies.get_topology_desc(name, "tpu", **dict(chip.options))
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"--topology={name!r}: {str(error).splitlines()[0]}") from None
    return Topology(name, chip, shape, found.devices)


def ring_bandwidth(top: Topology, group: np.ndarray) -> float:
    """Bytes a second that each of these devices (their positions, [n,dimensions]) receives when all of them exchange.

    A ring serves a device from two sides, a line its ends from one only; dimensions work side by side. Where a group
    does not span a dimension whole, it is a line.
    """
    links = 0
    for size, positions in zip(top.shape, group.T, strict=False):
        here = len(np.unique(positions))
        if here > 1:
            links += 2 if here == size and size % top.chip.ring == 0 else 1
    return max(links, 1) * top.chip.link


def positions(devices: np.ndarray) -> np.ndarray:
    """Where in the torus the devices of a mesh are, in its order: [n,dimensions]."""
    return np.array([device.coords for device in devices.flat])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """libtpu complains on standard error that this is no TPU."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
