"""Evaluates a run's latest policy on held-out tasks: `python -m rlanything_jax.evaluate --config=... --workdir=DIR`.

--split=valid_unseen     one split, sampled; by default all panels of training's own evaluation
--config.eval.tasks=N    how many tasks
--config.world.data=DIR  other games than those it was trained on
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from absl import app, flags, logging
from ml_collections import config_flags
from rich.console import Console
from rich.table import Table

from rlanything_jax.check import check
from rlanything_jax.evaluation import PANELS, Panel, evaluate
from rlanything_jax.report import Display
from rlanything_jax.setting import open_run, restore
from rlanything_jax.trainer.checkpoints import Checkpoints

_CONFIG = config_flags.DEFINE_config_file("config", None, "The config file of the run.")
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.")
_SPLIT = flags.DEFINE_enum(
    "split", None, ["train", "valid_seen", "valid_unseen"], "Only this split, sampled."
)
_JSON = flags.DEFINE_string("json", None, "Also write the numbers to this file.")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}: options are given as --config.key=value")
    logging.set_verbosity(logging.WARNING)
    config = _CONFIG.value
    panels = {f"{_SPLIT.value} sampled": Panel(_SPLIT.value, 1.0, False)} if _SPLIT.value else PANELS
    try:
        check(config)
        checkpoints = Checkpoints(_WORKDIR.value or "")
        if checkpoints.latest() is None:
            raise ValueError(f"--workdir={_WORKDIR.value} holds no checkpoint: train first, or name another")
        with Display(1) as display, open_run(config, display.phase) as (setting, state):
            restore(checkpoints, setting, state)
            metrics, _ = evaluate(setting, state, display.phase, panels)
    except (ValueError, FileNotFoundError, ImportError) as error:
        sys.exit(f"error: {error}")
    table = Table("", "", box=None, title=f"after {state.iteration} iterations", title_justify="left")
    for name, value in metrics.items():
        table.add_row(name, f"{value:.1%}")
    Console().print(table)
    if _JSON.value:
        with open(_JSON.value, "w") as file:
            json.dump({"iteration": state.iteration} | metrics, file, indent=2)


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main)
