"""What a config takes on TPUs that are not here: `python -m rlanything_jax.plan --config=... --topology=v5e:16x16`.

Every program of the run is compiled for the slice, without a device; memory, exchanges and a roofline of the time follow, for
each program and for an iteration. They are predictions. Checkpoints may be named by preset:
--config.checkpoint.policy=qwen2.5-7b.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags
from ml_collections import config_flags

from rlanything_jax.planning import report, sizes
from rlanything_jax.planning.models import cast
from rlanything_jax.planning.slices import plan, with_mesh

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The config file; override with --config.key=value."
)
_TOPOLOGY = flags.DEFINE_list("topology", None, "Slices, as v5e:16x16 or v5p:4x4x4; several with commas.")
_MESH = flags.DEFINE_list("mesh", [], "Axes to use in place of config.mesh, as fsdp:64,tensor:4.")
_ONLY = flags.DEFINE_list("only", [], "Compile only programs whose names contain one of these.")
_EPISODE = flags.DEFINE_integer(
    "episode_tokens", 0, "Tokens of an episode; by default the longest there can be."
)
_SAMPLED = flags.DEFINE_integer("sampled_tokens", 0, "Those of them that the policy writes; by default half.")
_VOTE = flags.DEFINE_integer("vote_tokens", 0, "Tokens of a vote; by default the most that are allowed.")
_JSON = flags.DEFINE_string("json", None, "A file for the numbers.")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}: options are given as --config.key=value")
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        config = with_mesh(_CONFIG.value, _MESH.value)
        assumes = sizes.assumed(config, _EPISODE.value, _SAMPLED.value, _VOTE.value)
        plans = [
            plan(config, name, assumes, only=_ONLY.value, progress=lambda what: print(what, file=sys.stderr))
            for name in _TOPOLOGY.value or ()
        ]
        print(report.text(plans, config, assumes, cast(config).names))
        if _JSON.value:
            Path(_JSON.value).write_text(json.dumps(report.rows(plans), indent=1) + "\n", encoding="utf-8")
    except (ValueError, ImportError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "topology"])
    app.run(main)
