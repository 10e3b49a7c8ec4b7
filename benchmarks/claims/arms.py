"""The arms of the experiment: named sets of overrides of configs/demo.py, and which tables compare which.

    python -m rlanything_jax.train --config=benchmarks/claims/arms.py:reward --workdir=DIR        one arm by hand
    python -m rlanything_jax.train --config=benchmarks/claims/arms.py:small/reward --workdir=DIR  its small version

Arms with equal configs are one, whatever they are called: a run is known by the hash of its config and by its seed. All arms of
a seed start from the same warm start, but for those of 'horizon', where each length has one of its own.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from configs.demo import get_config as get_demo_config
from rlanything_jax.report.read import flatten
from rlanything_jax.signals import SIGNALS

Overrides = Mapping[str, Any]

# What every arm has beside the demo's own settings.
COMMON: Overrides = {"record_rollouts": 0, "eval.judged": 0}  # the judge is measured when a run is over
SMALL: Overrides = {"iterations": 4, "eval.every": 4, "eval.tasks": 32}
SMALL_PREFIX = "small/"

_demo = get_demo_config()
_FROZEN: Overrides = {"train_judge": False, "adapt_tasks": False}
_REWARD: Overrides = {"adapt_tasks": False}
_NO_VOTES: Overrides = {**_FROZEN, "votes_per_step": 0}
_OUTCOME: Overrides = {**_NO_VOTES, "feedback.lam": 0.0}
_EVIDENCE: Overrides = {**_NO_VOTES, "feedback.source": "repetition"}
# As many episodes as an iteration has where proposals are verified, when as many of them wait as may.
_EQUAL: Overrides = {**_REWARD, "tasks_per_iteration": _demo.tasks_per_iteration + _demo.adapt.max_pending}
_JUDGE: Overrides = {
    "adapt_tasks": False,
    "train_policy": False,
    "iterations": 20,
    "eval.every": 20,
    "eval.tasks": 2,
}
_BY_OUTCOME: Overrides = {**_JUDGE, "feedback.judge_signal": "outcome", "feedback.estimator": "centred"}
# A centred signal is at most 3 (signals.LARGEST), and a vote that cannot be parsed must be worth less than a wrong one.
_BY_SIGNAL: Overrides = {**_BY_OUTCOME, "feedback.judge_lam": 0.0, "feedback.invalid": -3.0}


def _horizon(steps: int, receptacles: int, objects: int, longest: int) -> Overrides:
    """Longer episodes in larger rooms, with room for their tokens."""
    buckets = {
        "sampler.length_buckets": (*_below(_demo.sampler.length_buckets, longest), longest),
        "judge.length_buckets": (*_below(_demo.judge.length_buckets, longest), longest),
        "trainer.length_buckets": (*_below(_demo.trainer.length_buckets, longest), longest + 256),
    }
    world = {"max_steps": steps, "knobs.receptacles": receptacles, "knobs.objects": objects}
    # Half as many iterations: an episode takes up to 2.5 times as long.
    return {
        **buckets,
        "iterations": _demo.iterations // 2,
        **{f"world.{name}": value for name, value in world.items()},
    }


def _below(buckets: tuple[int, ...], longest: int) -> tuple[int, ...]:
    return tuple(bucket for bucket in buckets if bucket < longest)


_HORIZONS: dict[int, Overrides] = {
    _demo.world.max_steps: {"iterations": _demo.iterations // 2},
    35: _horizon(35, 9, 6, 2816),
    50: _horizon(50, 12, 8, 4224),
}

ARMS: dict[str, Overrides] = {
    "outcome": _OUTCOME,
    "policy": _FROZEN,
    "reward": _REWARD,
    "env": {},
    "judge-alone-frozen": {**_FROZEN, "feedback.outcome_weight": 0.0},
    "judge-alone": {**_REWARD, "feedback.outcome_weight": 0.0},
    "evidence": _EVIDENCE,
    "evidence-alone": {**_EVIDENCE, "feedback.outcome_weight": 0.0},
    **{f"lam-{lam:g}": {**_REWARD, "feedback.lam": lam} for lam in (0.25, 1.0, 4.0)},
    # The votes of one step are compared with one another, so a judge is not trained by a single one.
    "votes-1": {**_FROZEN, "votes_per_step": 1},
    **{f"votes-{m}": {**_REWARD, "votes_per_step": m} for m in (3, 6, 12)},
    **{
        f"thresholds-{low:g}-{high:g}": {
            "adapt.low": low,
            "adapt.high": high,
            "judge.task_filter": (low, high),
        }
        for low, high in ((0.2, 0.8), (0.1, 0.9), (0.3, 0.7))
    },
    "easy": {**_REWARD, "world.kinds": tuple(k for k in _demo.world.kinds if k["hint"])},
    "hard": {
        **_REWARD,
        "world.kinds": tuple(
            {**k, "receptacles": 10, "objects": 8} for k in _demo.world.kinds if not k["hint"]
        ),
    },
    "none": _EQUAL,
    "progress": {**_EQUAL, "curriculum": "progress"},
    "filtered": {**_EQUAL, "curriculum": "filtered"},
    "random-edits": {"adapt.source": "random"},
    "judge-default": _JUDGE,
    "judge-published": {**_BY_OUTCOME, "feedback.judge_lam": 1.0, "feedback.estimator": "published"},
    "judge-centred": {**_BY_OUTCOME, "feedback.judge_lam": 1.0},
    "judge-task": {**_BY_OUTCOME, "feedback.judge_lam": 1.0, "feedback.estimator": "task"},
    "judge-gate-2": {**_BY_OUTCOME, "feedback.judge_lam": 2.0, "feedback.invalid": -3.0},
    "judge-gate-3": {**_BY_OUTCOME, "feedback.judge_lam": 3.0, "feedback.invalid": -4.0},
    **{f"judge-{s}": {**_BY_SIGNAL, "feedback.judge_signal": s} for s in SIGNALS if s != "outcome"},
    "judge-evidence-m8": {**_BY_SIGNAL, "feedback.judge_signal": "evidence", "votes_per_step": 8},
    "judge-evidence-kl": {**_BY_SIGNAL, "feedback.judge_signal": "evidence", "judge.kl": 0.05},
    "judge-evidence-all": {
        **_BY_SIGNAL,
        "feedback.judge_signal": "evidence",
        "judge.task_filter": (0.0, 1.0),
    },
    **{
        f"horizon-{steps}-{name}": {**longer, **arm}
        for steps, longer in _HORIZONS.items()
        for name, arm in (("outcome", _OUTCOME), ("reward", _REWARD))
    },
}

_ADAPTATION = ["none", "progress", "filtered", "random-edits", "env"]
_JUDGES = [name for name in ARMS if name.startswith("judge-") and not name.startswith("judge-alone")]

# Table -> its arms, and those of its small version.
TABLES: dict[str, tuple[list[str], list[str]]] = {
    "ablation": (["outcome", "policy", "reward", "env"],) * 2,
    "signal": (
        ["outcome", "policy", "reward", "judge-alone-frozen", "judge-alone", "evidence", "evidence-alone"],
        ["outcome", "policy", "reward", "judge-alone-frozen", "judge-alone", "evidence"],
    ),
    "lam": (["outcome", "lam-0.25", "lam-1", "lam-4"], ["outcome", "lam-0.25", "lam-4"]),
    "votes": (["votes-1", "votes-3", "votes-6", "votes-12"], ["votes-1", "votes-6"]),
    "thresholds": (
        ["thresholds-0.2-0.8", "thresholds-0.1-0.9", "thresholds-0.3-0.7"],
        ["thresholds-0.2-0.8", "thresholds-0.1-0.9"],
    ),
    "tasks": (["env"],) * 2,
    "theory": (["easy", "reward", "hard"],) * 2,
    "adaptation": (_ADAPTATION,) * 2,
    "judge": (_JUDGES, ["judge-published", "judge-gate-2", "judge-evidence"]),
    "horizon": (
        [f"horizon-{steps}-{arm}" for steps in _HORIZONS for arm in ("outcome", "reward")],
        [f"horizon-{steps}-{arm}" for steps in list(_HORIZONS)[:2] for arm in ("outcome", "reward")],
    ),
}


def arms_of(table: str, *, small: bool) -> list[str]:
    """The names of a table's arms, as `get_config` takes them."""
    names = TABLES[table][small]
    return [f"{SMALL_PREFIX}{name}" for name in names] if small else names


def get_config(name: str = "env") -> ConfigDict:
    """The config of an arm. Raises ValueError for one that does not exist."""
    arm = name.removeprefix(SMALL_PREFIX)
    if arm not in ARMS:
        raise ValueError(f"unknown arm {arm!r}: choose one of {', '.join(ARMS)}")
    config = get_demo_config()
    overrides = {**COMMON, **ARMS[arm]}
    if name != arm:
        overrides |= {key: min(value, overrides.get(key, value)) for key, value in SMALL.items()}
    for key, value in overrides.items():
        section, _, last = key.rpartition(".")
        place = functools.reduce(operator.getitem, section.split("."), config) if section else config
        place[last] = value
    if "world.kinds" in overrides:  # models that were shown the demo's games play these
        config.pretrain.world = ConfigDict({"kinds": _demo.world.kinds})
    votes = config.world.max_steps * config.votes_per_step
    if votes > config.judge.branch_buckets[-1]:
        config.judge.branch_buckets = (*config.judge.branch_buckets, votes)
    return config


# What changes nothing that is measured.
_APART = {"seed", "world.seed", "pretrain.cache", "record_rollouts", "tensorboard", "checkpoint_every"}


def config_hash(config: ConfigDict) -> str:
    """Names a config: equal for two that differ in seeds, devices and records only."""
    flat = flatten(json.loads(config.to_json_best_effort()))
    kept = {key: value for key, value in flat.items() if key not in _APART and not key.startswith("mesh.")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:10]
