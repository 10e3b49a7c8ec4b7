"""Writes a trained model as a checkpoint folder: `python -m rlanything_jax.export --config=... --workdir=DIR --folder=OUT`.

The folder holds Hugging Face safetensors, tokenizer and chat template, for `transformers` and for other runs to load; adapters
are merged into their base. --role=judge exports the judge instead of the policy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import app, flags, logging
from ml_collections import config_flags

from rlanything_jax.check import check
from rlanything_jax.models import save_pretrained
from rlanything_jax.report import Display
from rlanything_jax.setting import open_run, restore, trained_model
from rlanything_jax.trainer.checkpoints import Checkpoints

_CONFIG = config_flags.DEFINE_config_file("config", None, "The config file of the run.")
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.")
_ROLE = flags.DEFINE_enum("role", "policy", ["policy", "judge"], "Which model.")
_FOLDER = flags.DEFINE_string("folder", None, "Where the checkpoint is written; it must not exist.")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}: options are given as --config.key=value")
    logging.set_verbosity(logging.WARNING)
    config = _CONFIG.value
    try:
        check(config)
        checkpoints = Checkpoints(_WORKDIR.value or "")
        if checkpoints.latest() is None:
            raise ValueError(f"--workdir={_WORKDIR.value} holds no checkpoint: train first, or name another")
        with Display(1) as display, open_run(config, display.phase) as (setting, state):
            restore(checkpoints, setting, state)
            save_pretrained(trained_model(setting, state, _ROLE.value), _FOLDER.value or "")
    except (ValueError, FileNotFoundError, FileExistsError, ImportError) as error:
        sys.exit(f"error: {error}")
    print(f"{_ROLE.value} after {state.iteration} iterations: {_FOLDER.value}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir", "folder"])
    app.run(main)
