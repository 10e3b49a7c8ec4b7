"""Episodes: what is recorded is what was sampled, and depends on nothing but the task and its random stream."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
import pytest

from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.world import AlfworldWorld
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.loop import Setting, State, feed_back, update
from rlanything_jax.models import logits
from rlanything_jax.models.tokenizer import END
from rlanything_jax.reward.judge import judge
from rlanything_jax.rollouts import Trajectory, rollout
from rlanything_jax.tasks.task import Task

Play = Callable[..., list[Trajectory]]
N = 2


@pytest.fixture
def tasks(setting: Setting) -> list[Task]:
    return setting.world.tasks("train")[:3]


@pytest.fixture
def play(setting: Setting, state: State) -> Play:
    """Rolls out the tiny policy; keyword arguments replace parts of its setting."""
    policy = setting.policy.speaker(state.policy.params)

    def play(
        tasks: Sequence[Task],
        n: int = N,
        *,
        envs=setting.envs,
        world=setting.world,
        first=0,
        **limits,
    ) -> list[Trajectory]:
        config = dataclasses.replace(setting.sampler, **limits)
        return rollout(
            policy,
            envs,
            world,
            tasks,
            n,
            config,
            seed=5,
            first_request=first,
        )

    return play


def assert_same(some: Sequence[Trajectory], others: Sequence[Trajectory]) -> None:
    assert len(some) == len(others) > 0
    for a, b in zip(some, others, strict=True):
        assert a.tokens == b.tokens
        # A batch of another size may add in another order.
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
        for name in ("task", "rollout", "request", "steps", "won", "truncated", "error"):
            assert getattr(a, name) == getattr(b, name)


def sampled_positions(trajectory: Trajectory) -> list[int]:
    return [i for step in trajectory.steps for i in range(step.start, step.end)]


def test_recorded_logprobs_are_those_of_a_forward_without_cache(
    setting: Setting, state: State, play: Play, tasks: list[Task]
) -> None:
    played = play(tasks[:2])
    tokens = np.zeros((len(played), 384), np.int32)
    mask = np.zeros(tokens.shape, bool)
    for row, trajectory in enumerate(played):
        tokens[row, : len(trajectory.tokens)] = trajectory.tokens
        mask[row, : len(trajectory.tokens)] = True
    expected = jax.nn.log_softmax(logits(state.policy.params, setting.policy.model, tokens, mask))
    for row, trajectory in enumerate(played):
        assert len(trajectory.logprobs) == len(trajectory.tokens)
        here = sampled_positions(trajectory)
        assert len(here) >= len(trajectory.steps) > 0
        found = np.array(trajectory.logprobs)
        wanted = [expected[row, i - 1, trajectory.tokens[i]] for i in here]
        np.testing.assert_allclose(found[here], wanted, atol=1e-4)
        assert np.all(found[here] < 0)
        assert not np.delete(found, here).any()  # nothing where a token was read


def test_spans_and_points_are_where_they_say(setting: Setting, play: Play, tasks: list[Task]) -> None:
    tokenizer = setting.policy.dialogue.tokenizer
    end = tokenizer.token_to_id(END)
    finished = 0
    for trajectory in play(tasks):
        assert len(trajectory.steps) == setting.config.world.max_steps
        environment = setting.world.environment(trajectory.task)
        observation, read = environment.reset(), 0
        for t, step in enumerate(trajectory.steps):
            assert step.observation == setting.world.render(observation, trajectory.task, t == 0)
            tokens = trajectory.tokens
            assert (
                tokens[read : step.start] == tokenizer.encode(step.observation, add_special_tokens=False).ids
            )
            sampled = tokens[step.start : step.end]
            assert 0 < len(sampled) <= setting.sampler.max_action_tokens
            assert end not in sampled[:-1]
            assert sampled[-1] == end or len(sampled) == setting.sampler.max_action_tokens
            finished += sampled[-1] == end
            assert step.response == tokenizer.decode([i for i in sampled if i != end])
            observation, read = environment.step(step.response), step.end
            followed = setting.world.render(observation, trajectory.task, False)
            assert tokenizer.decode(tokens[step.end : step.point]) == followed
            assert step.admissible == observation.info["admissible"]
            assert step.label == observation.info["label"]
        assert trajectory.steps[-1].point == len(trajectory.tokens)
        assert (trajectory.won, trajectory.error, trajectory.truncated) == (observation.won, None, False)
    assert finished


def test_an_episode_does_not_depend_on_its_neighbours(play: Play, tasks: list[Task]) -> None:
    together = play(tasks)
    assert [(t.task, t.rollout) for t in together] == [(task, j) for task in tasks for j in range(N)]
    assert [t.request for t in together] == list(range(6))
    assert_same(play([tasks[1]], first=N), together[N : 2 * N])
    assert_same(play(tasks, batch_buckets=(2, 4, 6)), together)  # the batch shrinks to another size
    # More episodes than rows: two loads of two tasks and of one.
    assert_same(play(tasks, batch_buckets=(4,)), together)


def test_worker_processes_play_the_same_episodes(setting: Setting, play: Play, tasks: list[Task]) -> None:
    options = setting.config.world.to_dict()
    for name in ("name", "workers", "step_timeout_s", "reset_timeout_s"):
        del options[name]
    make_world = functools.partial(AlfworldWorld, **options)
    with EnvironmentPool(make_world, workers=2, step_timeout_s=60.0, reset_timeout_s=60.0) as envs:
        assert_same(play(tasks, envs=envs), play(tasks))


def test_rollouts_of_a_task_differ(play: Play, tasks: list[Task]) -> None:
    played = play(tasks[:1], 8)
    assert len({tuple(t.tokens) for t in played}) > 4
    assert len({t.steps[0].observation for t in played}) == 1
    greedy = play(tasks[:1], 8, temperature=0.0)
    assert len({tuple(t.tokens) for t in greedy}) == 1
    assert greedy[0].tokens != greedy[0].steps[0].response


def test_progress_counts_all_episodes(setting: Setting, state: State, tasks: list[Task]) -> None:
    calls = []
    rollout(
        setting.policy.speaker(state.policy.params),
        setting.envs,
        setting.world,
        tasks,
        N,
        dataclasses.replace(setting.sampler, batch_buckets=(4,)),
        seed=0,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == sorted(calls) and calls[-1] == (6, 6)
    assert (4, 6) in calls


class Faulty(AlfworldEnv):
    """Breaks down at its `when`-th step, or at its reset where that is 0."""

    def __init__(self, environment: AlfworldEnv, when: int) -> None:
        super().__init__(environment.game, environment.max_steps, True)
        self._left = when

    def reset(self):
        if not self._left:
            raise OSError("the house burnt down")
        return super().reset()

    def step(self, command: str):
        self._left -= 1
        if not self._left:
            raise OSError("the house burnt down")
        return super().step(command)


@pytest.mark.parametrize("when", [0, 2])
def test_an_episode_lost_to_its_environment_is_not_trained_on(
    setting: Setting, state: State, play: Play, tasks: list[Task], monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """The first rollout of the first task, whose prompt the others are forked from."""
    healthy = play(tasks[:2])
    build, built = AlfworldWorld.environment, []

    def environment(world: AlfworldWorld, task: Task) -> AlfworldEnv:
        built.append(task)
        return Faulty(build(world, task), when) if len(built) == 1 else build(world, task)

    monkeypatch.setattr(AlfworldWorld, "environment", environment)
    played = play(tasks[:2])
    lost = played[0]
    assert "the house burnt down" in lost.error and not lost.won and lost.outcome == -1
    assert len(lost.steps) == when
    assert_same(played[1:], healthy[1:])

    votes = judge(
        setting.judge.speaker(state.judge.params),
        played,
        setting.config.votes_per_step,
        setting.reward.judging,
        seed=0,
    )
    batch = feed_back(setting, tasks[:2], played, votes)
    assert not batch.arrays.step_mask[0, 0].any()
    assert not batch.policy_advantage[0, 0].any() and not batch.judge_advantage[0, 0].any()
    assert not batch.policy_advantage[0, 1].any()  # nothing is left to compare it with
    assert batch.arrays.step_mask[1].all()
    assert all(np.isfinite(value) for value in update(setting, state, batch).values())


def test_nothing_is_trained_on_where_all_episodes_are_lost(
    setting: Setting, state: State, play: Play, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = AlfworldWorld.environment
    monkeypatch.setattr(AlfworldWorld, "environment", lambda world, task: Faulty(build(world, task), 0))
    played = play(tasks[:2])
    assert all(t.error and not t.steps for t in played)
    before = jax.tree.map(np.asarray, state.policy.params)
    batch = feed_back(setting, tasks[:2], played, [[] for _ in played])
    assert update(setting, state, batch) == {}
    jax.tree.map(np.testing.assert_array_equal, before, state.policy.params)


@pytest.mark.parametrize(
    ("words", "limits", "size"),
    [
        (500, {}, 384),  # longer than the cache: cut at its end
        (150, {}, None),  # longer than the longest turn: kept whole
        (40, {"length_buckets": (96,), "turn_buckets": (80,)}, 96),  # the second turn overflows the cache
    ],
    ids=["cache", "turn", "later"],
)
def test_an_episode_that_outgrows_the_cache_ends_and_is_trained_on(
    setting: Setting, state: State, play: Play, tasks: list[Task], words: int, limits: dict, size: int | None
) -> None:
    class Talkative(AlfworldWorld):
        def render(self, observation, task, first):
            return super().render(observation, task, True) if first else " put" * words + "\n> "

    world = Talkative(**dataclasses.asdict(setting.world))
    played = play(tasks[:2], world=world, **limits)
    for trajectory in played:
        assert trajectory.truncated and not trajectory.won and not trajectory.error
        assert 1 <= len(trajectory.steps) < setting.config.world.max_steps
        assert len(trajectory.tokens) == len(trajectory.logprobs) == trajectory.steps[-1].point
        assert len(trajectory.tokens) <= setting.reward.judging.length_buckets[-1]
        if size:
            assert len(trajectory.tokens) == size
    votes = judge(
        setting.judge.speaker(state.judge.params),
        played,
        setting.config.votes_per_step,
        setting.reward.judging,
        seed=0,
    )
    assert [len(v) for v in votes] == [len(t.steps) for t in played]
    # Success and disagreement, so that there is something to learn.
    played[0].won = True
    votes = [
        [[dataclasses.replace(vote, score=s) for vote, s in zip(step, (1, -1), strict=True)] for step in v]
        for v in votes
    ]
    batch = feed_back(setting, tasks[:2], played, votes)
    assert batch.arrays.step_mask.sum() == sum(len(t.steps) for t in played)
    learned = update(setting, state, batch)
    assert all(np.isfinite(value) for value in learned.values())
    assert learned["policy/grad_norm"] > 0 and learned["judge/grad_norm"] > 0
