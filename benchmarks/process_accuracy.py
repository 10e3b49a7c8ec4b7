"""Did a run improve its judge? `python -m benchmarks.process_accuracy WORKDIR [WORKDIR ...] [--tasks=32] [--json=FILE]`

The judge that a run began with and the one it ended with vote on the same held-out episodes, of the policy it began with
and of the one it ended with, and their verdicts are compared with the planner's labels, which no training has seen. The
metrics of a run itself compare judges on other episodes: a better policy's steps are harder to tell apart.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from rlanything_jax.loop import Streams, play, vote
from rlanything_jax.reward.arrays import to_arrays
from rlanything_jax.setting import open_run, restore
from rlanything_jax.trainer.checkpoints import Checkpoints


def compare(workdir: Path, tasks: int) -> list[dict[str, Any]]:
    """Four rows, {policy, judge} each 'first' or 'last', with the metrics of the judge on that policy's episodes.

    Raises ValueError for a folder without a checkpoint.
    """
    config = ConfigDict(json.loads((workdir / "config.json").read_text()))
    checkpoints = Checkpoints(workdir)
    if checkpoints.latest() is None:
        raise ValueError(f"{workdir} holds no checkpoint: train first, or name another")
    rows = []
    with open_run(config, lambda name, done, total: None) as (setting, state):
        # Copies: the state that a checkpoint is put into is another one.
        policies, judges = {"first": state.policy.params}, {"first": state.judge.params}
        restore(checkpoints, setting, state)
        policies["last"], judges["last"] = state.policy.params, state.judge.params
        chosen = setting.world.tasks("valid_seen")[:tasks]
        n, m = config.rollouts_per_task, config.votes_per_step
        seed = Streams.seed(config.seed, Streams.EVALUATE, 1)
        for which, policy in policies.items():
            speaker = setting.policy.speaker(policy)
            episodes = play(
                setting, speaker, chosen, n, seed=seed, version=0, progress=lambda done, total: None
            )
            for whose, params in judges.items():
                judge = setting.judge.speaker(params)
                votes = vote(setting, judge, episodes, n, {}, seed=seed, progress=lambda done, total: None)
                arrays = to_arrays(episodes, votes, n, m, tasks=len(chosen), steps=config.world.max_steps)
                row = {"run": str(workdir), "seed": config.seed, "policy": which, "judge": whose}
                rows.append(row | setting.reward.metrics(arrays))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdirs", nargs="+", type=Path, metavar="WORKDIR")
    parser.add_argument("--tasks", type=int, default=32, help="of valid_seen")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    rows = [row for workdir in options.workdirs for row in compare(workdir, options.tasks)]
    names = ("balanced_accuracy", "auc", "outcome_accuracy", "parse_rate")
    print("run", "policy", "judge", *names, sep="\t")
    for row in rows:
        values = (f"{row.get(f'judge/{name}', float('nan')):.3f}" for name in names)
        print(row["run"], row["policy"], row["judge"], *values, sep="\t")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
