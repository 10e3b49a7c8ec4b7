"""The words around generated functions for word-level models: what policy, test writer and rewriter read and write.

Values are written with blanks, so that every number and every letter is one token: `-3`, `" a b c "`, `[ 3 1 4 ]`. A test is
reasoned about before it is written: the chain holds the value after every step.

    try 4 -> 7 -> 14
    input 4
    output 14
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.code.functions.function import CLOSINGS, EXAMPLE, LIMIT, OPENINGS
from rlanything_jax.envs.code.functions.ops import LETTERS, OPS
from rlanything_jax.envs.code.problem import Problem, Test, WrittenTest
from rlanything_jax.tasks.critique import NO_CRITIQUE

SYSTEM = QUESTION = ""  # the models of these words are trained on them, not told

_PROGRAM, _TEST, _CRITIQUE = "\nProgram:\n", "\nTest:\n", "\nCritique: "
_FAILED, _NO_PROGRAM = "Failed: ", "This is no program."
_MAKE = {direction: f"\nMake it {direction}:\n" for direction in ("harder", "easier")}
_WRITTEN = re.compile(
    r"(?:(?P<reasoning>.*)\n)?input (?P<input>[^\n]+)\noutput (?P<output>[^\n]+)", re.DOTALL
)
_VALUE = re.compile(r"-?\d+|\"[ a-z]*\"|'[ a-z]*'|\[ *(-?\d+(,? +-?\d+)*)? *\]")


def show(value: Any) -> str:
    """A value in these words. Inverse of `read`."""
    if isinstance(value, str):
        return " ".join(['"', *value, '"'])
    if isinstance(value, list):
        return " ".join(["[", *map(str, value), "]"])
    return str(value)


def read(text: str) -> Any:
    """The integer, string or list that `text` writes, in these words or in Python's. ValueError where it writes none."""
    text = text.strip()
    if not _VALUE.fullmatch(text):
        raise ValueError(f"{text!r} is no integer, string or list of integers")
    text = text.replace(" ", "") if text[0] in "\"'" else re.sub(r"(?<=\d) +(?=[-\d])", ", ", text)
    try:
        return ast.literal_eval(text)
    except SyntaxError as error:  # such as 007
        raise ValueError(f"{text!r} is no literal") from error


def statement(problem: Problem) -> str:
    """The problem's statement, its example in these words."""
    text, mark, _ = problem.statement.partition(EXAMPLE)
    shown = next(test for test in problem.tests if test.public) if mark else None
    return f"{text}{EXAMPLE}{_case(problem, shown)}" if shown else text


def render(observation: Observation, problem: Problem, first: bool) -> str:
    """What the policy reads before it writes a program: the statement, or which examples its last program failed."""
    if first:
        return f"{statement(problem)}{_PROGRAM}"
    if not observation.info.get("admissible", True):
        return f"{_NO_PROGRAM}{_PROGRAM}"
    return f"{_FAILED}{'; '.join(_case(problem, test) for test, _ in observation.info.get('failed', ()))}{_PROGRAM}"


def action(response: str) -> str:
    """The program that a response means: itself."""
    return response


def test_prompt(problem: Problem) -> str:
    """What the test writer reads."""
    return f"{statement(problem)}{_TEST}"


def written(values: Sequence[Any]) -> str:
    """The test with this chain of values, from the input to the output."""
    return f"try {' -> '.join(map(show, values))}\ninput {show(values[0])}\noutput {show(values[-1])}"


def parse_test(problem: Problem, text: str) -> WrittenTest | None:
    """The test in a test writer's text. None where it is malformed or its input is not of the argument's type."""
    found = _WRITTEN.fullmatch(text.strip())
    if not found:
        return None
    try:
        x, y = read(found["input"]), read(found["output"])
    except ValueError:
        return None
    if type(x) is not type(_argument(problem, problem.tests[0])):
        return None
    return WrittenTest(Test(f"{problem.entry_point}({x!r})", repr(y)), (found["reasoning"] or "").strip())


def rewrite_prompt(problem: Problem, direction: str, critique: str) -> str:
    """What the rewriter reads: the statement, which of its tests fewest programs pass, which way to change it."""
    return f"{statement(problem)}{_CRITIQUE}{_hardest(problem, critique)}{_MAKE[direction]}"


def edit(response: str) -> str:
    """The edit that a rewriter's response means: itself."""
    return response


def second_prompt(problem: Problem, edit: str) -> str:
    """What an independent solver of the rewritten problem reads: nothing, since its meaning is computed on this side."""
    return ""


def corpus() -> list[str]:
    """Texts that hold every word of this family."""
    numbers = [f" {number}" for number in range(-LIMIT, 101)]  # values, and percentages
    return [*PHRASES, *numbers, *(f" {letter}" for letter in LETTERS)]


def _argument(problem: Problem, test: Test) -> Any:
    return ast.literal_eval(test.input.removeprefix(f"{problem.entry_point}(").removesuffix(")"))


def _hardest(problem: Problem, critique: str) -> str:
    """Of the problem's own tests, the one that by a critique of `reward.unit_tests` fewest programs pass, and how many do."""
    rates = []
    for test in problem.tests:
        named = re.escape(f"{test.input!r} -> {test.output!r}")
        if found := re.search(rf"^{named}: (\d+)%", critique, re.MULTILINE):
            rates.append((int(found[1]), test))
    if not rates:
        return NO_CRITIQUE
    share, test = min(rates, key=lambda rate: rate[0])
    return f"{_case(problem, test)} met by {share} %"


def _case(problem: Problem, test: Test) -> str:
    return f"{show(_argument(problem, test))} -> {show(ast.literal_eval(test.output))}"


def _pieces(template: str, constants: Iterable[Any]) -> Iterable[str]:
    """The parts of a text around its constants where these are tokens of their own, else the text with each of them."""
    if re.search(r"(?<! )\{k\}", template):
        return [template.replace("{k}", repr(k)) for k in constants]
    return filter(None, template.split(" {k}"))


def _phrases() -> list[str]:
    headings = (EXAMPLE, _PROGRAM, _TEST, _CRITIQUE, _FAILED, _NO_PROGRAM, *_MAKE.values())
    fixed = [
        *(heading.rstrip(" ") for heading in headings),
        "def f(x):",
        "\n    return x",
        f" {NO_CRITIQUE}",
        " met by",
        " %",
    ]
    fixed += ["try", " ->", "\ninput", "\noutput", ' "', " [", " ]", ";"]
    fixed += ["append:", "replace", ":", "drop", "example on", "example off"]
    fixed += [opening for openings in OPENINGS.values() for opening in openings]
    fixed += [f" {closing}" for closing in CLOSINGS]
    fixed += [f" '{letter}'" for letter in LETTERS]
    fixed += [f" {number}" for number in range(-LIMIT, 0)]
    for op in OPS.values():
        for sentence in op.sentences:
            fixed += _pieces(f" {sentence}", op.constants)
        fixed += _pieces(f"\n    {op.line}", op.constants)
    return list(dict.fromkeys(fixed))


# Strings that are one token of a word tokenizer.
PHRASES: Sequence[str] = tuple(_phrases())
