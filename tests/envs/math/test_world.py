"""The mathematics world: answers in boxes, and Python to compute them with."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from rlanything_jax.envs.base import Observation, Refused
from rlanything_jax.envs.math.env import MathEnv
from rlanything_jax.envs.math.question import Question
from rlanything_jax.envs.math.world import MathWorld
from rlanything_jax.envs.registry import world_maker
from rlanything_jax.tasks.task import Task

QUESTION = Question("gsm8k/1", "What is 6 times 7?", "42", "6 * 7 = 42\n#### 42", "gsm8k", "MIT")


def play(*responses: str, max_steps: int = 3, tool: bool = False) -> list[Observation]:
    environment = MathEnv(QUESTION, max_steps, tool=tool)
    return [environment.reset(), *(environment.step(response) for response in responses)]


def call(code: str) -> str:
    return f"I compute it.\n```python\n{code}\n```"


@pytest.mark.parametrize(
    ("response", "won"),
    [
        ("So \\boxed{42}.", True),
        ("First \\boxed{41}, no, \\boxed{42.0}", True),  # the last box counts
        ("\\boxed{42} or \\boxed{41}", False),
        ("\\boxed{}", False),
        ("\\boxed{\\text{42}}", True),
    ],
)
def test_the_answer_in_the_last_box_ends_the_episode(response: str, won: bool) -> None:
    start, end = play(response)
    assert start == Observation("What is 6 times 7?", (), 0.0, False, False)
    assert (end.won, end.score, end.done) == (won, float(won), True)
    assert end.info == {"admissible": True, "label": 1 if won else -1}


def test_a_response_without_a_box_is_inadmissible_and_may_be_followed_by_another() -> None:
    _, first, second = play("It is 42.\n#### 42", "\\boxed{42}")
    assert not first.info["admissible"] and "label" not in first.info and not first.done
    assert first.text == "There is no answer in a box." and second.won
    _, only = play("It is 42.", max_steps=1)
    assert only.done and not only.won


@pytest.mark.usefixtures("sandbox")
def test_a_tool_call_is_run_and_its_output_is_read() -> None:
    _, shown, end = play(call("print(6 * 7)"), "\\boxed{42}", tool=True)
    assert shown.text == "Output:\n42" and shown.info == {"admissible": True} and not shown.done
    assert end.won
    _, failed, quiet = play(call("print('ü')\n1 / 0"), call("x = 1"), tool=True)
    assert failed.text.startswith("Output:\nü\nErrors:\nTraceback") and failed.text.endswith(
        "ZeroDivisionError: division by zero\nThe program ended with: error"
    )
    assert quiet.text == "The program wrote nothing."


@pytest.mark.usefixtures("sandbox")
def test_a_tool_is_limited_in_time_output_and_number() -> None:
    _, long, last = play(call("for i in range(10**6): print(i)"), call("print(1)"), max_steps=2, tool=True)
    assert len(long.text) < 700 and long.text.endswith("The program ended with: output")
    assert last.done and not last.won


@pytest.mark.usefixtures("sandbox")
def test_a_tool_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlanything_jax.envs.math.env._TIME_S", 0.5)
    _, after = play(call("print(1, flush=True)\nwhile True: pass"), tool=True)
    assert after.text == "Output:\n1\nThe program ended with: timeout"


@pytest.mark.parametrize(
    "response",
    [
        call("print(1)") + "\nThat is how.",  # it goes on
        "```\nprint(1)\n```",
        "```json\n1\n```",
        "print(1)",
        "```python\nprint(1)",
    ],
)
def test_what_does_not_end_in_a_block_of_python_is_no_tool_call(response: str) -> None:
    _, after = play(response, tool=True)
    assert not after.info["admissible"] and after.text == "There is no answer in a box."


def test_without_tools_nothing_is_run_and_with_a_box_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlanything_jax.envs.math.env._run", None)
    _, after = play(call("print(1)"))
    assert not after.info["admissible"]
    _, after = play("\\boxed{42}\n" + call("print(1)"), tool=True)
    assert after.won


def test_an_episode_is_over_when_it_is_over() -> None:
    environment = MathEnv(QUESTION, 1, labels=False)
    with pytest.raises(RuntimeError, match="gsm8k/1 is over or was not begun"):
        environment.step("\\boxed{42}")
    environment.reset()
    assert environment.step("\\boxed{42}").info == {"admissible": True}
    with pytest.raises(RuntimeError, match="call reset"):
        environment.step("\\boxed{42}")
    with pytest.raises(ValueError, match="max_steps=0"):
        MathEnv(QUESTION, 0)


# The world.


@pytest.fixture
def world(prepare_data: Callable[[str], Path]) -> MathWorld:
    folder = str(prepare_data("gsm8k"))
    sources = {"train": "gsm8k:train[:4]", "valid_seen": "gsm8k:test[:2]", "valid_unseen": "gsm8k:test[2:4]"}
    return MathWorld(data=folder, sources=sources, tool=True, max_steps=2)


def test_tasks_are_questions_of_a_data_set(world: MathWorld) -> None:
    tasks = [task for split in ("train", "valid_seen", "valid_unseen") for task in world.tasks(split)]
    assert (
        len(tasks)
        == len({task.id for task in tasks})
        == len({world.fingerprint(task) for task in tasks})
        == 8
    )
    task = Task.from_json(json.loads(json.dumps(tasks[0].to_json())))
    environment = pickle.loads(pickle.dumps(world)).environment(task)
    start = environment.reset()
    assert start.text == task.instruction
    prompt = world.render(start, task, True)
    assert prompt.startswith(task.instruction) and "\\boxed{}" in prompt and "```python" in prompt
    answer = environment.question.answer
    assert answer not in prompt.removeprefix(task.instruction)
    response = f"<think>\\boxed{{7}}</think>\\boxed{{{answer}}}"
    assert environment.step(world.action(response, start)).won


def test_tools_are_offered_where_they_can_be_used(world: MathWorld) -> None:
    start = Observation("1 + 1?", (), 0.0, False, False)
    (task, *_) = world.tasks("train")
    offered = [
        "```python" in MathWorld(tool=tool, max_steps=steps).render(start, task, True)
        for tool, steps in ((True, 2), (True, 1), (False, 2))
    ]
    assert offered == [True, False, False]


def test_tasks_are_not_rewritten(world: MathWorld) -> None:
    (task, *_) = world.tasks("train")
    with pytest.raises(Refused, match="math tasks are not rewritten"):
        world.rewrite(task, "harder", ())
    with pytest.raises(ValueError, match="set config.adapt_tasks=False"):
        world.rewrite_prompt(task, "harder", "")
    assert world.second_prompt(task, "") == world.edit("x") == ""


def test_there_is_no_warm_start() -> None:
    for build in (
        lambda: world_maker("math", {"style": "words"})(),
        MathWorld().corpus,
        lambda: MathWorld().teacher(0.1),
    ):
        with pytest.raises(ValueError, match="math has no warm start: set config.checkpoint"):
            build()


def test_a_programming_problem_is_no_question(prepare_data: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match="'mbpp' holds a Problem, and this world plays a Question"):
        MathWorld(data=str(prepare_data("mbpp")), sources={"train": "mbpp:train"}).tasks("train")
