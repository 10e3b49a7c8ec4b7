"""A config that cannot work is refused by name before anything is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from rlanything_jax.check import check

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("path", sorted(p.relative_to(ROOT) for p in ROOT.glob("configs/*.py")), ids=str)
def test_the_configs_of_the_repository_pass(read_config: Callable[[Path], ConfigDict], path: Path) -> None:
    config = read_config(path)
    for role in config.get("checkpoint", {}):
        config.checkpoint[role] = "FOLDER"  # the one thing that only the user can know
    check(config)


def test_the_tiny_config_passes(tiny: ConfigDict) -> None:
    check(tiny)


@pytest.mark.parametrize(
    ("changes", "named", "fix"),
    [
        ({"iterations": 0}, "iterations=0", "at least one"),
        ({"tasks_per_iteration": 0}, "tasks_per_iteration=0", "at least one"),
        ({"rollouts_per_task": 1}, "rollouts_per_task=1", "use at least 2"),
        ({"votes_per_step": 0}, "votes_per_step=0", "at least one vote"),
        ({"votes_per_step": 1}, "votes_per_step=1", "'centred'.*use at least 2, or 'task'"),
        ({"feedback.estimator": "best"}, "feedback.estimator='best'", "choose one of .*centred"),
        ({"reward": "stars"}, "reward='stars'", "verdicts, unit_tests"),
        ({"feedback.outcome": "luck"}, "feedback.outcome='luck'", "won, score"),
        ({"trainer.max_logprob_gap": 0.0}, "trainer.max_logprob_gap=0.0", "positive"),
        ({"feedback.lam": -0.5}, "feedback.lam=-0.5", "cannot be negative"),
        ({"feedback.invalid": -1.5}, "feedback.invalid=-1.5", r"at most -\(1 \+ feedback.judge_lam\)"),
        ({"feedback.judge_lam": 4.0}, "feedback.invalid=-3.0", "at most"),
        (
            {"feedback.judge_signal": "evidence"},
            "feedback.invalid=-3.0",
            r"at most -\(3 \+ feedback.judge_lam\)",
        ),
        ({"feedback.judge_signal": "hope"}, "feedback.judge_signal='hope'", "'?outcome'?"),
        ({"feedback.source": "hope"}, "feedback.source='hope'", "votes"),
        ({"feedback.outcome_weight": -1.0}, "feedback.outcome_weight=-1.0", "negative"),
        ({"adapt.low": 0.8, "adapt.high": 0.2}, "adapt.low=0.8", "low < high.*adapt.high is 0.2"),
        ({"adapt.low": 0.8}, "adapt.low=0.8", "low < high"),
        ({"adapt.low": -0.1}, "adapt.low=-0.1", "0 <= low"),
        ({"adapt.high": 1.2}, "adapt.low=0.2", "<= 1, and adapt.high is 1.2"),
        ({"adapt.max_pending": 0}, "adapt.max_pending=0", "adapt_tasks"),
        ({"adapt.attempts": 0}, "adapt.attempts=0", "at least one"),
        ({"adapt.original_share": 1.5}, "adapt.original_share=1.5", "between 0 and 1"),
        ({"checkpoint_every": 0}, "checkpoint_every=0", "at least 1"),
        ({"eval.every": 0}, "eval.every=0", "at least 1"),
        ({"eval.tasks": 1}, "eval.tasks=1", "at least 2"),
        ({"world.games.valid_seen": 0}, "world.games.valid_seen=0", "at least one"),
        ({"judge.trajectories": 1}, "judge.trajectories=1", "a success and a failure"),
        ({"pretrain.judge_steps": 1}, "pretrain.judge_steps=1", "at least 2"),
        ({"world.max_steps": 0}, "world.max_steps=0", "at least one step"),
        ({"policy.learning_rate": 0.0}, "policy.learning_rate=0.0", "positive"),
        ({"judge.learning_rate": -1.0}, "judge.learning_rate=-1.0", "positive"),
        ({"policy.updates": 0}, "policy.updates=0", "at least one"),
        ({"judge.aggregation": "sum"}, "judge.aggregation='sum'", "choose one of"),
        ({"judge.task_filter": (0.8, 0.2)}, r"judge.task_filter=\(0.8, 0.2\)", "the lower one first"),
        ({"judge.temperature": 0.0}, "judge.temperature=0.0", "positive"),
        ({"sampler.temperature": 0.7}, "policy.temperature=1.0", "sampler.temperature=0.7"),
        ({"sampler.length_buckets": (512,)}, r"judge.length_buckets=\(384,\)", "episode of 512 tokens"),
        ({"trainer.length_buckets": (384,)}, r"trainer.length_buckets=\(384,\)", "395 tokens"),
        ({"judge.branch_buckets": (7,)}, r"judge.branch_buckets=\(7,\)", "= 8 votes"),
        ({"world.max_steps": 5}, r"judge.branch_buckets=\(8,\)", "= 10 votes"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_an_option_that_cannot_work_is_named_with_its_value_and_the_fix(
    tiny: ConfigDict, changes: dict[str, Any], named: str, fix: str
) -> None:
    tiny.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=rf"^config\.{named}: .*{fix}"):
        check(tiny)


def test_one_vote_is_enough_where_the_estimator_compares_no_votes_of_a_step(tiny: ConfigDict) -> None:
    tiny.update_from_flattened_dict({"votes_per_step": 1, "feedback.estimator": "task"})
    check(tiny)
    tiny.update_from_flattened_dict({"feedback.estimator": "centred", "train_judge": False})
    check(tiny)
