"""Rewritten problems: a model states a new problem, chooses its inputs and solves it; a second solver confirms the outputs.

Deviation: in the published code the rewriter writes the expected outputs itself, and nothing but the success rate of the
programs checks them. Here two programs, of which the second was written from the new statement alone, must agree on every input.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
from typing import NamedTuple

from rlanything_jax.envs.base import Refused
from rlanything_jax.envs.code.checker import text_checker
from rlanything_jax.envs.code.grading import answers, grade
from rlanything_jax.envs.code.problem import Problem, Test, cut, read_values
from rlanything_jax.envs.code.syntax import called, fault, literal, literal_call

LEAST_INPUTS, MOST_INPUTS = 4, 16
LONGEST = 10_000  # characters of an input or an output, and of a statement


class Edit(NamedTuple):
    """What a rewriter answers: the new statement, inputs of its tests, and a program that solves it."""

    question: str
    inputs: tuple[str, ...]
    solution: str


def parse_edit(problem: Problem, text: str) -> Edit:
    """Reads {"question", "inputs", "solution"} as JSON. Raises Refused, saying what is wrong with it."""
    if not text.strip():
        raise Refused("the answer holds no JSON object")
    try:
        fields = json.loads(text, strict=False)  # models break lines inside strings
    except (ValueError, RecursionError) as error:
        raise Refused(f"the answer is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Refused(f"the answer must be a JSON object, got {cut(text, 80)!r}")
    for name, kind in (("question", str), ("inputs", list), ("solution", str)):
        if not isinstance(fields.get(name), kind):
            raise Refused(f"{name!r} must be a {kind.__name__}, got {cut(repr(fields.get(name)), 80)}")
    question, solution = fields["question"].strip(), fields["solution"]
    if not question or len(question) > LONGEST:
        raise Refused(f"'question' must have 1 to {LONGEST} characters, it has {len(question)}")
    if question.split() == problem.statement.split():
        raise Refused("the statement is what it was")
    if wrong := fault(solution):
        raise Refused(f"'solution' is not Python: {wrong}")
    inputs = tuple(dict.fromkeys(_input(problem, given) for given in fields["inputs"]))
    if not LEAST_INPUTS <= len(inputs) <= MOST_INPUTS:
        raise Refused(
            f"'inputs' must hold {LEAST_INPUTS} to {MOST_INPUTS} different ones, it holds {len(inputs)}"
        )
    return Edit(question, inputs, solution)


def rewritten(problem: Problem, edit: Edit, second: str) -> Problem:
    """The problem that `edit` makes of `problem`, with the outputs that its solution and the program `second` agree on.

    Its tests are its own: none of `problem` is left. Raises Refused where a program fails on an input, where the two disagree,
    and where all outputs are the same.
    """
    if not second.strip():
        raise Refused("the second solver gave no program")
    (given,) = answers([(problem, edit.solution, edit.inputs)])
    outputs = []
    for text, answer in zip(edit.inputs, given, strict=True):
        if answer.fault:
            raise Refused(f"the solution fails on {cut(text, 80)!r}: {answer.fault}")
        outputs.append(_output(problem, text, answer.text))
    if len({tuple(output.split()) for output in outputs}) == 1:
        raise Refused(f"the solution gives {cut(outputs[0], 80)!r} for every input")
    tests = tuple(Test(*pair) for pair in zip(edit.inputs, outputs, strict=True))
    new = dataclasses.replace(
        problem,
        id=_id(problem, edit.question, tests),
        statement=edit.question,
        tests=tests,
        checker=text_checker(outputs)
        if problem.kind == "stdio"
        else "json_equal"
        if problem.checker == "json_equal"
        else "equal",
        solutions=(edit.solution,),
    )
    for test, verdict in zip(tests, grade(new, second, tests), strict=True):
        if not verdict.passed:
            raise Refused(f"the second solver disagrees on {cut(test.input, 80)!r}: {verdict.reason}")
    return new


def _input(problem: Problem, given: object) -> str:
    """An input as a test holds it."""
    if not isinstance(given, str) or len(given) > LONGEST:
        raise Refused(f"an input must be text of at most {LONGEST} characters, got {cut(repr(given), 80)}")
    if problem.kind == "stdio":
        return given
    call = literal_call(problem, given)
    if call is None:
        raise Refused(f"{cut(given, 80)!r} is no call of {called(problem)} with literal arguments")
    return call


def _output(problem: Problem, given: str, answer: str) -> str:
    """What the solution gave, as a test holds it."""
    output = answer
    if problem.kind == "call":
        try:
            (value,) = read_values(answer, count=1)
            output = repr(value)
            same = literal(output) is not None and ast.literal_eval(output) == value
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError):
            same = False
        if not same:
            raise Refused(f"the solution returns no plain value for {cut(given, 80)!r}")
    if len(output) > LONGEST:
        raise Refused(
            f"the output for {cut(given, 80)!r} has {len(output)} characters, {LONGEST} are allowed"
        )
    return output


def _id(problem: Problem, statement: str, tests: tuple[Test, ...]) -> str:
    mark = hashlib.sha256(json.dumps([statement, tests], default=dataclasses.astuple).encode()).hexdigest()
    return f"{problem.id.partition('#')[0]}#{mark[:12]}"
