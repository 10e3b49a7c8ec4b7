"""Numbers of an iteration: the shapes that its programs have, and how often each of them runs.

All of them are those of a full iteration, in which every proposal waits and every episode is as long as is assumed. Episodes and
votes are assumed to be equally long, so that no slot waits for another; environments take no time.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from rlanything_jax.models.config import ModelConfig
from rlanything_jax.reward.judge import READ_AT_ONCE
from rlanything_jax.rollouts import SamplerConfig, group_rows
from rlanything_jax.sampler import bucket

QUESTION = 96  # tokens that ask a chat model for a verdict


class Assumed(NamedTuple):
    """What no config says; a run's metrics do."""

    episode: int  # tokens of an episode
    sampled: int  # those of them that the policy writes
    vote: int  # tokens of a vote, or of a written test


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Shapes; of one host where it samples."""

    hosts: int
    tasks: int  # of an iteration, proposals under verification included
    episodes: int  # of one host
    rows: int  # episodes that play at once
    context: int  # of their cache
    turn: int  # tokens of an observation, padded
    prompts: int  # prompts that are read at once
    prompt: int  # tokens of a prompt, padded
    action: int
    judge_rows: int
    judge_context: int
    branches: int
    question: int
    vote: int  # at most
    policy_row: int  # of training
    judge_row: int
    rewrite_context: int


def assumed(config: ConfigDict, episode: int = 0, sampled: int = 0, vote: int = 0) -> Assumed:
    """The longest that the config allows, half of it sampled, where nothing else is given."""
    episode = episode or config.sampler.length_buckets[-1]
    return Assumed(episode, sampled or episode // 2, vote or config.judge.max_tokens)


def sizes(config: ConfigDict, policy: ModelConfig, hosts: int) -> Sizes:
    """Raises ValueError where no row of training holds an episode with one vote."""
    tasks = config.tasks_per_iteration + (config.adapt.max_pending if config.adapt_tasks else 0)
    of_host = -(-tasks // hosts)
    n = config.rollouts_per_task
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in config.sampler.to_dict().items()
    }
    sampler = SamplerConfig(**options)
    flying = min(group_rows(sampler, policy), -(-of_host // sampler.groups) * n)
    rows = bucket(flying, sampler.batch_buckets)
    context = sampler.length_buckets[-1]
    verdicts = config.reward == "verdicts"
    lengths, vote = config.trainer.length_buckets, QUESTION + config.judge.max_tokens
    # Of a tree that is longer than the longest row, each part is as long as that.
    tree = context + vote * config.votes_per_step * (config.world.max_steps if verdicts else 1)
    return Sizes(
        hosts=hosts,
        tasks=tasks,
        episodes=of_host * n,
        rows=rows,
        context=context,
        turn=sampler.turn_buckets[0],
        prompts=bucket(min(of_host, rows), sampler.batch_buckets),
        prompt=sampler.turn_buckets[-1],
        action=sampler.max_action_tokens,
        judge_rows=config.judge.rows,
        judge_context=config.judge.length_buckets[-1],
        branches=bucket(config.world.max_steps * config.votes_per_step, config.judge.branch_buckets)
        if verdicts
        else 0,
        question=QUESTION if verdicts else 0,
        vote=config.judge.max_tokens,
        policy_row=bucket(context, lengths),
        judge_row=bucket(max(min(tree, lengths[-1]), context + vote), lengths),
        rewrite_context=config.adapt.length_buckets[-1],
    )


def runs(
    config: ConfigDict, size: Sizes, assumes: Assumed, rows: int, judge_rows: int
) -> dict[str, tuple[str, float]]:
    """How often an iteration runs each program, on the host that has most to do: {program: (phase, times)}.

    Args:
      rows, judge_rows: of a micro-batch of policy and judge.
    """
    steps, n = config.world.max_steps, config.rollouts_per_task
    waves = -(-size.episodes // size.rows)
    times: dict[str, tuple[str, float]] = {
        "policy prompt": ("rollouts", -(-size.episodes // (n * size.prompts))),
        "policy turn": ("rollouts", waves * max(steps - 1, 0)),
        "policy token": ("rollouts", waves * assumes.sampled),
    }
    judged = size.episodes if config.reward == "verdicts" else size.episodes // n  # or tasks, which get tests
    groups = -(-judged // size.judge_rows)
    pieces = -(-size.judge_context // READ_AT_ONCE) if config.reward == "verdicts" else 1
    times |= {"judge reads": ("judging", groups * pieces), "judge token": ("judging", groups * assumes.vote)}
    if config.train_policy:
        tokens = size.tasks * n * assumes.episode
        times |= _training(config, "policy", tokens, rows * size.policy_row)
    if config.train_judge:
        times |= _training(config, "judge", _judge_tokens(config, size, assumes), judge_rows * size.judge_row)
    if config.adapt_tasks:
        times["rewriter reads"] = ("adaptation", 1)
        times["rewriter token"] = ("adaptation", config.adapt.max_tokens)
    return times


def _training(config: ConfigDict, name: str, tokens: float, batch: int) -> dict[str, tuple[str, float]]:
    updates = config[name].updates
    batches = updates * -(-tokens // (updates * batch))
    times = {f"{name} gradient": ("training", batches), f"{name} update": ("training", updates)}
    if updates > 1:  # the first update starts at the parameters that the others compare with
        times[f"{name} log-probabilities"] = ("training", batches * (updates - 1) / updates)
    return {program: (phase, float(count)) for program, (phase, count) in times.items()}


def _judge_tokens(config: ConfigDict, size: Sizes, assumes: Assumed) -> float:
    """Of the trees that the judge is trained on, a trunk again in each row that its branches need."""
    if config.reward == "unit_tests":
        return size.tasks * (size.judge_context + config.votes_per_step * assumes.vote)
    trees = min(config.judge.trajectories, size.tasks * config.rollouts_per_task)
    branches = config.world.max_steps * config.votes_per_step * (size.question + assumes.vote)
    return trees * (branches + assumes.episode * -(-branches // max(size.judge_row - assumes.episode, 1)))


def tokens(config: ConfigDict, size: Sizes, assumes: Assumed) -> dict[str, float]:
    """Tokens of an iteration, on all hosts."""
    n, steps, votes = config.rollouts_per_task, config.world.max_steps, config.votes_per_step
    episodes = size.tasks * n
    cast = size.tasks * votes if config.reward == "unit_tests" else episodes * steps * votes
    return {
        "played": episodes * assumes.episode,
        "sampled by the policy": episodes * assumes.sampled,
        "sampled by the judge": cast * assumes.vote,
        "trained on by the policy": episodes * assumes.episode if config.train_policy else 0,
        "trained on by the judge": _judge_tokens(config, size, assumes) if config.train_judge else 0,
    }
