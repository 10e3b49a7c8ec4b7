"""Episodes over slots: what is sampled depends on none of queues, groups, workers, buckets and the size of the cache."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.dialogue import Speaker
from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.models import ModelConfig, Params, logits
from rlanything_jax.models.chat import Extension
from rlanything_jax.rollouts import SamplerConfig, Trajectory, group_rows, rollout
from rlanything_jax.sampler import slots
from rlanything_jax.sampler.session import decode, extend, place, select
from rlanything_jax.tasks.task import Task

CONFIG = SamplerConfig(
    max_action_tokens=4, batch_buckets=(3,), turn_buckets=(8,), length_buckets=(16, 48), temperature=0.9
)


class Echo:
    """Says as many tokens a turn as the task asks for, the first of them drawn from what it was told."""

    def __init__(self, task: Task) -> None:
        self.lengths, self.seed, self.turn = task.spec["lengths"], task.spec["seed"], 0

    def observe(self, heard: str) -> Observation:
        rng = np.random.default_rng([self.seed, self.turn, *map(int, heard.split())])
        done = self.turn == len(self.lengths) - 1
        said = rng.integers(3, 280, self.lengths[self.turn]).tolist()
        return Observation(" ".join(map(str, said)), (), 0.0, won=False, done=done)

    def reset(self) -> Observation:
        return self.observe("0")

    def step(self, action: str) -> Observation:
        self.turn += 1
        return self.observe(action)

    def close(self) -> None: ...


class EchoWorld:
    def environment(self, task: Task) -> Echo:
        return Echo(task)

    def render(self, observation: Observation, task: Task, first: bool) -> str:
        return observation.text

    def action(self, response: str, observation: Observation) -> str:
        return response


class Ids:
    """Texts are ids, or letters for those who look for a string."""

    stop = tuple(range(3, 60))
    question: list[int] = []
    closing = 0

    def __init__(self, letters: bool = False) -> None:
        self.letters = letters

    def open(self, text: str) -> list[int]:
        return [int(i) for i in text.split()]

    def extend(self, exchanges: Any, written: Any, text: str) -> Extension:
        return Extension(self.open(text), restart=False)

    def text(self, written: Any) -> str:
        return "".join(chr(97 + i % 26) for i in written) if self.letters else " ".join(map(str, written))


class LetterWorld(EchoWorld):
    def action(self, response: str, observation: Observation) -> str:
        return str(len(response))


def tasks(*lengths: list[int]) -> list[Task]:
    return [Task(f"t{i}", "echo", "", {"lengths": turns, "seed": i}) for i, turns in enumerate(lengths)]


@pytest.fixture(scope="module")
def speaker(params: Params, model: ModelConfig) -> Speaker:
    return Speaker(params, model, Ids())


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, EnvironmentPool]]:
    made = {
        workers: EnvironmentPool(EchoWorld, workers=workers, step_timeout_s=60, reset_timeout_s=60)
        for workers in (0, 2)
    }
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture
def play(speaker: Speaker, pools: dict[int, EnvironmentPool]):
    def play(
        of: list[Task], n: int = 1, *, workers: int = 0, speaker=speaker, world=None, first=0, **limits: Any
    ) -> list[Trajectory]:
        config = dataclasses.replace(CONFIG, **limits)
        world = world or EchoWorld()
        return rollout(speaker, pools[workers], world, of, n, config, seed=3, first_request=first)

    return play


def assert_same(some: list[Trajectory], others: list[Trajectory]) -> None:
    assert len(some) == len(others) > 0
    for a, b in zip(some, others, strict=True):
        assert (a.task.id, a.rollout, a.request) == (b.task.id, b.rollout, b.request)
        assert a.tokens == b.tokens and a.steps == b.steps and a.truncated == b.truncated
        np.testing.assert_allclose(a.logprobs, b.logprobs, rtol=1e-4, atol=1e-4)


def full_logprobs(stacked: Params, model: ModelConfig, trajectory: Trajectory) -> np.ndarray:
    """Of every token but the first under a forward pass without cache, at the trajectory's temperature."""
    tokens, mask = np.zeros((1, 48), np.int32), np.zeros((1, 48), bool)
    n = len(trajectory.tokens)
    tokens[0, :n], mask[0, :n] = trajectory.tokens, True
    scores = logits(stacked, model, tokens, mask)[0] / trajectory.temperature
    return np.asarray(jax.nn.log_softmax(scores))[np.arange(n - 1), trajectory.tokens[1:]]


LENGTHS = st.lists(
    st.tuples(st.integers(1, 8), st.lists(st.integers(0, 8), min_size=1, max_size=3)).map(
        lambda x: [x[0], *x[1]]
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=12, deadline=None)
@given(LENGTHS, st.integers(1, 3), st.sampled_from([1, 2]), st.sampled_from([0, 2]))
def test_what_is_sampled_depends_on_no_slot_group_or_worker(
    speaker: Speaker,
    pools: dict[int, EnvironmentPool],
    lengths: list[list[int]],
    n: int,
    groups: int,
    workers: int,
) -> None:
    """Observations of any length, empty ones too; actions that end the cache; more episodes than slots."""
    of, world = tasks(*lengths), EchoWorld()
    crowd = dataclasses.replace(CONFIG, groups=groups)
    together = rollout(speaker, pools[workers], world, of, n, crowd, seed=3)
    alone = [
        rollout(speaker, pools[0], world, [task], 1, CONFIG, seed=3, first_request=i * n + j)[0]
        for i, task in enumerate(of)
        for j in range(n)
    ]
    for i, trajectory in enumerate(alone):
        trajectory.rollout = i % n
    assert_same(together, alone)


@pytest.mark.parametrize("groups", [1, 2])
def test_what_is_over_meanwhile_depends_on_no_worker(
    speaker: Speaker, pools: dict[int, EnvironmentPool], groups: int
) -> None:
    """Who judges meanwhile does it in the same order every time; never after the last episode."""
    of = tasks([4, 2], [4, 2, 2, 2], [4], [4, 2, 2], [4, 2])
    config = dataclasses.replace(CONFIG, groups=groups)

    def calls(workers: int) -> list[list[int]]:
        seen: list[list[int]] = []
        rollout(
            speaker,
            pools[workers],
            EchoWorld(),
            of,
            1,
            config,
            seed=3,
            meanwhile=lambda over: seen.append([t.request for t in over]),
        )
        return seen

    seen = calls(0)
    assert seen == calls(2)
    assert seen[0] == [] and 2 <= len(seen[-1]) < 5
    assert all(later[: len(before)] == before for before, later in zip(seen, seen[1:], strict=False))


def test_the_cache_ends_an_action_on_its_last_slot(play) -> None:
    """Case 8: 8 + 4 + 8 + 4 tokens fill a cache of 24 to the last one, and no other turn begins."""
    played = play(tasks([8, 8, 8, 8]), 3, length_buckets=(16, 24))
    for trajectory in played:
        assert len(trajectory.tokens) <= 24
        full = len(trajectory.steps) == 2 and trajectory.steps[1].end == 24
        assert trajectory.truncated or not full
    assert any(t.truncated for t in played)
    room = play(tasks([8, 8, 8, 8]), 3)
    for cut, whole in zip(played, room, strict=True):
        assert whole.tokens[: len(cut.tokens)] == cut.tokens


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple]:
    calls, original = [], getattr(slots, name)

    def count(*args: Any) -> Any:
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(slots, name, count)
    return calls


def test_a_finished_episodes_slot_is_refilled_at_once(play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slots, six episodes of 4, 1, 1, 1, 2 and 1 turns: four calls of decode, not as many as two loads would take."""
    of = tasks([5] * 5, [5] * 2, [5] * 2, [5] * 2, [5] * 3, [5] * 2)
    decoded = counted(monkeypatch, "decode")
    played = play(of)
    assert [len(t.steps) for t in played] == [4, 1, 1, 1, 2, 1]
    assert [int((args[3].budget > 0).sum()) for args in decoded] == [3, 3, 3, 1]


def test_rollouts_of_a_task_share_the_reading_of_its_prompt(play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that begin later: seven rollouts of two tasks in three slots read two prompts."""
    read = counted(monkeypatch, "extend")
    play(tasks([7, 1]), 7)
    prompts = [args[4] for args in read if args[2].capacity == CONFIG.turn_buckets[-1]]
    assert [count.tolist() for count in prompts] == [[7, 0, 0]]
    read.clear()
    play(tasks([7, 1], [6, 1]), 3)
    prompts = [args[4] for args in read if args[2].capacity == CONFIG.turn_buckets[-1]]
    assert [count.tolist() for count in prompts] == [[7, 0, 0], [6, 0, 0]]


def test_one_group_decodes_while_the_environments_of_the_other_step(
    play, pools: dict[int, EnvironmentPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    for name in ("submit_step", "collect"):
        original = getattr(EnvironmentPool, name)

        def note(pool: Any, argument: Any, name: str = name, original: Any = original) -> Any:
            events.append((name, frozenset(x if isinstance(x, int) else x[0] for x in argument)))
            return original(pool, argument)

        monkeypatch.setattr(EnvironmentPool, name, note)
    original = slots.decode

    def note_decode(*args: Any) -> Any:
        events.append(("decode", frozenset()))
        return original(*args)

    monkeypatch.setattr(slots, "decode", note_decode)
    of = tasks(*[[5] * 4] * 6)
    both = play(of, workers=2, groups=2)
    hidden = 0
    for i, (name, seats) in enumerate(events):
        if name == "submit_step":
            until = next(j for j in range(i, len(events)) if events[j] == ("collect", seats))
            hidden += any(event == "decode" for event, _ in events[i:until])
    assert hidden >= 5  # of the six steps, all but the last
    monkeypatch.undo()
    assert_same(both, play(of))


def test_async_rollout_drops_finished_groups(play) -> None:
    """Case 20: groups that end at different times give back all of their episodes, in order."""
    of = tasks([5, 1], [5, 1, 1, 1, 1], [4, 1], [3, 1])
    played = play(of, 2, groups=2, workers=2)
    assert [(t.task.id, t.rollout) for t in played] == [(task.id, j) for task in of for j in range(2)]
    assert [len(t.steps) for t in played] == [1, 1, 4, 4, 1, 1, 1, 1]


def test_an_exception_in_a_group_leaves_the_trainer_waiting_forever(play) -> None:
    """Case 21: it is raised, though the other group's environments are at work, and the pool is free again."""

    class Broken(EchoWorld):
        def render(self, observation: Observation, task: Task, first: bool) -> str:
            if not first and task.id == "t3":
                raise ArithmeticError("a bug in the rendering")
            return super().render(observation, task, first)

    of = tasks(*[[5, 2, 2]] * 6)
    with pytest.raises(ArithmeticError, match="a bug in the rendering"):
        play(of, world=Broken(), workers=2, groups=2)
    assert_same(play(of, workers=2, groups=2), play(of))


def test_the_cache_is_a_budget(play, speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of TINY takes 2 arrays x 2 layers x 2 heads x 8 x 4 bytes x 48 tokens = 12,288 bytes."""
    config = dataclasses.replace(CONFIG, batch_buckets=(1, 2, 3))
    for mb, groups, rows in [(0.0, 1, 3), (0.0368, 1, 2), (0.0369, 1, 3), (0.03, 2, 1)]:
        assert group_rows(dataclasses.replace(config, cache_mb=mb, groups=groups), speaker.model) == rows
    with pytest.raises(ValueError, match=r"cache_mb=0.01 does not hold the smallest batch, 0.0123 MB"):
        group_rows(dataclasses.replace(config, cache_mb=0.01), speaker.model)
    of = tasks(*[[5, 2, 2]] * 3)
    decoded = counted(monkeypatch, "decode")
    small = play(of, cache_mb=0.0369, batch_buckets=(3, 6))
    assert {args[3].budget.shape for args in decoded} == {(3,)}
    assert_same(small, play(of))


def test_limits_that_make_no_sense_are_named() -> None:
    for limits, message in [
        ({"groups": 0}, "sampler.groups=0"),
        ({"top_k": -1}, "sampler.top_k=-1"),
        ({"top_p": 1.5}, "sampler.top_p=1.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            SamplerConfig(**limits)


def test_a_stop_string_is_cut_at_the_token_that_completes_it(
    play, speaker: Speaker, stacked: Params, model: ModelConfig
) -> None:
    """Split over two tokens, since a token is a letter here; the next turn goes on behind the cut."""
    letters = speaker._replace(dialogue=Ids(letters=True))
    of = tasks([5, 3, 3], [4, 3, 3])
    free = play(of, speaker=letters, world=LetterWorld())
    first = next(t.steps[0] for t in free if len(t.steps[0].response) >= 3)
    string = first.response[:2]
    cut = play(of, speaker=letters, world=LetterWorld(), stop=("never", string))
    seen = 0
    for trajectory in cut:
        for step in trajectory.steps:
            assert step.end - step.start == len(step.response)
            assert string not in step.response[:-1]
            seen += step.response.endswith(string)
        expected = full_logprobs(stacked, model, trajectory)
        sampled = [i for step in trajectory.steps for i in range(step.start, step.end)]
        np.testing.assert_allclose(
            np.array(trajectory.logprobs)[sampled], expected[np.array(sampled) - 1], rtol=1e-4, atol=1e-4
        )
    assert seen


def test_top_k_and_top_p_are_recorded_so_that_the_trainer_finds_the_softmax(
    play, stacked: Params, model: ModelConfig
) -> None:
    """Cases 12 and 13."""
    played = play(tasks([5, 3, 3], [4, 3, 3]), top_k=20, top_p=0.8)
    for trajectory in played:
        segment = trajectory.segments[0]
        sampled = np.array([i for step in trajectory.steps for i in range(step.start, step.end)])
        kept, logprobs = np.array(segment.kept), np.array(segment.logprobs)
        assert (kept[sampled] < 0).all() and not np.delete(kept, sampled).any()
        expected = full_logprobs(stacked, model, trajectory)[sampled - 1]
        np.testing.assert_allclose(np.array(segment.full_logprobs)[sampled], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(logprobs[sampled], expected - kept[sampled], rtol=1e-4, atol=1e-4)


def test_each_new_budget_or_temperature_recompiles_nothing(play) -> None:
    """Nor do other numbers of episodes, lengths, stop strings or cuts within the buckets."""
    programs = (decode, extend, select, place)
    play(tasks([8, 8, 8, 8], [2, 2, 2, 2], [8, 1]), 3)
    play(tasks([8, 8, 8, 8], [2, 2, 2, 2], [8, 1]), 3, groups=2)
    compiled = [program._cache_size() for program in programs]
    play(tasks([3, 0, 7, 2], [1, 5]), 2, temperature=0.0)
    play(tasks([6, 2]), 3, temperature=1.7, top_k=3, top_p=0.5, groups=2)
    play(tasks([6, 2, 1, 1]), 1, first=70)
    assert [program._cache_size() for program in programs] == compiled
