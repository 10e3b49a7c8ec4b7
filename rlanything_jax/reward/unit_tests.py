"""The reward model that writes unit tests: a program's tests judge it, and the programs judge the tests.

For each task the model writes m tests. Every test is run on every program of the task, and whether a program passes
is the vote on the step that wrote it. The tests are rewarded by the programs whose correctness the data set's own tests tell
(`feedback.unit_test_reward`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rlanything_jax import feedback
from rlanything_jax.dialogue import Dialogue, Speaker
from rlanything_jax.envs.code.problem import Problem, Test, WrittenTest
from rlanything_jax.reward.arrays import Votes
from rlanything_jax.reward.judge import Vote
from rlanything_jax.reward.measure import judge_metrics
from rlanything_jax.reward.model import Cast
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.sampler.generate import Response, generate
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.batches import TrainSequence
from rlanything_jax.trainer.experience import response_tree

_SHOWN = 100  # characters of a test that a rewriter is shown of each side


@runtime_checkable
class ProgramWorld(Protocol):
    """A world whose steps are programs."""

    def problem(self, task: Task) -> Problem: ...

    def test_prompt(self, task: Task) -> str:
        """What the model reads before it writes a test."""
        ...

    def parse_test(self, task: Task, text: str) -> WrittenTest | None:
        """The test in a response, None where there is none."""
        ...

    def passes(self, task: Task, programs: Sequence[str], tests: Sequence[Test]) -> list[list[bool]]:
        """Whether each program passes each test, [program][test]."""
        ...


class Written(NamedTuple):
    """One response of the model to a task."""

    response: Response
    test: WrittenTest | None


@dataclasses.dataclass(frozen=True)
class UnitTests:
    """See `RewardModel`. `rows` prompts are read together; `estimator` is that of `feedback.unit_test_advantage`."""

    world: ProgramWorld
    temperature: float
    max_tokens: int
    length_buckets: tuple[int, ...]
    rows: int
    aggregation: str
    estimator: str
    early: ClassVar[int] = 0  # a test runs on all programs of its task

    def votes(
        self,
        speaker: Speaker,
        trajectories: Sequence[Trajectory],
        m: int,
        *,
        seed: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Cast:
        """Every trajectory of a task gets the same m tests.

        Raises ValueError for a task that does not fit the longest of the length buckets.
        """
        groups = list(_by_task(trajectories))
        # Tasks of other hosts come before, with as many rollouts each.
        before = groups[0][1][0].request // len(groups[0][1]) if groups else 0
        written = self.write(speaker, [task for task, _ in groups], m, seed=seed, first_request=before * m)
        votes: Cast = []
        for done, ((task, group), tests) in enumerate(zip(groups, written, strict=True)):
            votes += self._vote(task, group, tests)
            progress(done + 1, len(groups))
        return votes

    def write(
        self, speaker: Speaker, tasks: Sequence[Task], m: int, *, seed: int, first_request: int = 0
    ) -> list[list[Written]]:
        """m tests for each task."""
        responses = generate(
            speaker,
            [self.world.test_prompt(task) for task in tasks],
            m,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            length_buckets=self.length_buckets,
            seed=seed,
            first_request=first_request,
            rows=self.rows,
        )
        if too_long := [task.id for task, of_task in zip(tasks, responses, strict=True) if not of_task]:
            raise ValueError(
                f"task {too_long[0]!r} does not fit judge.length_buckets={self.length_buckets} as the test writer reads it"
            )
        return [
            [
                Written(response, self.world.parse_test(task, response.text) if response.finished else None)
                for response in of_task
            ]
            for task, of_task in zip(tasks, responses, strict=True)
        ]

    def _vote(self, task: Task, group: Sequence[Trajectory], written: Sequence[Written]) -> Cast:
        """Runs the tests of `task` on all programs of its trajectories."""
        programs = [step.action for trajectory in group for step in trajectory.steps]
        tests = [one.test.test for one in written if one.test]
        verdicts = iter(self.world.passes(task, programs, tests))

        def of_step() -> list[Vote]:
            passed = iter(next(verdicts))
            return [_vote(one, (1 if next(passed) else -1) if one.test else 0) for one in written]

        return [[of_step() for _ in trajectory.steps] for trajectory in group]

    def advantage(self, arrays: Votes, outcome: np.ndarray) -> np.ndarray:
        """Of each test among those of its task; all programs share it."""
        value = feedback.unit_test_reward(arrays.labels > 0, arrays.scores, arrays.step_mask)
        spread = np.asarray(feedback.unit_test_advantage(value, estimator=self.estimator))[:, None, None]
        return np.where(arrays.step_mask[..., None], spread, 0.0)

    def sequences(
        self,
        reader: Dialogue,
        trajectories: Sequence[Trajectory],
        votes: Cast,
        advantage: np.ndarray,
        kept: Sequence[int],
    ) -> list[TrainSequence]:
        """A tree for each task: what was read as its trunk, the tests as its branches."""
        first = {trajectories[i].task.id: i for i in reversed(kept) if trajectories[i].steps}
        return [
            response_tree(
                reader.open(self.world.test_prompt(trajectories[i].task)),
                [(vote.tokens, vote.logprobs) for vote in votes[i][0]],
                advantage[i, 0],
                self.aggregation,
            )
            for i in first.values()
            if advantage[i, 0].any()
        ]

    def metrics(self, arrays: Votes) -> dict[str, float]:
        """`judge_metrics` and, as the paper reports them, 'judge/test_accuracy' and 'judge/detect_rate'.

        A test is accurate if all correct programs pass it, of the tests of tasks with a correct program; it detects if moreover
        all wrong programs fail it, of the tests of tasks that have both.
        """
        correct = arrays.labels > 0
        measured = judge_metrics(arrays.outcome, arrays.scores, arrays.step_mask, arrays.labels)
        true, rejected, accepted = (
            np.asarray(x) for x in feedback.check_tests(correct, arrays.scores, arrays.step_mask)
        )
        known = (arrays.step_mask & correct).any((1, 2))
        both = known & (arrays.step_mask & ~correct).any((1, 2))
        if known.any():
            measured["judge/test_accuracy"] = float(true[known].mean())
        if both.any():
            measured["judge/detect_rate"] = float((true & (accepted == 0))[both].mean())
        return measured

    def critique(self, task: Task, trajectories: Sequence[Trajectory], votes: Cast, direction: str) -> str:
        """The share of the attempts that passes each test, own and written, next to that test."""
        problem = self.world.problem(task)
        ends = [i for i, trajectory in enumerate(trajectories) if trajectory.steps]
        own = np.array([trajectories[i].steps[-1].passed for i in ends], float)
        lines = []
        if own.size:
            graded = [test for test in problem.tests if not test.public] or problem.tests
            for test, rate in zip(graded, own.mean(0), strict=True):
                lines.append(f"{_show(test)}: {rate:.0%} of the programs pass")
        if ends:
            for j, vote in enumerate(votes[ends[0]][-1]):
                parsed = self.world.parse_test(task, vote.text) if vote.score else None
                if parsed:
                    rate = np.mean([votes[i][-1][j].score > 0 for i in ends])
                    lines.append(f"written by a tester, {_show(parsed.test)}: {rate:.0%} pass")
        return "\n".join(dict.fromkeys(lines))


def _by_task(trajectories: Sequence[Trajectory]) -> Iterator[tuple[Task, list[Trajectory]]]:
    """(task, its trajectories) in order: the trajectories of a task follow one another."""
    for _, group in itertools.groupby(trajectories, key=lambda t: t.task.id):
        members = list(group)
        yield members[0].task, members


def _vote(one: Written, score: int) -> Vote:
    response = one.response
    reasoning = one.test.reasoning if one.test else ""
    return Vote(response.text, score, reasoning, response.tokens, response.logprobs)


def _show(test: Test) -> str:
    sides = (side if len(side) <= _SHOWN else side[:_SHOWN] + "..." for side in (test.input, test.output))
    return "{!r} -> {!r}".format(*(side.strip() for side in sides))
