"""Votes on episodes that are over while others play are the votes that they would get at the end."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest

from rlanything_jax.loop import EarlyCast, Setting, State, iterate, play, vote, vote_early
from rlanything_jax.parallel import hosts
from rlanything_jax.reward.model import Cast
from rlanything_jax.reward.step_judge import StepJudge
from rlanything_jax.rollouts import Trajectory

N = 3


def ignore(*progress: Any) -> None:
    pass


def judging(setting: Setting, *, early: bool, groups: int = 1) -> Setting:
    """With two slots for the episodes, so that they end one after the other, and two episodes in a judge's group."""
    reward = setting.reward
    assert isinstance(reward, StepJudge)
    reward = dataclasses.replace(reward, judging=dataclasses.replace(reward.judging, rows=2, early=early))
    sampler = dataclasses.replace(setting.sampler, batch_buckets=(2,), groups=groups)
    return dataclasses.replace(setting, reward=reward, sampler=sampler)


def assert_same(some: Cast, others: Cast) -> None:
    assert len(some) == len(others) > 0
    for a, b in zip(some, others, strict=True):
        for mine, other in zip((v for s in a for v in s), (v for s in b for v in s), strict=True):
            assert mine.tokens == other.tokens and mine.text == other.text and mine.score == other.score
            np.testing.assert_allclose(mine.logprobs, other.logprobs, atol=1e-5)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The requests of each call of the judge."""
    calls: list[list[int]] = []
    votes = StepJudge.votes

    def counting(
        self: StepJudge, speaker: Any, trajectories: Sequence[Trajectory], *args: Any, **kwargs: Any
    ) -> Cast:
        calls.append([trajectory.request for trajectory in trajectories])
        return votes(self, speaker, trajectories, *args, **kwargs)

    monkeypatch.setattr(StepJudge, "votes", counting)
    return calls


def test_an_iteration_is_the_same(
    setting: Setting, state: State, opened: tuple, judged: list[list[int]]
) -> None:
    late, batch = iterate(judging(setting, early=False), state, ignore)
    assert judged == [[0, 1, 2, 3]]
    judged.clear()
    after = opened[1]()
    early, again = iterate(judging(setting, early=True), after, ignore)
    assert judged == [[0, 1], [2, 3]]  # the first two while the others play
    assert_same(batch.votes, again.votes)
    for key, value in late.items():
        assert key.startswith("time/") or value == pytest.approx(early[key], rel=1e-4, abs=1e-6), key
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state.judge.params, after.judge.params
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_each_host_votes_early_on_what_it_plays(
    setting: Setting,
    state: State,
    judged: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    groups: int,
) -> None:
    speakers = setting.policy.speaker(state.policy.params), setting.judge.speaker(state.judge.params)
    tasks = setting.world.tasks("train")[:3]

    def run(setting: Setting) -> tuple[list[Trajectory], Cast]:
        cast: EarlyCast = {}
        played = play(
            setting,
            speakers[0],
            tasks,
            N,
            seed=5,
            version=0,
            progress=ignore,
            meanwhile=lambda over: vote_early(setting, speakers[1], over, cast, seed=6),
        )
        whole = everything or played  # as if the other host's had come
        return played, vote(setting, speakers[1], whole, N, cast, seed=6, progress=ignore)

    everything: list[Trajectory] = []
    episodes, votes = run(judging(setting, early=False))
    assert judged == [list(range(9))]
    judged.clear()
    everything, split = episodes, []
    for part in (slice(0, 1), slice(1, 3)):  # of the tasks
        monkeypatch.setattr(hosts, "share", lambda count, part=part: part)
        split += run(judging(setting, early=True, groups=groups))[1]
    # With two groups the three episodes of the first host play at once, and nothing is left to play meanwhile.
    first = [[0, 1], [2]] if groups == 1 else [[0, 1, 2]]
    assert judged == [*first, [3, 4], [5, 6], [7, 8]]
    assert_same(votes, split)


def test_a_reward_model_that_is_not_early_waits_for_the_end(
    setting: Setting, state: State, judged: list[list[int]]
) -> None:
    task = setting.world.tasks("train")[0]
    cast: EarlyCast = {}
    over = [Trajectory(task, i, i, setting.policy.dialogue) for i in range(4)]
    judge = setting.judge.speaker(state.judge.params)
    vote_early(judging(setting, early=False), judge, over, cast, seed=0)
    assert cast == {} and judged == []
