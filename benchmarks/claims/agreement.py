"""What a judge could learn from, before any training: `python -m benchmarks.claims.agreement --seed=0 --json=FILE [--small]`

Plays training tasks with the warm start and compares the sign of each signal of `rlanything_jax.signals` with the planner's
labels of the steps. Labels measure here; nothing is trained on them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.claims.arms import SMALL_PREFIX, config_hash, get_config
from benchmarks.claims.rows import commit, write_row
from rlanything_jax import feedback
from rlanything_jax.check import check
from rlanything_jax.loop import Streams, play, vote
from rlanything_jax.reward.arrays import Votes, to_arrays
from rlanything_jax.setting import open_run
from rlanything_jax.signals import SIGNALS, judge_signal

ARM = "policy"  # whose config it is: nothing in it learns before the first iteration
TASKS, TASKS_SMALL = 64, 12
GATES = (1.0, 3.0)  # weights of the votes beside the outcome


def compare(signal: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """How a signal [...] agrees with labels [...] in {-1,0,+1}, where 0 is no label.

    Returns:
      'coverage': share of the labelled steps on which the signal is not 0. 'agreement': share of these on which it has the
      label's sign. 'balanced': mean of that over both labels, where both are there.
    """
    sign = np.sign(signal[labels != 0])
    label = labels[labels != 0]
    given = sign != 0
    found = {"coverage": float(given.mean()) if given.size else 0.0}
    right = [
        float((sign[given & (label == kind)] == kind).mean())
        for kind in (1, -1)
        if (given & (label == kind)).any()
    ]
    if right:
        found["agreement"] = float((sign == label)[given].mean())
    if len(right) == 2:
        found["balanced"] = sum(right) / 2
    return found


def signals(arrays: Votes) -> dict[str, np.ndarray]:
    """Every signal [Q,N,T] that needs no label, by name."""
    found = {
        kind: np.asarray(judge_signal(arrays.outcome, arrays.state, arrays.step_mask, kind=kind))
        for kind in SIGNALS
    }
    for lam in GATES:  # a step on which the votes outweigh the outcome
        reward = np.asarray(
            feedback.integrated_reward(arrays.outcome, arrays.scores, arrays.step_mask, lam=lam)
        )
        unanimous = np.abs(arrays.scores.mean(-1)) == 1  # teaches nothing: all votes get the same
        found[f"outcome + {lam:g} votes, where they differ"] = np.where(unanimous, 0, reward)
    return found


def measure(seed: int, *, small: bool) -> dict:
    """The row of a seed."""
    config = get_config(f"{SMALL_PREFIX}{ARM}" if small else ARM)
    mark = config_hash(config)
    config.seed = seed
    check(config)
    with open_run(config, lambda name, done, total: None) as (setting, state):
        tasks = state.tasks.sample(0, TASKS_SMALL if small else TASKS)
        n, at = config.rollouts_per_task, Streams.seed(config.seed, Streams.EVALUATE, 2)
        quiet = {"seed": at, "progress": lambda done, total: None}
        played = play(setting, setting.policy.speaker(state.policy.params), tasks, n, version=0, **quiet)
        votes = vote(setting, setting.judge.speaker(state.judge.params), played, n, {}, **quiet)
        arrays = to_arrays(
            played, votes, n, config.votes_per_step, tasks=len(tasks), steps=config.world.max_steps
        )
    labels = np.where(arrays.step_mask, arrays.labels, 0)
    found = {name: compare(signal, labels) for name, signal in signals(arrays).items()}
    rounded = {name: {key: round(value, 4) for key, value in of.items()} for name, of in found.items()}
    row = {
        "arm": f"{'small.' if small else ''}agreement",
        "hash": f"{mark}-signals",
        "seed": seed,
        "commit": commit(),
    }
    return row | {"steps": int(np.sum(labels != 0)), "signals": rounded}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True, help="where the row goes")
    parser.add_argument("--small", action="store_true", help="fewer tasks")
    options = parser.parse_args()
    row = measure(options.seed, small=options.small)
    write_row(options.json, row)
    print(json.dumps(row["signals"], indent=1))


if __name__ == "__main__":
    main()
