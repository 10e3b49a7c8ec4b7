"""What a reward model is to the loop: it scores the policy's steps, is trained on how its scores fared, and says what is wrong.

Two kinds: `step_judge` gives verdicts on the steps of an episode, `unit_tests` writes tests that programs pass or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from rlanything_jax.dialogue import Dialogue, Speaker
from rlanything_jax.reward.arrays import Votes
from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.batches import TrainSequence

Cast = list[list[list[Vote]]]  # the votes on a list of trajectories, [trajectory][step][m]


class RewardModel(Protocol):
    @property
    def early(self) -> int:
        """Episodes that it judges together as soon as they are over, while others play; 0: all of them at the end."""
        ...

    def votes(
        self,
        speaker: Speaker,
        trajectories: Sequence[Trajectory],
        m: int,
        *,
        seed: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Cast:
        """m votes on every step of every trajectory; seed and the trajectories' requests name the random streams."""
        ...

    def advantage(self, arrays: Votes, outcome: np.ndarray) -> np.ndarray:
        """The advantage of every vote [Q,N,T,M]; `outcome` [Q,N] in [-1,1] is the O of the equations."""
        ...

    def sequences(
        self,
        reader: Dialogue,
        trajectories: Sequence[Trajectory],
        votes: Cast,
        advantage: np.ndarray,
        kept: Sequence[int],
    ) -> list[TrainSequence]:
        """What the reward model is trained on, of the trajectories with the numbers `kept`, in this order.

        `advantage` [trajectories,T,M] is that of `votes`.
        """
        ...

    def metrics(self, arrays: Votes) -> dict[str, float]:
        """How good the votes of an iteration were."""
        ...

    def critique(self, task: Task, trajectories: Sequence[Trajectory], votes: Cast, direction: str) -> str:
        """What the rewriter is told about the attempts at `task`, which is to become 'harder' or 'easier'."""
        ...
