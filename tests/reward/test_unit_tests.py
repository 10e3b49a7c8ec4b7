"""The writer of unit tests as a reward model: real programs in the real sandbox, texts that a model might write."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlanything_jax.dialogue import Speaker, WordDialogue
from rlanything_jax.envs.code.problem import Problem, Test
from rlanything_jax.envs.code.world import CodeWorld
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.reward import unit_tests
from rlanything_jax.reward.arrays import to_arrays
from rlanything_jax.reward.unit_tests import ProgramWorld, UnitTests
from rlanything_jax.rollouts import Step, Trajectory
from rlanything_jax.sampler.generate import Response
from rlanything_jax.tasks import Task

DIALOGUE = WordDialogue(build_tokenizer(["put a mug"], []))
WRITER = Speaker({}, ModelConfig(300, 8, 1, 1, 1, 8, 8), DIALOGUE)
PROBLEM = Problem(
    id="largest",
    statement="Return the largest item of the list, 0 where it is empty.",
    kind="call",
    tests=(
        Test("f([1])", "1", public=True),
        Test("f([3, 1])", "3"),
        Test("f([-2, -5])", "-2"),
        Test("f([])", "0"),
    ),
    checker="equal",
    entry_point="f",
)
TASK = Task("train/largest", "code", PROBLEM.statement, {"problem": PROBLEM.to_json()})
RIGHT = "def f(x):\n    return max(x, default=0)"
PROGRAMS = [
    RIGHT,
    "def f(x):\n    return max([0, *x])",  # wrong below zero
    "def f(x):\n    return x[0]",  # right where the first one is the largest
    "def f(x): return",
]
CORRECT = [True, False, False, False]


def written(call: str, value: str) -> str:
    return f"I think of this one.\n\nTest Input:\n```\n{call}\n```\nTest Output:\n```\n{value}\n```"


# Catches the second and fourth program, all three, none (it is false, the fourth fails it too); has no output; did not end.
TEXTS = [
    written("f([-1])", "-1"),
    written("f([-3, -1])", "-1"),
    written("f([1, 2])", "1"),
    "Test Input:\n```\nf([1])\n```",
    written("f([5])", "5"),
]
FINISHED = [True, True, True, True, False]
M = len(TEXTS)


@pytest.fixture
def world(sandbox: None) -> CodeWorld:
    return CodeWorld(style="chat")


@pytest.fixture
def model(world: CodeWorld, monkeypatch: pytest.MonkeyPatch) -> UnitTests:
    def generate(
        speaker: Speaker, prompts: Sequence[str], samples: int, **limits: Any
    ) -> list[list[Response]]:
        assert samples == M and all("largest item" in prompt for prompt in prompts)
        end = DIALOGUE.stop[0]
        return [
            [
                Response(text, done, [7 + i, end if done else 8], [-0.5, -0.25])
                for i, (text, done) in enumerate(zip(TEXTS, FINISHED, strict=True))
            ]
            for _ in prompts
        ]

    monkeypatch.setattr(unit_tests, "generate", generate)
    return UnitTests(world, 1.0, 8, (512,), 4, "sequence", "published")


def episode(world: CodeWorld, rollout: int, *programs: str) -> Trajectory:
    """What the environment makes of these programs, one a step."""
    env = CodeWorld(style="chat", max_steps=len(programs)).environment(TASK)
    env.reset()
    trajectory = Trajectory(TASK, rollout, rollout, DIALOGUE)
    for program in programs:
        seen = env.step(program)
        step = Step("", program, program, 0, 0, 1, label=seen.info["label"], passed=seen.info["passed"])
        trajectory.steps.append(step)
        trajectory.won, trajectory.score = seen.won, seen.score
    return trajectory


@pytest.fixture
def episodes(world: CodeWorld) -> list[Trajectory]:
    return [episode(world, i, program) for i, program in enumerate(PROGRAMS)]


def arrays_of(model: UnitTests, episodes: list[Trajectory], steps: int = 1) -> tuple[list, Any]:
    votes = model.votes(WRITER, episodes, M, seed=0)
    return votes, to_arrays(episodes, votes, len(episodes), M, tasks=1, steps=steps)


def test_the_world_is_one_of_programs(world: CodeWorld) -> None:
    assert isinstance(world, ProgramWorld)


def test_every_program_is_voted_on_by_every_test(model: UnitTests, episodes: list[Trajectory]) -> None:
    votes, arrays = arrays_of(model, episodes)
    assert arrays.labels[0, :, 0].tolist() == [1, -1, -1, -1]
    assert arrays.scores[0, :, 0].tolist() == [
        [+1, +1, -1, 0, 0],
        [-1, -1, -1, 0, 0],
        [+1, -1, +1, 0, 0],
        [-1, -1, -1, 0, 0],
    ]
    assert votes[0][0][0].rationale == "I think of this one."
    assert votes[2][0][1].text == TEXTS[1] and votes[2][0][1].logprobs == [-0.5, -0.25]


def test_true_tests_are_rewarded_for_what_they_reject(model: UnitTests, episodes: list[Trajectory]) -> None:
    _, arrays = arrays_of(model, episodes)
    advantage = model.advantage(arrays, arrays.outcome)
    reward = np.array([2, 3, -1, -3, -3])
    expected = (reward - reward.mean()) / reward.std()
    for n in range(len(PROGRAMS)):
        np.testing.assert_allclose(advantage[0, n, 0], expected, rtol=1e-5)


def test_accuracy_and_detect_rate_are_those_of_the_paper(
    model: UnitTests, episodes: list[Trajectory]
) -> None:
    _, arrays = arrays_of(model, episodes)
    measured = model.metrics(arrays)
    assert measured["judge/test_accuracy"] == pytest.approx(2 / 5)
    assert measured["judge/detect_rate"] == pytest.approx(1 / 5)
    assert measured["judge/parse_rate"] == pytest.approx(3 / 5)


def test_without_a_correct_program_nothing_is_known(model: UnitTests, episodes: list[Trajectory]) -> None:
    _, arrays = arrays_of(model, episodes[1:])
    measured = model.metrics(arrays)
    assert "judge/test_accuracy" not in measured and "judge/detect_rate" not in measured
    advantage = model.advantage(arrays, arrays.outcome)[0, 0, 0]
    assert advantage[0] == advantage[1] == advantage[2] > 0 > advantage[3] == advantage[4]


def test_the_tests_are_trained_on_once_a_task(model: UnitTests, episodes: list[Trajectory]) -> None:
    votes, arrays = arrays_of(model, episodes)
    advantage = model.advantage(arrays, arrays.outcome)[0]
    (tree,) = model.sequences(DIALOGUE, episodes, votes, advantage, [2, 0, 3])
    prompt = DIALOGUE.open(model.world.test_prompt(TASK))
    assert tree.trunk.tokens == prompt[:-1] and not any(tree.trunk.weight)
    assert len(tree.branches) == M
    for i, branch in enumerate(tree.branches):
        assert branch.tokens[:2] == [prompt[-1], 7 + i] and branch.point == len(prompt) - 1
        assert branch.weight == [0.0, 0.5, 0.5] and branch.logprobs == [0.0, -0.5, -0.25]
        assert branch.advantage == pytest.approx([0.0, *[advantage[0, 0, i]] * 2])
    assert model.sequences(DIALOGUE, episodes, votes, advantage, []) == []
    assert model.sequences(DIALOGUE, episodes, votes, np.zeros_like(advantage), [0]) == []


def test_repaired_programs_are_programs_too(model: UnitTests, world: CodeWorld) -> None:
    """The first program of the second episode fails the public example; the tests judge both of its steps."""
    pair = [episode(world, 0, RIGHT), episode(world, 1, "def f(x): return 0", RIGHT)]
    assert [len(e.steps) for e in pair] == [1, 2] and pair[1].won
    _, arrays = arrays_of(model, pair, steps=2)
    assert arrays.labels[0].tolist() == [[1, 0], [-1, 1]]
    assert arrays.scores[0, 1, :, :3].tolist() == [[-1, -1, -1], [1, 1, -1]]
    advantage = model.advantage(arrays, arrays.outcome)
    assert not advantage[0, 0, 1].any() and advantage[0, 1, 1].any()


def test_rates_stand_next_to_their_own_tests(model: UnitTests, episodes: list[Trajectory]) -> None:
    """The reference code shows rates against the wrong tests where some are left out."""
    votes, _ = arrays_of(model, episodes)
    lines = model.critique(TASK, episodes, votes, "harder").splitlines()
    assert lines == [
        "'f([3, 1])' -> '3': 75% of the programs pass",
        "'f([-2, -5])' -> '-2': 50% of the programs pass",
        "'f([])' -> '0': 50% of the programs pass",
        "written by a tester, 'f([-1])' -> '-1': 50% pass",
        "written by a tester, 'f([-3, -1])' -> '-1': 25% pass",
        "written by a tester, 'f([1, 2])' -> '1': 25% pass",
    ]


def test_a_lost_episode_says_nothing_of_a_test(model: UnitTests, episodes: list[Trajectory]) -> None:
    lost = Trajectory(TASK, 1, 1, DIALOGUE, error="fault")
    votes, arrays = arrays_of(model, [episodes[0], lost])
    assert votes[1] == [] and not arrays.step_mask[0, 1].any()
    assert len(model.critique(TASK, [episodes[0]], votes[:1], "easier").splitlines()) == 6


def test_a_problem_that_is_too_long_to_read_is_named(
    model: UnitTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_tests, "generate", lambda speaker, prompts, *_, **__: [[] for _ in prompts])
    with pytest.raises(ValueError, match=r"'train/largest' does not fit judge.length_buckets=\(512,\)"):
        model.write(WRITER, [TASK], M, seed=0)
