"""Demonstrations for generated functions, for a warm start that stands for pretraining: programs, tests and rewrites, in words.

They are imperfect on purpose: who imitates them takes one step for another, tries trivial inputs and slips when it computes what
comes out, each about as often as `noise` says, so that there is something left to learn.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlanything_jax.envs.base import Demonstration, Observation, Refused
from rlanything_jax.envs.code import words
from rlanything_jax.envs.code.functions.edit import apply, build
from rlanything_jax.envs.code.functions.function import INPUTS, Function, Step, chain, mistakes, small, write
from rlanything_jax.envs.code.functions.generate import Knobs, draw_step
from rlanything_jax.tasks.task import Task

if TYPE_CHECKING:
    from rlanything_jax.envs.code.world import CodeWorld


class CodeTeacher:
    """Who demonstrates the coding world of generated functions.

    noise: the chance that a line of its programs is a mistake, that a step of a test's reasoning goes wrong, and half the chance
    that a test's input is trivial.
    """

    def __init__(self, world: CodeWorld, noise: float) -> None:
        self._world = world
        self._noise = noise

    def task(self, rng: random.Random) -> Task:
        return self._world.generated("train", rng.randrange(10**5, 10**6))

    def play(self, task: Task, rng: random.Random) -> list[Demonstration]:
        """Writes programs until one passes the public tests, at most as many as the world allows."""
        function = build(task.spec)
        problem = function.problem
        public = [(ast.literal_eval(test.input[2:-1]), test) for test in problem.tests if test.public]
        observation = Observation(problem.statement, (), 0.0, False, False)
        turns: list[Demonstration] = []
        while not observation.done:
            steps = disturb(function.ops, rng, self._noise)
            turns.append(Demonstration(self._world.render(observation, task, not turns), write(steps)))
            failed = tuple((test, "") for x, test in public if repr(chain(steps, x)[-1]) != test.output)
            done = not failed or len(turns) == self._world.max_steps
            observation = Observation("", (), 0.0, not failed, done, {"failed": failed})
        return turns

    def test(self, task: Task, rng: random.Random) -> tuple[str, str]:
        """Returns (what the test writer reads, the test it writes)."""
        function = build(task.spec)
        lazy = rng.random() < min(1.0, 2 * self._noise)
        inputs = INPUTS[function.argument]
        x = inputs[0] if lazy else rng.choice(inputs)
        return self._world.test_prompt(task), words.written(reason(function.ops, x, rng, self._noise))

    def rewrite(self, task: Task, direction: str, rng: random.Random) -> tuple[str, str] | None:
        edit = edit_towards(task, direction, rng)
        if edit is None:
            return None
        test = rng.choice(build(task.spec).problem.tests)
        share = rng.randrange(75, 101) if direction == "harder" else rng.randrange(26)
        critique = f"{test.input!r} -> {test.output!r}: {share}% of the programs pass"
        return self._world.rewrite_prompt(task, direction, critique), edit


def disturb(steps: Sequence[Step], rng: random.Random, noise: float) -> list[Step]:
    """The steps, each a mistake with probability `noise`."""
    disturbed: list[Step] = []
    for step in steps:
        kinds = mistakes(step) if rng.random() < noise else []
        disturbed += rng.choice(rng.choice(kinds)) if kinds else (step,)
    return disturbed


def reason(steps: Sequence[Step], x: Any, rng: random.Random, noise: float) -> list[Any]:
    """The value before and after every step, each computed wrongly, and the rest from there, with probability `noise`."""
    while True:
        values = [x]
        for step in steps:
            wrong = _slips(step, values[-1]) if rng.random() < noise else []
            values.append(rng.choice(wrong) if wrong else step.apply(values[-1]))
        if all(map(small, values)):  # a slip may lead out of the grammar's range, later
            return values


def _slips(step: Step, x: Any) -> list[Any]:
    """Wrong results of a step: what a mistake for it gives, and what is nearly right."""
    right = step.apply(x)
    taken = [chain(mistake, x)[-1] for kind in mistakes(step) for mistake in kind]
    near: list[Any] = [right - 1, right + 1] if isinstance(right, int) else [right[:-1], right[1:]]
    return [value for value in (*taken, *near) if value != right and small(value)]


def edit_towards(task: Task, direction: str, rng: random.Random) -> str | None:
    """An edit that should make a function 'easier' or 'harder', drawn from those that can be made; None where none can."""
    function = build(task.spec)
    knobs = Knobs(**{k: v for k, v in task.spec["generate"].items() if k not in ("seed", "split")})
    candidates = _easier(function) if direction == "easier" else _harder(function, rng, knobs)
    rng.shuffle(candidates)
    for candidate in candidates:
        try:
            apply(task.spec, candidate)
        except Refused:
            continue
        return candidate
    return None


def _easier(function: Function) -> list[str]:
    """One step less, or an example."""
    return ["example on", *(f"drop {i + 1}" for i in range(len(function.ops)))]


def _harder(function: Function, rng: random.Random, knobs: Knobs) -> list[str]:
    """One step more, or no example."""
    last = function.ops[-1]
    drawn = [draw_step(rng, last.op.gives, last, knobs) for _ in range(4)]
    return ["example off", *(f"append: {step.sentence}" for step in drawn if step)]
