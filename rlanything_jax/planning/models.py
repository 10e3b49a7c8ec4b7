"""The three models of a config as shapes: checkpoints by their `config.json`, or published models by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.families import PRESETS, config_from_hf

WORDS = 512  # ids of a word-level tokenizer; its world says how many, and none is made here


class Cast(NamedTuple):
    policy: ModelConfig
    judge: ModelConfig
    rewriter: ModelConfig
    names: Mapping[str, str]  # of the models, by role


def cast(config: ConfigDict) -> Cast:
    """The models that a run of this config would load.

    Raises ValueError for a checkpoint that is neither a folder nor a preset.
    """
    if "checkpoint" not in config:
        model = ModelConfig.from_dict(config.model, vocab_size=WORDS)
        return Cast(model, model, model, dict.fromkeys(("policy", "judge", "rewriter"), "config.model"))
    names = {role: config.checkpoint[role] for role in ("policy", "judge", "rewriter")}
    policy, judge, rewriter = (_shape(role, name, config.model) for role, name in names.items())
    return Cast(policy, judge, rewriter, {role: Path(name).name for role, name in names.items()})


def _shape(role: str, name: str, options: ConfigDict) -> ModelConfig:
    file = Path(name) / "config.json"
    if name in PRESETS:
        shape = PRESETS[name]
    elif name and file.is_file():
        shape = config_from_hf(json.loads(file.read_text(encoding="utf-8")), str(file))
    else:
        raise ValueError(
            f"config.checkpoint.{role}={name!r} is neither a folder with a config.json nor one of {', '.join(PRESETS)}"
        )
    return dataclasses.replace(
        shape,
        dtype=options.dtype,
        param_dtype=None,
        remat=options.remat,
        scan_unroll=options.scan_unroll,
    )
