"""The teacher: right where it is not disturbed, and wrong about as often as it is told to be."""

import ast
import random
from typing import Any

import pytest

from rlanything_jax.envs.base import Refused
from rlanything_jax.envs.code.functions import build, edit
from rlanything_jax.envs.code.functions.function import chain
from rlanything_jax.envs.code.functions.teacher import CodeTeacher, disturb, edit_towards, reason
from rlanything_jax.envs.code.problem import Problem, Test
from rlanything_jax.envs.code.words import parse_test
from rlanything_jax.envs.code.world import CodeWorld

TASKS = 300


@pytest.fixture(scope="module")
def world() -> CodeWorld:
    return CodeWorld(problems={"train": 4, "valid_seen": 0, "valid_unseen": 0})


def passes(program: str, test: Test) -> bool:
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    return repr(eval(test.input, namespace)) == test.output


def solves(program: str, problem: Problem) -> bool:
    return all(passes(program, test) for test in problem.tests if not test.public)


def test_tasks_are_training_tasks_outside_the_pool(world: CodeWorld) -> None:
    teacher, rng = CodeTeacher(world, 0.0), random.Random(0)
    pool = {task.id for task in world.tasks("train")}
    for _ in range(20):
        task = teacher.task(rng)
        assert build(task.spec).split == "train" and task.id not in pool
    assert world.teacher(0.0).task(random.Random(0)) == teacher.task(random.Random(0))


def test_undisturbed_it_writes_right_programs_and_true_tests_on_inputs_of_all_kinds(world: CodeWorld) -> None:
    teacher, rng = CodeTeacher(world, 0.0), random.Random(0)
    inputs = set()
    for _ in range(60):
        task = teacher.task(rng)
        function = build(task.spec)
        start = world.environment(task).reset()
        (turn,) = teacher.play(task, rng)
        assert turn == (world.render(start, task, True), function.program)
        prompt, text = teacher.test(task, rng)
        written = parse_test(function.problem, text)
        assert prompt == world.test_prompt(task) and written
        assert passes(function.program, written.test)
        inputs.add(written.test.input)
    assert len(inputs) > 40


@pytest.mark.parametrize(("noise", "low", "high"), [(0.25, 0.3, 0.5), (0.5, 0.05, 0.3)])
def test_disturbed_programs_pass_as_rarely_as_they_should(
    world: CodeWorld, noise: float, low: float, high: float
) -> None:
    teacher, rng = CodeTeacher(world, noise), random.Random(0)
    tasks = [teacher.task(rng) for _ in range(TASKS)]
    rate = sum(solves(teacher.play(task, rng)[0].action, world.problem(task)) for task in tasks) / TASKS
    assert low < rate < high


def test_disturbed_tests_are_lazy_half_the_time_and_often_false(world: CodeWorld) -> None:
    teacher, rng = CodeTeacher(world, 0.25), random.Random(0)
    lazy = true = 0
    for _ in range(TASKS):
        task = teacher.task(rng)
        written = parse_test(world.problem(task), teacher.test(task, rng)[1])
        assert written
        lazy += written.test.input in ("f(0)", "f('')", "f([])")
        true += passes(build(task.spec).program, written.test)
        values = written.reasoning.removeprefix("try ").split(" -> ")
        assert len(values) == len(build(task.spec).ops) + 1
    assert 0.45 < lazy / TASKS < 0.6
    assert 0.4 < true / TASKS < 0.75


def test_reasoning_goes_on_from_what_went_wrong() -> None:
    function = build(
        {"generate": {"seed": 0, "split": "train", "types": ["int"], "steps": [3, 3], "largest": 3}}
    )
    rng = random.Random(0)
    assert reason(function.ops, 4, rng, 0.0) == chain(function.ops, 4)
    carried = 0
    for _ in range(200):
        values = reason(function.ops, 4, rng, 0.3)
        slips = [step.apply(x) != y for step, x, y in zip(function.ops, values[:-1], values[1:], strict=True)]
        carried += slips == [True, False, False]
    assert carried > 10


def test_every_step_is_disturbed_where_the_noise_is_one() -> None:
    function = build({"generate": {"seed": 1, "split": "train"}})
    for seed in range(20):
        disturbed = disturb(function.ops, random.Random(seed), 1.0)
        assert not {step.key for step in function.ops} <= {step.key for step in disturbed}
        assert len(disturbed) <= len(function.ops)
    assert disturb(function.ops, random.Random(0), 0.0) == list(function.ops)


def test_where_it_may_try_again_it_repairs_what_fails_the_public_tests() -> None:
    world = CodeWorld(max_steps=3)
    teacher, rng = CodeTeacher(world, 0.3), random.Random(0)
    repaired = 0
    for _ in range(60):
        task = teacher.task(rng)
        public = [test for test in world.problem(task).tests if test.public]
        turns = teacher.play(task, rng)
        assert 1 <= len(turns) <= 3
        for turn, after in zip(turns, turns[1:], strict=False):
            failed = [test for test in public if not passes(turn.action, test)]
            assert failed and after.prompt.startswith("Failed: ") and after.prompt.count("->") == len(failed)
        repaired += len(turns) > 1 and all(passes(turns[-1].action, test) for test in public)
    assert repaired > 10


@pytest.mark.parametrize(
    ("direction", "verbs"), [("harder", {"append", "example"}), ("easier", {"drop", "example"})]
)
def test_rewrites_lead_in_the_direction_asked_for(direction: str, verbs: set[str]) -> None:
    world = CodeWorld(kinds=({}, {"example": True}))
    teacher, rng = CodeTeacher(world, 0.25), random.Random(0)
    found = set()
    for _ in range(60):
        task = teacher.task(rng)
        example = teacher.rewrite(task, direction, rng)
        if example is None:
            continue
        prompt, text = example
        assert f"Make it {direction}" in prompt and " met by " in prompt
        before, after = build(task.spec), build(edit.apply(task.spec, text))
        found.add(text.split()[0].rstrip(":"))
        assert (len(after.ops) - len(before.ops), after.example - before.example) == {
            "append": (1, 0),
            "drop": (-1, 0),
            "example on": (0, 1),
            "example off": (0, -1),
        }[text.partition(":")[0] if text.startswith(("append", "example")) else "drop"]
    assert found == verbs


def test_only_edits_that_can_be_made_are_shown(world: CodeWorld) -> None:
    teacher, rng = CodeTeacher(world, 0.25), random.Random(0)
    task = teacher.task(rng)
    for _ in range(20):
        text = edit_towards(task, "harder", rng)
        assert text is None or edit.apply(task.spec, text)
    with pytest.raises(Refused):
        edit.apply(task.spec, "example off")


def test_reads_back_values_of_every_type(world: CodeWorld) -> None:
    teacher, rng = CodeTeacher(world, 0.0), random.Random(0)
    kinds = set()
    for _ in range(60):
        task = teacher.task(rng)
        written = parse_test(world.problem(task), teacher.test(task, rng)[1])
        assert written
        x = ast.literal_eval(written.test.input[2:-1])
        assert repr(build(task.spec)(x)) == written.test.output
        kinds.add(type(x))
    assert kinds == {int, str, list}
