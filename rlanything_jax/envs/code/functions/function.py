"""A generated function: steps of the grammar, as a problem with a reference program and tests that tell it from mistakes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rlanything_jax.envs.code.functions.ops import LETTERS, OPS, Op
from rlanything_jax.envs.code.problem import Problem, Test

MOST_STEPS = 5
LIMIT = 60  # largest absolute value of an integer, at any step
LONGEST = 6  # letters or elements, at any step
OPENINGS = {
    "int": ("Take an integer x.", "Start from an integer x."),
    "str": ("Take a string x.", "Start from a string x."),
    "list": ("Take a list x of integers.", "Start from a list x of integers."),
}
CLOSINGS = ("Return the result.", "Return it.")
EXAMPLE = "\nExample: "
_HIDDEN = (4, 6)  # hidden tests: at least so many, up to so many where fewer do not catch every mistake
_PUBLIC = 2
_COMMONEST = 0.8  # largest share of the inputs that may have the same output


class Step(NamedTuple):
    """An operation in a function: with its constant, and which of its sentences says it."""

    op: Op
    constant: Any
    wording: int = 0

    @property
    def sentence(self) -> str:
        return self.op.sentences[self.wording].replace("{k}", repr(self.constant))

    @property
    def line(self) -> str:
        return self.op.line.replace("{k}", repr(self.constant))

    @property
    def key(self) -> str:
        """What it does, however it is said."""
        return self.op.name if self.constant is None else f"{self.op.name} {self.constant}"

    def apply(self, x: Any) -> Any:
        return self.op.meaning(x, self.constant)


def _inputs() -> dict[str, tuple[Any, ...]]:
    rng = random.Random(0)

    def sequences(items: Sequence[Any]) -> list[tuple[Any, ...]]:
        drawn = [tuple(rng.choices(items, k=length)) for length in (2, 3, 4) for _ in range(5 * length)]
        return list(dict.fromkeys([(), *((item,) for item in items), *drawn]))

    return {
        "int": (0, *(sign * n for n in range(1, 10) for sign in (1, -1))),
        "str": tuple("".join(letters) for letters in sequences(LETTERS)),
        "list": tuple(map(list, sequences(range(7)))),
    }


INPUTS = _inputs()  # that tests are drawn from, by type, the most trivial one first


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of one argument `x`.

    argument: its type, one of `ops.TYPES`. wording: of the first and the last sentence. example: whether the statement shows the
    first public test. split: that it was generated for.
    """

    argument: str
    ops: tuple[Step, ...]
    wording: tuple[int, int] = (0, 0)
    example: bool = False
    split: str = "train"

    def __call__(self, x: Any) -> Any:
        """The meaning: what the function returns, without running its program."""
        return chain(self.ops, x)[-1]

    @property
    def program(self) -> str:
        return write(self.ops)

    @functools.cached_property
    def problem(self) -> Problem:
        """The problem: kind 'call', one call of `f` a test. Equal functions have equal tests."""
        hidden, public = choose_inputs(self.argument, self.ops)
        tests = [
            Test(f"f({x!r})", repr(self(x)), shown)
            for inputs, shown in ((public, True), (hidden, False))
            for x in inputs
        ]
        opening, closing = OPENINGS[self.argument][self.wording[0]], CLOSINGS[self.wording[1]]
        statement = " ".join([opening, *(step.sentence for step in self.ops), closing])
        if self.example:
            statement += f"{EXAMPLE}{tests[0].input} = {tests[0].output}"
        return Problem(
            id=f"functions/{hashlib.sha256(self.key.encode()).hexdigest()[:12]}",
            statement=statement,
            kind="call",
            tests=tuple(tests),
            checker="equal",
            entry_point="f",
            solutions=(self.program,),
            source="functions",
            licence="Apache-2.0",
        )

    @property
    def key(self) -> str:
        """What it does and whether an example is shown, however it is said."""
        return f"{signature(self.argument, self.ops)}{' example' if self.example else ''}"


def signature(argument: str, steps: Sequence[Step]) -> str:
    """Equal for two functions if and only if they take the same steps."""
    return "; ".join([argument, *(step.key for step in steps)])


def write(steps: Sequence[Step]) -> str:
    """The program that takes `steps`."""
    return "\n    ".join(["def f(x):", *(step.line for step in steps), "return x"])


def chain(steps: Sequence[Step], x: Any) -> list[Any]:
    """The input and the value after every step."""
    values = [x]
    for step in steps:
        values.append(step.apply(values[-1]))
    return values


def mistakes(step: Step) -> list[list[tuple[Step, ...]]]:
    """What may be taken for `step`, by kind: siblings, neighbouring constants, and () where it may be left out.

    No mistake changes the type of the value.
    """
    op, k = step.op, step.constant
    siblings: list[tuple[Step, ...]] = [
        (Step(other, constant),)
        for other in OPS.values()
        if other != op and (other.family, other.takes, other.gives) == (op.family, op.takes, op.gives)
        for constant in [k if k in other.constants else other.constants[len(other.constants) // 2]]
    ]
    at = op.constants.index(k)
    neighbours: list[tuple[Step, ...]] = [
        (Step(op, op.constants[i]),) for i in (at - 1, at + 1) if 0 <= i < len(op.constants)
    ]
    nothing: list[tuple[Step, ...]] = [()] if op.takes == op.gives else []
    return [kind for kind in (siblings, neighbours, nothing) if kind]


def flaw(argument: str, steps: Sequence[Step]) -> str:
    """Why these steps make no sensible function, "" where they do."""
    if not 1 <= len(steps) <= MOST_STEPS:
        return f"a function has 1 to {MOST_STEPS} steps, not {len(steps)}"
    types = [argument, *(step.op.gives for step in steps)]
    for step, type in zip(steps, types, strict=False):
        if step.op.takes != type:
            return f"{step.sentence!r} needs a value of type {step.op.takes}, and there is one of type {type}"
    chains = [chain(steps, x) for x in INPUTS[argument]]
    if not all(small(value) for values in chains for value in values):
        return "some values become too large"
    for i, j in itertools.combinations(range(len(steps) + 1), 2):
        if types[i] == types[j] and all(values[-1] == chain(steps[j:], values[i])[-1] for values in chains):
            return f"{' '.join(step.sentence for step in steps[i:j])!r} makes no difference"
    outputs = [repr(values[-1]) for values in chains]
    if max(map(outputs.count, set(outputs))) > _COMMONEST * len(outputs):
        return "nearly all inputs have the same output"
    return ""


def choose_inputs(argument: str, steps: Sequence[Step]) -> tuple[list[Any], list[Any]]:
    """Returns (hidden, public) inputs.

    The hidden ones catch, unless it takes too many of them, every mistake in a single step that any input catches, and every
    program that always returns the same. Ties are drawn by the steps.
    """
    rng = random.Random(signature(argument, steps))
    inputs = rng.sample(INPUTS[argument], len(INPUTS[argument]))
    chains = [chain(steps, x) for x in inputs]
    wrong = [
        [chain([*mistake, *steps[i + 1 :]], values[i])[-1] for values in chains]
        for i, mistake in _mutants(steps)
    ]
    wrong += [[y] * len(inputs) for y in {repr(values[-1]): values[-1] for values in chains}.values()]
    caught = [
        {number for number, outputs in enumerate(wrong) if outputs[i] != values[-1]}
        for i, values in enumerate(chains)
    ]
    left = set().union(*caught)
    hidden: list[int] = []
    least, most = _HIDDEN
    while len(hidden) < least or (left and len(hidden) < most):
        rest = [i for i in range(len(inputs)) if i not in hidden]
        best = max(rest, key=lambda i: (len(caught[i] & left), len(caught[i])))
        hidden.append(best)
        left -= caught[best]
    public = [i for i in range(len(inputs)) if i not in hidden][:_PUBLIC]
    return [inputs[i] for i in hidden], [inputs[i] for i in public]


def _mutants(steps: Sequence[Step]) -> Iterator[tuple[int, tuple[Step, ...]]]:
    for i, step in enumerate(steps):
        for kind in mistakes(step):
            for mistake in kind:
                yield i, mistake


def small(value: Any) -> bool:
    """Whether a value is within LIMIT and LONGEST."""
    if isinstance(value, int):
        return abs(value) <= LIMIT
    return len(value) <= LONGEST and all(isinstance(item, str) or abs(item) <= LIMIT for item in value)
