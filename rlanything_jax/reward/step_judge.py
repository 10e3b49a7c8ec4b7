"""The reward model of step verdicts: m rationales with a verdict on every step (equations 1-4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from rlanything_jax import feedback
from rlanything_jax.dialogue import Dialogue, Speaker
from rlanything_jax.reward.arrays import Votes
from rlanything_jax.reward.judge import JudgeConfig, judge
from rlanything_jax.reward.measure import judge_metrics
from rlanything_jax.reward.model import Cast
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.signals import judge_signal
from rlanything_jax.tasks.critique import summarise
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.batches import TrainSequence
from rlanything_jax.trainer.experience import judge_sequence


@dataclasses.dataclass(frozen=True)
class StepJudge:
    """See `RewardModel`.

    signal: what the votes should agree with, see `signals.judge_signal`.
    lam, estimator, invalid: of `feedback`, for the judge's own reward. Deviation: `lam` need not be the policy's. From 2 on it
      is a gate: a step whose majority contradicts the outcome teaches the opposite of the outcome, or nothing.
    trajectories: most episodes that it is trained on in an iteration, half of them successes.
    """

    judging: JudgeConfig
    signal: str
    lam: float
    estimator: str
    invalid: float
    aggregation: str
    trajectories: int

    @property
    def early(self) -> int:
        return self.judging.rows if self.judging.early else 0

    def votes(
        self,
        speaker: Speaker,
        trajectories: Sequence[Trajectory],
        m: int,
        *,
        seed: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Cast:
        return judge(speaker, trajectories, m, self.judging, seed=seed, progress=progress)

    def advantage(self, arrays: Votes, outcome: np.ndarray) -> np.ndarray:
        """Of the consistency of each vote with the signal and the other votes of its step, which weigh `lam`."""
        signal = judge_signal(outcome, arrays.state, arrays.step_mask, kind=self.signal)
        reward = feedback.integrated_reward(signal, arrays.scores, arrays.step_mask, lam=self.lam)
        consistency = feedback.consistency_reward(reward, arrays.scores, invalid=self.invalid)
        return np.asarray(feedback.judge_advantage(consistency, arrays.step_mask, estimator=self.estimator))

    def sequences(
        self,
        reader: Dialogue,
        trajectories: Sequence[Trajectory],
        votes: Cast,
        advantage: np.ndarray,
        kept: Sequence[int],
    ) -> list[TrainSequence]:
        """A tree for each episode: the transcript as its trunk, the votes as its branches."""
        # Deviation: as many successes as failures. Their shares are what tilts the judge to one verdict (Theorem 2),
        # and the paper leaves them to the policy's success rate.
        won, lost = (
            [i for i in kept if advantage[i].any() and trajectories[i].won == outcome]
            for outcome in (True, False)
        )
        each = min(len(won), len(lost), self.trajectories // 2)
        return [
            judge_sequence(
                trajectories[i].transcript(reader), votes[i], advantage[i], reader.question, self.aggregation
            )
            for pair in zip(won[:each], lost[:each], strict=True)
            for i in pair
        ]

    def metrics(self, arrays: Votes) -> dict[str, float]:
        return judge_metrics(arrays.outcome, arrays.scores, arrays.step_mask, arrays.labels)

    def critique(self, task: Task, trajectories: Sequence[Trajectory], votes: Cast, direction: str) -> str:
        """The commonest rationales of the votes that said -1: about failures, or about all where the task is too easy."""
        return summarise(
            vote.rationale
            for trajectory, steps in zip(trajectories, votes, strict=True)
            if direction == "harder" or not trajectory.won
            for of_step in steps
            for vote in of_step
            if vote.score == -1
        )
