"""Writes a trained model as a checkpoint folder: `python -m rlanything_jax.export --config=... --workdir=DIR --folder=OUT`.

The folder holds Hugging Face safetensors, tokenizer and chat template, for `transformers` and for other runs to load; adapters
are merged into their base. --role=judge exports the judge instead of the policy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from rlanything_jax.check import check
from rlanything_jax.dialogue import ChatDialogue
from rlanything_jax.models.lora import merge
from rlanything_jax.models.pretrained import Model, save_pretrained
from rlanything_jax.report import Display
from rlanything_jax.setting import open_run, restore
from rlanything_jax.trainer.checkpoints import Checkpoints

_CONFIG = config_flags.DEFINE_config_file("config", None, "The config file of the run.")
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.")
_ROLE = flags.DEFINE_enum("role", "policy", ["policy", "judge"], "Which model.")
_FOLDER = flags.DEFINE_string("folder", None, "Where the checkpoint is written; it must not exist.")


def export(config: ConfigDict, workdir: str, role: str, folder: str) -> int:
    """Writes the latest model of a run; returns the iterations it was trained for.

    Raises ValueError for a run without a checkpoint or of word-level models, which no other library could run.
    """
    check(config)
    if "checkpoint" not in config:
        raise ValueError("models out of the warm start have a word-level tokenizer and are not exported")
    checkpoints = Checkpoints(workdir)
    if checkpoints.latest() is None:
        raise ValueError(f"--workdir={workdir} holds no checkpoint: train first, or name another")
    with Display(1) as display, open_run(config, display.phase) as (setting, state):
        restore(checkpoints, setting, state)
        part, trained = getattr(setting, role), getattr(state, role)
        assert isinstance(part.dialogue, ChatDialogue)
        chat = part.dialogue.chat
        params = merge(part.frozen, trained.params)
        save_pretrained(Model(part.model, params, chat.tokenizer, chat), folder)
    return state.iteration


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}: options are given as --config.key=value")
    logging.set_verbosity(logging.WARNING)
    try:
        iterations = export(_CONFIG.value, _WORKDIR.value or "", _ROLE.value, _FOLDER.value or "")
    except (ValueError, FileNotFoundError, FileExistsError, ImportError) as error:
        sys.exit(f"error: {error}")
    print(f"{_ROLE.value} after {iterations} iterations: {_FOLDER.value}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir", "folder"])
    app.run(main)
