"""What hosts tell each other. Every host runs the same program; each plays its share of the episodes.

All that decides what happens next (tasks, episodes, votes) is the same on every host after `shared_out`, in the same order as
on one host, so that task pool and metrics agree without a word. On a single host nothing here does anything.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import io
import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

T = TypeVar("T")


def initialize(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Connects the hosts of a run, before JAX is used.

    Args:
      coordinator: address and port of the first host, with the number of hosts and this one's; without it they are found
        out from Slurm or on a Cloud TPU, and anywhere else there is one host.

    Raises:
      ValueError: only some of the three are given.
    """
    given = (coordinator, processes, process)
    if any(value is not None for value in given):
        if any(value is None for value in given):
            raise ValueError(
                "--coordinator, --processes and --process go together: address:port, how many, which"
            )
        jax.distributed.initialize(coordinator, processes, process)
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1 or _on_tpu():
        jax.distributed.initialize()


def _on_tpu() -> bool:
    wanted = "tpu" in (os.environ.get("JAX_PLATFORMS") or "tpu")
    there = glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*")
    return bool(wanted and there and importlib.util.find_spec("libtpu"))


def alone() -> bool:
    return jax.process_count() == 1


def first() -> bool:
    """Whether this is the host that writes."""
    return jax.process_index() == 0


def share(count: int) -> slice:
    """This host's contiguous part of `count` things; parts differ by one at most."""
    hosts, host = jax.process_count(), jax.process_index()
    return slice(count * host // hosts, count * (host + 1) // hosts)


def shared_out(
    items: Sequence[T], work: Callable[[Sequence[T], int], list[Any]], *, known: Sequence[Any] = ()
) -> list[Any]:
    """The results of `work(part, number of its first item)` for all items, each host doing its share of them.

    `known` are objects of every host to which results refer: they stay the same objects.
    """
    mine = share(len(items))
    part = items[mine]
    return gather(work(part, mine.start) if part else [], known=known)


def gather(items: list[T], *, known: Sequence[Any] = ()) -> list[T]:
    """The items of all hosts in their order; they travel pickled, as bytes on the devices' own network."""
    if alone():
        return items
    data = np.frombuffer(_pickled(items, known), np.uint8)
    sizes = _all_hosts(np.array([data.size], np.int32))[:, 0]
    rows = _all_hosts(np.pad(data, (0, int(sizes.max()) - data.size)))
    return [
        item
        for row, size in zip(rows, sizes, strict=True)
        for item in _unpickled(row[:size].tobytes(), known)
    ]


def any_host(flag: bool) -> bool:
    """Whether it is so on some host."""
    return any(gather([flag]))


def on_first(action: Callable[[], None]) -> None:
    """Does it on the first host, while the others wait; a ValueError or an OSError is raised on all of them."""
    failed: list[Exception | None] = []
    if first():
        try:
            action()
            failed = [None]
        except (ValueError, OSError) as error:
            failed = [error]
    outcome = gather(failed)[0]
    if outcome is not None:
        raise outcome


def check_agreement(what: str, value: Callable[[], Any]) -> None:
    """Raises RuntimeError where hosts have come to differ; better now than in what they learn."""
    if alone():
        return
    digest = hashlib.sha256(repr(value()).encode()).hexdigest()
    if len(digests := set(gather([digest]))) > 1:
        raise RuntimeError(
            f"{what} differs between hosts: {len(digests)} versions on {jax.process_count()} hosts"
        )


def _all_hosts(row: np.ndarray) -> np.ndarray:
    """[n] on every host -> [hosts,n] on all of them."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    grid = np.array(devices).reshape(jax.process_count(), -1)
    mesh = Mesh(grid, ("host", "device"), axis_types=(AxisType.Auto,) * 2)
    there = NamedSharding(mesh, PartitionSpec("host"))
    with jax.set_mesh(mesh):
        rows = jax.make_array_from_process_local_data(there, row[None], (grid.shape[0], row.size))
        return np.asarray(jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows))


def _pickled(items: list[Any], known: Sequence[Any]) -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> int | None:
            return next((i for i, other in enumerate(known) if other is item), None)

    buffer = io.BytesIO()
    Pickler(buffer).dump(items)
    return buffer.getvalue()


def _unpickled(data: bytes, known: Sequence[Any]) -> list[Any]:
    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: Any) -> Any:
            return known[number]

    return Unpickler(io.BytesIO(data)).load()
