"""What can be wrong with a config, told before anything is trained."""

from __future__ import annotations

from collections.abc import Callable

from ml_collections import ConfigDict

from rlanything_jax.feedback import ESTIMATORS
from rlanything_jax.losses import AGGREGATIONS
from rlanything_jax.signals import LARGEST, SIGNALS
from rlanything_jax.tasks.curriculum import CURRICULA
from rlanything_jax.trainer.optimizers import MOMENTS

REWARDS = ("verdicts", "unit_tests")
OUTCOMES = ("won", "score")
SOURCES = ("critique", "random")


def check(config: ConfigDict) -> None:
    """Raises ValueError naming the option, its value and what it must be."""

    def need(ok: bool, option: str, why: str) -> None:
        if not ok:
            value = config
            for part in option.split("."):
                value = value[part]
            raise ValueError(f"config.{option}={value!r}: {why}")

    need(config.iterations >= 1, "iterations", "at least one iteration")
    need(config.tasks_per_iteration >= 1, "tasks_per_iteration", "at least one task")
    need(
        config.rollouts_per_task >= 2,
        "rollouts_per_task",
        "the policy's advantage compares rollouts of one task: use at least 2",
    )
    votes_read = (
        config.train_judge
        or (config.feedback.lam > 0 and config.feedback.source == "votes")
        or (config.adapt_tasks and config.adapt.source == "critique")
    )
    need(
        config.votes_per_step >= (votes_read or config.reward == "unit_tests"),
        "votes_per_step",
        "every step needs at least one vote; 0 only without train_judge, feedback.lam of the votes and critiques",
    )
    need(config.curriculum in CURRICULA, "curriculum", f"choose one of {', '.join(CURRICULA)}")
    need(
        config.curriculum != "progress" or not ("checkpoint" in config or config.world.data),
        "curriculum",
        "only generated tasks have parameters to make progress over: leave world.data empty, or choose 'filtered'",
    )
    need(config.adapt.source in SOURCES, "adapt.source", f"choose one of {', '.join(SOURCES)}")
    need(
        config.adapt.source != "random" or config.world.name == "alfworld",
        "adapt.source",
        f"the edits of world {config.world.name!r} cannot be listed: use 'critique'",
    )
    need(config.reward in REWARDS, "reward", f"choose one of {', '.join(REWARDS)}")
    need(config.feedback.outcome in OUTCOMES, "feedback.outcome", f"choose one of {', '.join(OUTCOMES)}")
    need(
        config.feedback.estimator in ESTIMATORS,
        "feedback.estimator",
        f"choose one of {', '.join(ESTIMATORS)}",
    )
    need(
        config.feedback.outcome_weight >= 0,
        "feedback.outcome_weight",
        "the weight of the outcome cannot be negative",
    )
    need(
        config.feedback.source in ("votes", *SIGNALS),
        "feedback.source",
        f"'votes', or a signal without a judge: {', '.join(SIGNALS)}",
    )
    need(config.feedback.lam >= 0, "feedback.lam", "the weight of the votes cannot be negative")
    need(
        0 <= config.adapt.low < config.adapt.high <= 1,
        "adapt.low",
        f"the thresholds must satisfy 0 <= low < high <= 1, and adapt.high is {config.adapt.high!r}",
    )
    need(
        config.adapt.max_pending >= 1, "adapt.max_pending", "at least one proposal; switch off by adapt_tasks"
    )
    need(config.adapt.attempts >= 1, "adapt.attempts", "at least one sample of the rewriter")
    need(0 <= config.adapt.original_share <= 1, "adapt.original_share", "a share between 0 and 1")
    need(config.checkpoint_every >= 1, "checkpoint_every", "iterations between checkpoints, at least 1")
    need(config.eval.every >= 1, "eval.every", "iterations between evaluations, at least 1")
    need(config.eval.tasks >= 2, "eval.tasks", "at least 2 tasks, since half as many are played greedily")
    need(config.world.max_steps >= 1, "world.max_steps", "at least one step an episode")
    kept = "games" if config.world.name == "alfworld" else "problems"
    for split in config.world[kept] if kept in config.world else ():
        need(config.world[kept][split] >= 1, f"world.{kept}.{split}", "at least one of each split")
    if "checkpoint" in config:
        for name in ("policy", "judge", "rewriter"):
            need(
                bool(config.checkpoint[name]),
                f"checkpoint.{name}",
                "name a checkpoint folder or a .gguf file",
            )
        for name in ("policy", "judge"):
            need(config[name].lora.rank >= 0, f"{name}.lora.rank", "at least 1, or 0 to train all parameters")
    else:
        for name in ("policy", "judge", "rewriter"):
            option = f"pretrain.{name}_steps"
            need(config.pretrain[f"{name}_steps"] >= 2, option, "at least 2, the first warms up")
    for name in ("policy", "judge"):
        need(config[name].learning_rate > 0, f"{name}.learning_rate", "must be positive")
        need(config[name].gain_rate >= 0, f"{name}.gain_rate", "a rate cannot be negative")
        need(config[name].updates >= 1, f"{name}.updates", "at least one update an iteration")
        updates = config.iterations * config[name].updates
        need(
            0 <= config[name].warmup < updates,
            f"{name}.warmup",
            f"less than the {updates} updates of the run",
        )
        need(0 <= config[name].final_share <= 1, f"{name}.final_share", "a share between 0 and 1")
        need(config[name].moments in MOMENTS, f"{name}.moments", f"choose one of {', '.join(MOMENTS)}")
        need(
            config[name].aggregation in AGGREGATIONS,
            f"{name}.aggregation",
            f"choose one of {', '.join(AGGREGATIONS)}",
        )
        low, high = config[name].task_filter
        need(0 <= low <= high <= 1, f"{name}.task_filter", "two success rates, the lower one first")
        need(config[name].temperature > 0, f"{name}.temperature", "must be positive where there is training")
    need(
        config.policy.temperature == config.sampler.temperature,
        "policy.temperature",
        f"must equal sampler.temperature={config.sampler.temperature!r}: it is what the tokens were sampled at",
    )
    need(config.trainer.max_logprob_gap > 0, "trainer.max_logprob_gap", "a positive bound")
    longest = config.sampler.length_buckets[-1]
    need(
        config.judge.length_buckets[-1] >= longest,
        "judge.length_buckets",
        f"the longest must hold the sampler's longest episode of {longest} tokens",
    )
    tree = longest + config.judge.max_tokens + 1
    need(
        config.trainer.length_buckets[-1] >= tree,
        "trainer.length_buckets",
        f"the longest must hold the sampler's longest episode and one vote, {tree} tokens",
    )
    if config.reward == "verdicts":
        _check_verdicts(config, need)


def _check_verdicts(config: ConfigDict, need: Callable[[bool, str, str], None]) -> None:
    """What the judge of steps needs."""
    need(
        config.votes_per_step >= 2 or not config.train_judge or config.feedback.estimator == "task",
        "votes_per_step",
        f"the estimator {config.feedback.estimator!r} compares the votes of one step: use at least 2, or 'task'",
    )
    need(
        config.feedback.judge_signal in SIGNALS,
        "feedback.judge_signal",
        f"choose one of {', '.join(SIGNALS)}",
    )
    need(config.feedback.judge_lam >= 0, "feedback.judge_lam", "the weight of the votes cannot be negative")
    largest = 1.0 if config.feedback.judge_signal == "outcome" else LARGEST
    need(
        config.feedback.invalid <= -(largest + config.feedback.judge_lam),
        "feedback.invalid",
        f"a vote that cannot be parsed must not be worth more than a wrong one: at most -({largest:g} + feedback.judge_lam)",
    )
    need(config.judge.trajectories >= 2, "judge.trajectories", "at least 2: a success and a failure")
    most = config.world.max_steps * config.votes_per_step
    need(
        config.judge.branch_buckets[-1] >= most,
        "judge.branch_buckets",
        f"the largest must hold world.max_steps * votes_per_step = {most} votes of one episode",
    )
