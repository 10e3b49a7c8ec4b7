"""Writes metrics as TensorBoard events, for those who want them there; needs the `tensorboard` extra."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlanything_jax.report.read import series


def open_writer(folder: str | Path) -> Any:
    """A tensorboardX SummaryWriter on `folder` (usually WORKDIR/tensorboard); close it when done.

    Raises ImportError naming the extra where tensorboardX is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "TensorBoard events need tensorboardX: pip install 'rlanything-jax[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder))


def write_metrics(writer: Any, metrics: Mapping[str, Any]) -> None:
    """Write every finite number of one row of metrics.jsonl as a scalar at step `metrics['iteration']`."""
    for key in metrics:
        for iteration, value in zip(*series([metrics], key), strict=True):
            if key != "iteration":
                writer.add_scalar(key, value, iteration)
