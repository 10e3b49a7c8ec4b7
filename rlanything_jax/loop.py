"""Algorithm 1 of RLAnything (arXiv 2602.02488): environment, policy and reward model learn together.

One iteration: roll out, judge, feed back, update, adapt. Arrays over [task, rollout, step, m] inside, text and tasks outside.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from rlanything_jax import feedback, theory
from rlanything_jax.adaptation import adapt
from rlanything_jax.dialogue import Speaker
from rlanything_jax.envs.base import World
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.parallel import hosts
from rlanything_jax.reward.arrays import Votes, to_arrays
from rlanything_jax.reward.judge import Vote
from rlanything_jax.reward.model import Cast, RewardModel
from rlanything_jax.roles import Role
from rlanything_jax.rollouts import SamplerConfig, Trajectory, rollout
from rlanything_jax.signals import judge_signal
from rlanything_jax.tasks.curriculum import curriculum
from rlanything_jax.tasks.pool import TaskPool
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.batches import TrainSequence
from rlanything_jax.trainer.experience import policy_sequences
from rlanything_jax.trainer.step import Objective, TrainState, train_epoch

Phase = Callable[[str, int, int], None]
EarlyCast = dict[int, list[list[Vote]]]  # votes [step][m] on the episodes judged already, by their requests


class Streams:
    """Which random stream is whose: seeds of the counter-based generators, folded from the run's seed."""

    ROLLOUT, JUDGE, REWRITE, EVALUATE, SELECT = range(5)

    @staticmethod
    def seed(run_seed: int, stream: int, iteration: int) -> int:
        return int(np.random.SeedSequence([run_seed, stream, iteration]).generate_state(1)[0])


@dataclasses.dataclass(frozen=True)
class Setting:
    """What stays the same during a run."""

    config: ConfigDict
    world: World
    envs: EnvironmentPool
    policy: Role
    judge: Role
    rewriter: Speaker  # frozen, as in the paper
    sampler: SamplerConfig
    reward: RewardModel


@dataclasses.dataclass
class State:
    """What a checkpoint holds."""

    iteration: int
    policy: TrainState
    judge: TrainState
    tasks: TaskPool


class Batch(NamedTuple):
    """The episodes of one iteration with their votes, in the order [task, rollout]."""

    tasks: list[Task]
    trajectories: list[Trajectory]
    votes: Cast
    arrays: Votes
    reward: np.ndarray  # [Q,N,T]
    policy_advantage: np.ndarray  # [Q,N,T]
    judge_advantage: np.ndarray  # [Q,N,T,M]


def iterate(setting: Setting, state: State, phase: Phase) -> tuple[dict[str, float], Batch]:
    """One iteration of Algorithm 1; advances `state` in place and returns the iteration's metrics and episodes."""
    config, clock = setting.config, _Clock()
    env_seconds = setting.envs.seconds

    weigh = curriculum(config.curriculum, state.tasks, config.adapt.low, config.adapt.high)
    fresh = state.tasks.sample(state.iteration, config.tasks_per_iteration, weigh)
    pending = state.tasks.pending()
    tasks = [*fresh, *pending]
    judge_seed = Streams.seed(config.seed, Streams.JUDGE, state.iteration)
    # Before the rollouts only where it votes during them: the weights of both models are in memory then.
    judge = setting.judge.speaker(state.judge.params) if setting.reward.early else None
    cast: EarlyCast = {}
    trajectories = play(
        setting,
        setting.policy.speaker(state.policy.params),
        tasks,
        config.rollouts_per_task,
        seed=Streams.seed(config.seed, Streams.ROLLOUT, state.iteration),
        version=int(state.policy.step),
        progress=lambda done, total: phase("rollout", done, total),
        meanwhile=lambda over: vote_early(setting, judge, over, cast, seed=judge_seed) if judge else None,
    )
    clock.stop("rollout")  # with the votes that were early

    votes = vote(
        setting,
        judge or setting.judge.speaker(state.judge.params),
        trajectories,
        config.rollouts_per_task,
        cast,
        seed=judge_seed,
        progress=lambda done, total: phase("judge", done, total),
    )
    batch = feed_back(setting, tasks, trajectories, votes)
    clock.stop("judge")

    metrics = _rollout_metrics(batch, config.rollouts_per_task, len(fresh))
    metrics |= _judge_metrics(setting.reward, batch.arrays)
    phase("train", 0, 0)
    metrics |= update(setting, state, batch)
    clock.stop("train")

    phase("adapt", 0, 0)
    if config.adapt_tasks:
        counts = adapt(
            setting.rewriter,
            setting.world,
            setting.reward.critique,
            state.tasks,
            tasks,
            trajectories,
            votes,
            config.adapt,
            iteration=state.iteration,
            seed=Streams.seed(config.seed, Streams.REWRITE, state.iteration),
        )
        metrics |= {f"tasks/{name}": float(count) for name, count in counts.items()}
    clock.stop("adapt")
    state.iteration += 1
    metrics["time/env_s"] = setting.envs.seconds - env_seconds  # part of the rollouts
    return metrics | clock.metrics(), batch


def play(
    setting: Setting,
    policy: Speaker,
    tasks: Sequence[Task],
    n: int,
    *,
    seed: int,
    version: int,
    progress: Callable[[int, int], None],
    meanwhile: Callable[[Sequence[Trajectory]], None] = lambda over: None,
    sampler: SamplerConfig | None = None,
) -> list[Trajectory]:
    """`rollout`, with the tasks shared out among the hosts."""
    return hosts.shared_out(
        tasks,
        lambda mine, first: rollout(
            policy,
            setting.envs,
            setting.world,
            mine,
            n,
            sampler or setting.sampler,
            seed=seed,
            first_request=first * n,
            version=version,
            progress=progress,
            meanwhile=meanwhile,
        ),
        known=[policy.dialogue],
    )


def vote_early(
    setting: Setting, judge: Speaker, over: Sequence[Trajectory], cast: EarlyCast, *, seed: int
) -> None:
    """Lets the reward model vote on episodes of `over` that have no votes in `cast` yet, if there are enough of them.

    Only in whole groups, so that no more of them are computed than at the end.
    """
    waiting = [trajectory for trajectory in over if trajectory.request not in cast][: setting.reward.early]
    if len(waiting) == setting.reward.early > 0:
        votes = setting.reward.votes(judge, waiting, setting.config.votes_per_step, seed=seed)
        cast.update(zip([trajectory.request for trajectory in waiting], votes, strict=True))


def vote(
    setting: Setting,
    judge: Speaker,
    trajectories: Sequence[Trajectory],
    n: int,
    cast: EarlyCast,
    *,
    seed: int,
    progress: Callable[[int, int], None],
) -> Cast:
    """The reward model's votes, with the tasks shared out among the hosts; `trajectories` are n of each.

    A host has played the same tasks that it judges, so `cast` holds what it has voted on them already.
    """

    def of_host(mine: Sequence[Sequence[Trajectory]], first: int) -> Cast:
        played = [trajectory for of_task in mine for trajectory in of_task]
        rest = [trajectory for trajectory in played if trajectory.request not in cast]
        m = setting.config.votes_per_step
        votes = iter(setting.reward.votes(judge, rest, m, seed=seed, progress=progress))
        return [cast[t.request] if t.request in cast else next(votes) for t in played]

    return hosts.shared_out([trajectories[i : i + n] for i in range(0, len(trajectories), n)], of_host)


def feed_back(setting: Setting, tasks: list[Task], trajectories: list[Trajectory], votes: Cast) -> Batch:
    """Step 3: the integrated reward to the policy, its consistency with each vote to the judge (equations 1-4)."""
    config = setting.config
    arrays = to_arrays(
        trajectories,
        votes,
        config.rollouts_per_task,
        config.votes_per_step,
        tasks=config.tasks_per_iteration + config.adapt.max_pending,
        steps=config.world.max_steps,
    )
    outcome = arrays.outcome if config.feedback.outcome == "won" else 2 * arrays.score - 1
    scores = arrays.scores
    if config.feedback.source != "votes":
        scores = np.asarray(
            judge_signal(outcome, arrays.state, arrays.step_mask, kind=config.feedback.source)
        )[..., None]
    weight = config.feedback.outcome_weight
    reward = feedback.integrated_reward(weight * outcome, scores, arrays.step_mask, lam=config.feedback.lam)
    return Batch(
        tasks,
        trajectories,
        votes,
        arrays,
        np.asarray(reward),
        np.asarray(feedback.policy_advantage(reward, arrays.step_mask)),
        setting.reward.advantage(arrays, outcome),
    )


def update(setting: Setting, state: State, batch: Batch) -> dict[str, float]:
    """Step 4: policy and judge take their updates from the same train step."""
    config = setting.config
    metrics: dict[str, float] = {}
    n = config.rollouts_per_task
    played = batch.arrays.step_mask.any(-1)  # not lost to a fault of the environment
    accuracy = np.sum(played & (batch.arrays.outcome > 0), axis=1) / np.maximum(played.sum(axis=1), 1)
    rng = np.random.default_rng(Streams.seed(config.seed, Streams.SELECT, state.iteration))

    def kept(bounds: tuple[float, float]) -> list[int]:
        """Episodes that count, of tasks whose success rate is within `bounds`, in random order."""
        inside = [
            i
            for i, trajectory in enumerate(batch.trajectories)
            if not trajectory.error and trajectory.steps and bounds[0] <= accuracy[i // n] <= bounds[1]
        ]
        return [inside[i] for i in rng.permutation(len(inside))]

    if config.train_policy:
        sequences = [
            sequence
            for i in kept(config.policy.task_filter)
            for sequence in policy_sequences(
                batch.trajectories[i], batch.policy_advantage[divmod(i, n)], config.policy.aggregation
            )
        ]
        state.policy, learned = _train(setting, state.policy, setting.policy, sequences, config.policy)
        metrics |= {f"policy/{name}": value for name, value in learned.items()}
        if "logprob_gap" in learned:
            gap = metrics["sampler/logprob_gap"] = learned["logprob_gap"]
            if not gap <= config.trainer.max_logprob_gap:
                raise ValueError(
                    f"what is trained on is not what was sampled: log-probabilities differ by {gap:.2g}, config.trainer."
                    f"max_logprob_gap={config.trainer.max_logprob_gap:g}. Compute in float32, or raise the bound"
                )
    if config.train_judge:
        advantage = batch.judge_advantage.reshape(-1, *batch.judge_advantage.shape[2:])
        sequences = setting.reward.sequences(
            setting.judge.dialogue,
            batch.trajectories,
            batch.votes,
            advantage,
            kept(config.judge.task_filter),
        )
        state.judge, learned = _train(setting, state.judge, setting.judge, sequences, config.judge)
        metrics |= {f"judge/{name}": value for name, value in learned.items()}
    return metrics


def _train(
    setting: Setting,
    state: TrainState,
    role: Role,
    sequences: list[TrainSequence],
    options: ConfigDict,
) -> tuple[TrainState, dict[str, float]]:
    objective = Objective(
        temperature=options.temperature,
        eps_low=options.eps_low,
        eps_high=options.eps_high,
        kl=options.kl,
        correction_cap=options.correction_cap,
    )
    return train_epoch(
        state,
        role.frozen,
        role.model,
        role.tx,
        sequences,
        objective,
        updates=options.updates,
        tokens_per_batch=setting.config.trainer.tokens_per_batch,
        lengths=tuple(setting.config.trainer.length_buckets),
    )


def _rollout_metrics(batch: Batch, n: int, fresh: int) -> dict[str, float]:
    """Success and inadmissible actions of the tasks drawn from the pool; proposals under verification are apart."""
    drawn = [t for t in batch.trajectories[: fresh * n] if not t.error]
    steps = [step for trajectory in drawn for step in trajectory.steps]
    rewritten = [t.won for t in drawn if t.task.generation]
    return ({"rollout/success_rewritten": float(np.mean(rewritten))} if rewritten else {}) | {
        "rollout/success": float(np.mean([t.won for t in drawn])) if drawn else 0.0,
        "rollout/inadmissible": float(np.mean([not step.admissible for step in steps])) if steps else 0.0,
        "rollout/steps": len(steps) / max(len(drawn), 1),
        "rollout/truncated": float(np.mean([t.truncated for t in drawn])) if drawn else 0.0,
        "rollout/lost": float(len([t for t in batch.trajectories if t.error])),
        "rollout/tokens": float(sum(len(s.tokens) for t in batch.trajectories for s in t.segments)),
    }


def _judge_metrics(model: RewardModel, arrays: Votes) -> dict[str, float]:
    if not arrays.scores.size:
        return {}
    predicted = theory.theory_metrics(arrays.outcome, arrays.scores, arrays.step_mask)
    return model.metrics(arrays) | {name: float(value) for name, value in predicted.items()}


class _Clock:
    """Wall time of the phases of an iteration, in seconds."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._phases: dict[str, float] = {}

    def stop(self, phase: str) -> None:
        now = time.monotonic()
        self._phases[phase] = now - self._last
        self._last = now

    def metrics(self) -> dict[str, float]:
        phases = {f"time/{name}_s": seconds for name, seconds in self._phases.items()}
        return phases | {"time/iteration_s": self._last - self._start}
