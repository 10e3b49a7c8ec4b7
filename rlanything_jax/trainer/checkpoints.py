"""The one resumable state of a run, saved atomically by Orbax: arrays as a pytree, everything else as JSON."""

from __future__ import annotations

import os
from typing import Any

import jax
import orbax.checkpoint as ocp


class Checkpoints:
    """The checkpoints of one run directory. A save that was killed half-way leaves the one before it as the latest."""

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
            args=ocp.args.Composite(arrays=ocp.args.StandardSave(arrays), host=ocp.args.JsonSave(host)),
        )
        self._manager.wait_until_finished()

    def restore(self, arrays: Any) -> tuple[int, Any, dict[str, Any]]:
        """(iteration, arrays, host) of the latest checkpoint; `arrays` gives the structure, shapes and shardings.

        Raises ValueError naming the checkpoint when it holds another model.
        """
        iteration = self._manager.latest_step()
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, arrays)
        try:
            restored = self._manager.restore(
                iteration,
                args=ocp.args.Composite(
                    arrays=ocp.args.StandardRestore(abstract), host=ocp.args.JsonRestore()
                ),
            )
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"checkpoint {iteration} in {self._manager.directory} does not fit the configured models: {error}; "
                "use the config it was written with, or another --workdir"
            ) from error
        return iteration, restored["arrays"], restored["host"]

    def close(self) -> None:
        self._manager.close()
