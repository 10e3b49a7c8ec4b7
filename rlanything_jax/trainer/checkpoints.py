"""The resumable state of a run, saved atomically by Orbax: arrays as a pytree, everything else as JSON."""

from __future__ import annotations

import os
from typing import Any

import jax
import orbax.checkpoint as ocp


class Checkpoints:
    """The checkpoints of one run directory. After a save that was killed, the one before it is the latest."""

    def __init__(self, workdir: str, *, keep: int = 2) -> None:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, create=True, enable_async_checkpointing=False
        )
        self._manager = ocp.CheckpointManager(
            os.path.join(os.path.abspath(workdir), "checkpoints"), options=options
        )

    def latest(self) -> int | None:
        """The iteration that the latest complete checkpoint continues with, or None."""
        return self._manager.latest_step()

    def save(self, iteration: int, arrays: Any, host: dict[str, Any]) -> None:
        """Saves a pytree of arrays and a JSON-able dict, under the iteration that comes next."""
        self._manager.save(
            iteration,
            args=ocp.args.Composite(
                arrays=ocp.args.StandardSave(arrays),
                host=ocp.args.JsonSave(host),
                types=ocp.args.JsonSave(_types(arrays)),
            ),
        )
        self._manager.wait_until_finished()

    def restore(self, arrays: Any) -> tuple[int, Any, dict[str, Any]]:
        """(iteration, arrays, host) of the latest checkpoint; `arrays` gives structure, types and shardings.

        Raises ValueError naming the checkpoint, and what differs, when it holds another model.
        """
        iteration = self._manager.latest_step()
        json = ocp.args.Composite(host=ocp.args.JsonRestore(), types=ocp.args.JsonRestore())
        restored = self._manager.restore(iteration, args=json)
        # Orbax would cast to another dtype silently, and abandon reads of another shape noisily.
        there, here = restored["types"], _types(arrays)
        for name in sorted(there.keys() | here.keys()):
            if there.get(name) != here.get(name):
                raise ValueError(
                    f"checkpoint {iteration} in {self._manager.directory} does not fit these models: "
                    f"{name} is {there.get(name, 'absent')} there, {here.get(name, 'absent')} here; "
                    "use the config it was written with, or another --workdir"
                )
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, arrays)
        read = self._manager.restore(
            iteration, args=ocp.args.Composite(arrays=ocp.args.StandardRestore(abstract))
        )
        return iteration, read["arrays"], restored["host"]

    def close(self) -> None:
        self._manager.close()


def _types(arrays: Any) -> dict[str, str]:
    """{path of a leaf: dtype and shape}, such as {"['policy'].params['embed']": 'float32[300, 128]'}."""
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}
