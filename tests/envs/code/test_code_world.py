"""The coding world: tasks of real data sets and generated ones, tests on programs, rewrites."""

import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlanything_jax.envs.base import Observation, Refused
from rlanything_jax.envs.code.problem import Test
from rlanything_jax.envs.code.world import CodeWorld
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.envs.registry import world_maker
from rlanything_jax.envs.stored import SPLITS
from rlanything_jax.tasks.task import Task

SOURCES = {
    "train": "mbpp:train[:6]",
    "valid_seen": "mbpp:test[10:13]",
    "valid_unseen": "mbpp:validation[88:]",
}
START = Observation("", (), 0.0, False, False)
SAME = {
    "question": "Return it as it is.",
    "inputs": [f"f({i})" for i in range(4)],
    "solution": "def f(x): return x",
}


@pytest.fixture
def generated() -> CodeWorld:
    return CodeWorld(problems={"train": 8, "valid_seen": 3, "valid_unseen": 3}, knobs={"steps": [1, 2]})


@pytest.fixture
def chat(generated: CodeWorld) -> CodeWorld:
    return dataclasses.replace(generated, style="chat", knobs={"steps": [1, 2], "types": ["int"]})


@pytest.fixture
def real(prepare_data: Callable[[str], Path]) -> CodeWorld:
    return CodeWorld(data=str(prepare_data("mbpp")), sources=SOURCES, style="chat", max_steps=2)


# Tasks.


def test_generated_tasks_are_fixed_and_split(generated: CodeWorld) -> None:
    tasks = {split: generated.tasks(split) for split in SPLITS}
    assert {split: len(found) for split, found in tasks.items()} == generated.problems
    assert tasks["train"] == dataclasses.replace(generated).tasks("train")
    assert len({task.id for found in tasks.values() for task in found}) == 14
    assert dataclasses.replace(generated, seed=1).tasks("train") != tasks["train"]
    for task in tasks["valid_unseen"]:
        assert task.instruction == generated.problem(task).statement
        assert task.world == "code" and task.parent is None and task.generation == 0


def test_kinds_are_drawn_by_weight() -> None:
    kinds = [{"types": ["int"], "weight": 3}, {"types": ["str"]}]
    tasks = CodeWorld(problems={"train": 80}, kinds=kinds, knobs={"steps": [1, 1]}).tasks("train")
    types = [task.spec["generate"]["types"] for task in tasks]
    assert 45 < types.count(["int"]) < 75 and types.count(["str"]) == 80 - types.count(["int"])
    assert all(task.spec["generate"]["steps"] == [1, 1] for task in tasks)


def test_real_tasks_name_their_record_and_nothing_more(real: CodeWorld) -> None:
    tasks = {split: real.tasks(split) for split in SPLITS}
    assert [len(found) for found in tasks.values()] == [6, 3, 2]
    (first, *_), (seen, *_) = tasks["train"], tasks["valid_seen"]
    assert first.id == "train/mbpp/601" and first.spec == {"stored": ["mbpp", "train", 0, "mbpp/601"]}
    assert seen.spec["stored"] == ["mbpp", "test", 10, "mbpp/21"]
    assert first.instruction == real.problem(first).statement
    assert len({real.fingerprint(task) for found in tasks.values() for task in found}) == 11


def test_a_task_survives_json_and_a_world_is_pickled(real: CodeWorld) -> None:
    there = pickle.loads(pickle.dumps(real))
    for task in real.tasks("train"):
        again = Task.from_json(json.loads(json.dumps(task.to_json())))
        assert again == task and there.problem(again) == real.problem(task)
    assert there == real and len(pickle.dumps(real)) < 2000


def test_the_first_test_is_public_where_a_data_set_marks_none(prepare_data: Callable[[str], Path]) -> None:
    folder = str(prepare_data("humaneval"))
    world = CodeWorld(data=folder, sources={"train": "humaneval:test[:5]"}, style="chat")
    for task in world.tasks("train"):
        tests = world.problem(task).tests
        assert [test.public for test in tests] == [True] + [False] * (len(tests) - 1)
        hidden = [test for test in tests[1:] if test.output != tests[0].output]
        prompt = world.render(START, task, True)
        assert tests[0].input.splitlines()[0][:50] in prompt
        assert not any(f"{test.input} == {test.output}" in prompt for test in hidden)


def test_a_single_test_stays_hidden(prepare_data: Callable[[str], Path]) -> None:
    folder = str(prepare_data("codeforces"))
    world = CodeWorld(data=folder, sources={"train": "codeforces:train[:1]"}, style="chat")
    (task,) = world.tasks("train")
    (test,) = world.problem(task).tests
    assert not test.public and test.output not in world.render(START, task, True)


# Errors.


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("apps2:train", "no data set 'apps2'; there are humaneval, mbpp"),
        ("mbpp:dev", "mbpp has no split 'dev'; there are"),
        ("mbpp", "cannot be read: write 'SET:SPLIT'"),
        ("mbpp:train[5]", "cannot be read"),
        ("mbpp:train[5:5]", "holds no items: there are 374"),
        ("gsm8k:train", "'gsm8k' holds a Question, and this world plays a Problem"),
    ],
)
def test_a_source_that_is_none_is_named(
    prepare_data: Callable[[str], Path], source: str, message: str
) -> None:
    folder = prepare_data("gsm8k" if "gsm8k" in source else "mbpp")
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        CodeWorld(data=str(folder), sources={"train": source}, style="chat").tasks("train")


def test_a_folder_that_is_not_prepared_names_the_command(tmp_path: Path) -> None:
    world = CodeWorld(data=str(tmp_path), sources=SOURCES, style="chat")
    with pytest.raises(FileNotFoundError, match=r"python -m rlanything_jax.data prepare .*--only=mbpp"):
        world.tasks("train")
    with pytest.raises(ValueError, match="needs world.data"):
        CodeWorld(sources=SOURCES, style="chat").tasks("train")


def test_a_task_of_another_folder_is_not_taken_for_the_same(real: CodeWorld) -> None:
    task = real.tasks("train")[0]
    moved = dataclasses.replace(task, spec={"stored": ["mbpp", "train", 1, "mbpp/601"]})
    with pytest.raises(ValueError, match="is 'mbpp/602', and the task was made from 'mbpp/601'"):
        real.problem(moved)
    gone = dataclasses.replace(task, spec={"stored": ["mbpp", "train", 10_000, "mbpp/601"]})
    with pytest.raises(ValueError, match="is None"):
        real.problem(gone)


def test_splits_and_styles_are_checked(real: CodeWorld) -> None:
    with pytest.raises(ValueError, match="unknown split 'test'"):
        real.tasks("test")
    with pytest.raises(ValueError, match="names no data for 'valid_seen'"):
        dataclasses.replace(real, sources={"train": "mbpp:train"}).tasks("valid_seen")
    with pytest.raises(ValueError, match="style='prose'.*words, chat"):
        CodeWorld(style="prose")
    with pytest.raises(ValueError, match="needs chat models: set config.checkpoint"):
        CodeWorld(sources=SOURCES)
    with pytest.raises(ValueError, match="no warm start: set config.checkpoint"):
        real.teacher(0.1)
    with pytest.raises(ValueError, match="no warm start: set config.checkpoint"):
        real.corpus()


# Play.


@pytest.mark.usefixtures("sandbox")
def test_workers_play_real_tasks_and_a_solution_wins(real: CodeWorld) -> None:
    options = {"data": real.data, "sources": dict(SOURCES), "style": "chat", "max_steps": 2}
    tasks = real.tasks("train")[:3]
    programs = [real.problem(task).solutions[0] for task in tasks]
    make = world_maker("code", options)
    with EnvironmentPool(make, workers=1, step_timeout_s=60, reset_timeout_s=60) as pool:
        starts = pool.reset(list(enumerate(tasks)))
        assert [o.text for o in starts] == [real.problem(task).statement for task in tasks]
        wrong = pool.step(list(enumerate(["def f(", "x = 1", programs[2]])))
        assert [o.done for o in wrong] == [False, False, True] and wrong[2].won
        right = pool.step(list(enumerate(programs[:2])))
        assert all(o.won and o.score == 1.0 and o.info["label"] == 1 for o in right)


def test_nothing_is_read_after_the_last_program(chat: CodeWorld) -> None:
    task = chat.tasks("train")[0]
    assert chat.render(Observation("x", (), 0.0, False, True), task, False) == ""
    assert chat.render(Observation("x", (), 0.0, False, False), task, False).startswith("x\n")
    assert chat.action("```python\nx = 1\n```", START) == "x = 1"


@pytest.mark.usefixtures("sandbox")
def test_written_tests_are_run_on_programs(real: CodeWorld) -> None:
    task = next(task for task in real.tasks("valid_seen") if "mbpp/22" in task.id)
    problem = real.problem(task)
    call = problem.tests[0].input
    text = f"Easy.\n\nTest Input:\n```\n{call}\n```\nTest Output:\n```\n{problem.tests[0].output}\n```"
    written = real.parse_test(task, text)
    assert written and written.reasoning == "Easy."
    tests = [written.test, Test(call, "'no'"), problem.tests[1]]
    stub = f"def {problem.entry_point}(*args): return 'no'"
    passed = real.passes(task, [problem.solutions[0], stub, "def f(", ""], tests)
    assert passed == [[True, False, True], [False, True, False], [False] * 3, [False] * 3]
    assert real.passes(task, [], tests) == [] and real.passes(task, ["x"], []) == [[]]
    assert problem.statement in real.test_prompt(task)


# Rewriting.


def edit(**fields: Any) -> str:
    return json.dumps(SAME | fields)


def solved(program: str) -> str:
    return f"It is easy.\n```python\n{program}\n```"


@pytest.mark.usefixtures("sandbox")
def test_an_agreed_rewrite_is_a_task_with_lineage(chat: CodeWorld) -> None:
    task = chat.tasks("train")[0]
    child = chat.rewrite(task, edit(), (), solved("def f(y):\n    return y"))
    assert child.parent == task.id and child.generation == 1
    assert child.id.startswith(f"{task.id}#") and child.instruction == "Return it as it is."
    again = Task.from_json(json.loads(json.dumps(child.to_json())))
    assert CodeWorld(style="chat").problem(again) == chat.problem(child)
    environment = chat.environment(child)
    environment.reset()
    assert environment.step("def f(x): return x").won
    assert [test.public for test in chat.problem(child).tests] == [True, False, False, False]
    old = chat.problem(task)
    prompt = chat.rewrite_prompt(child, "harder", "")
    assert old.statement in prompt and "Return it as it is." in prompt
    grandchild = chat.rewrite(child, edit(question="Say it."), (), solved("f = lambda x: x"))
    assert grandchild.parent == child.id and grandchild.generation == 2
    assert grandchild.spec["root"] == task.spec and old.statement in chat.rewrite_prompt(
        grandchild, "easier", ""
    )
    assert len({task.id, child.id, grandchild.id}) == 3


@pytest.mark.usefixtures("sandbox")
def test_a_rewrite_that_is_no_new_task_is_refused(chat: CodeWorld) -> None:
    task = chat.tasks("train")[0]
    child = chat.rewrite(task, edit(), (), solved("def f(x): return x"))
    with pytest.raises(Refused, match="already in the pool"):
        chat.rewrite(task, edit(), {chat.fingerprint(child)}, solved("def f(x): return x"))
    with pytest.raises(Refused, match=r"disagrees on 'f\(1\)'"):
        chat.rewrite(task, edit(), (), solved("def f(x): return x * x * 2"))
    with pytest.raises(Refused, match="second solver gave no program"):
        chat.rewrite(task, edit(), ())
    with pytest.raises(Refused, match="no JSON object"):
        chat.rewrite(task, chat.edit("I do not know."), (), "")


@pytest.mark.usefixtures("sandbox")
def test_two_ways_to_the_same_problem_are_one(chat: CodeWorld) -> None:
    first, second = chat.tasks("train")[:2]
    one, other, reworded = (
        chat.rewrite(task, edit(**fields), (), solved("def f(x): return x"))
        for task, fields in ((first, {}), (second, {"question": "Return it\nas it is. "}), (first, {"question": "Say it."}))
    )  # fmt: skip
    assert chat.fingerprint(one) == chat.fingerprint(other) != chat.fingerprint(reworded)


def test_only_a_chat_asks_a_second_solver(chat: CodeWorld, generated: CodeWorld) -> None:
    task = chat.tasks("train")[0]
    assert "Return it as it is." in chat.second_prompt(task, edit())
    assert chat.second_prompt(task, "{}") == ""
    assert generated.second_prompt(generated.tasks("train")[0], "drop 1") == ""


@pytest.mark.usefixtures("sandbox")
def test_a_rewrite_in_words_is_run_before_it_is_a_task(
    generated: CodeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = generated.tasks("train")[0]
    child = generated.rewrite(task, "example on", ())
    assert child.parent == task.id and child.spec == {**task.spec, "edits": ["example on"]}
    assert generated.fingerprint(child) != generated.fingerprint(task)
    with pytest.raises(Refused, match="already in the pool"):
        generated.rewrite(task, "example on", {generated.fingerprint(child)})
    with pytest.raises(Refused):
        generated.rewrite(task, "make it hard", ())
    monkeypatch.setattr(
        "rlanything_jax.envs.code.functions.function.write", lambda steps: "def f(x): return 7"
    )
    with pytest.raises(Refused, match="the reference program fails"):
        generated.rewrite(task, "example on", ())


def test_the_teacher_and_the_corpus_are_those_of_generated_functions(generated: CodeWorld) -> None:
    assert generated.system == generated.question == ""
    assert set(generated.phrases) <= set(generated.corpus())
    assert generated.teacher(0.2) is not None
