"""The words of the coding world for chat models: they reason, and put what counts into fenced blocks.

Policy, writer of tests, rewriter and second solver are each asked in one message, as in RLAnything, appendix B; a policy that may
repair its program gets another. What is shown of a test is cut, what is asked is not.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import textwrap
from collections.abc import Iterator

from rlanything_jax.envs.base import Observation, Refused
from rlanything_jax.envs.code.problem import Problem, Test, WrittenTest, calls, cut
from rlanything_jax.envs.code.rewriting import LEAST_INPUTS, MOST_INPUTS, parse_edit
from rlanything_jax.envs.code.syntax import called, fault, literal, literal_call

PHRASES: tuple[str, ...] = ()
LONGEST = 10_000  # characters of each side of a written test
_EXAMPLES = 3  # public tests that a statement is followed by
_CRITIQUE = 4000  # characters of what a rewriter is told about the attempts

SYSTEM = (
    "You are good at programming problems and at testing programs. Think briefly, then answer with exactly the fenced blocks "
    "that you are asked for."
)
QUESTION = ""  # tests, not verdicts, judge a program

_PROGRAM = "Think briefly, then give the whole program in one ```python block."
# A block that the end of the text cuts off counts.
_BLOCK = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_SIDES = {
    side: re.compile(
        rf"Test {side}[\s:*#]*?\n[ \t]*```[^\n`]*\n(?P<body>.*?)^[ \t]*```[ \t]*$",
        re.DOTALL | re.MULTILINE | re.IGNORECASE,
    )
    for side in ("Input", "Output")
}


def render(observation: Observation, problem: Problem, first: bool) -> str:
    """What the policy reads before it writes a program: the problem, or what became of its last program."""
    if first:
        return f"{_stated(problem)}\n\n{_PROGRAM}"
    ask = "" if observation.done else f"\n\nFind the mistake and correct it. {_PROGRAM}"
    return f"{observation.text}{ask}"


def action(response: str) -> str:
    """The program in a response: its last block of Python, else its last unnamed block, else all of it where that is Python."""
    answer = _answer(response)
    blocks = _BLOCK.findall(answer)
    for languages in (("python", "py", "python3"), ("",)):
        if bodies := [body for language, body in blocks if language.lower() in languages]:
            return textwrap.dedent(bodies[-1]).strip("\n")
    return "" if fault(answer) else answer.strip("\n")


def test_prompt(problem: Problem) -> str:
    """What the writer of tests reads."""
    if problem.kind == "stdio":
        sides = "what the program reads", "what a right program writes"
    else:
        sides = f"one call of {called(problem)} with literal arguments", "its value, a Python literal"
    return (
        f"{_stated(problem)}\n\nDo not solve this. Write one test for programs that others wrote. The problem must allow its "
        "input, and its output must be right: a test that a right program fails is worse than none. Other than the examples, "
        "choose an input on which careless programs go wrong. First work the output out step by step, then end with:\n\n"
        f"Test Input:\n```\n{sides[0]}\n```\nTest Output:\n```\n{sides[1]}\n```"
    )


test_prompt.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def parse_test(problem: Problem, text: str) -> WrittenTest | None:
    """The last test in a response, None where there is none that can be run.

    Of a function it must be a call with literal arguments, and the literal that it should return. An empty output is one.
    """
    answer = _answer(text)
    output = _last(_SIDES["Output"].finditer(answer))
    given = output and _last(_SIDES["Input"].finditer(answer, 0, output.start()))
    if not (given and output):
        return None
    read, wrote = (side["body"].removesuffix("\n") for side in (given, output))
    if max(len(read), len(wrote)) > LONGEST:
        return None
    if problem.kind == "stdio":
        test = Test(f"{read}\n" if read else "", wrote)
    else:
        call, value = literal_call(problem, read), literal(wrote)
        if call is None or value is None:
            return None
        test = Test(call, f"assert results[0] == {value}" if problem.checker == "assertion" else value)
    return WrittenTest(test, answer[: given.start()].strip(" \n*#"))


def rewrite_prompt(problem: Problem, direction: str, critique: str, root: Problem | None = None) -> str:
    """What the rewriter reads: the problem, the one that it came from, how the attempts fared, and what to write.

    `critique` is shown to the end of a line.
    """
    came = f"It was made from this one, whose idea it should keep:\n\n{root.statement}\n\n" if root else ""
    shown = critique if len(critique) <= _CRITIQUE else critique[:_CRITIQUE].rpartition("\n")[0]
    if problem.kind == "stdio":
        inputs, form = "each the text that the program reads", "a Python program that reads standard input"
    else:
        inputs = f"each one call of {called(problem)} with literal arguments, as text"
        form = f"Python code that defines {problem.entry_point}"
    return (
        f"Here is a programming problem.\n\n{problem.statement}\n\n{came}Programs that tried it fared like this on its tests:\n"
        f"{shown}\n\nWrite a new problem like it that is {direction}. {_DIRECTIONS[direction]} The statement must say all that a "
        "solver needs to know, without examples; what a program is called and how it is run stays the same. Think first, then "
        'answer with one ```json block that holds an object with three fields: "question", the statement; "inputs", a list of '
        f"{LEAST_INPUTS} to {MOST_INPUTS} different inputs for tests, {inputs}, among them unusual ones; "
        f'"solution", {form} and solves it. The expected outputs will be those of the solution, if somebody who reads the '
        "statement alone gets the same."
    )


def edit(response: str) -> str:
    """The JSON in a rewriter's response: its last block, else all of it where that begins like an object."""
    answer = _answer(response)
    blocks = [body for language, body in _BLOCK.findall(answer) if language.lower() in ("json", "")]
    found = blocks[-1] if blocks else answer
    return found.strip() if found.lstrip().startswith("{") else ""


def second_prompt(problem: Problem, edit: str) -> str:
    """What an independent solver of the rewritten problem reads; "" where the edit is one that will be refused."""
    try:
        question = parse_edit(problem, edit).question
    except Refused:
        return ""
    return f"{_stated(dataclasses.replace(problem, statement=question), examples=False)}\n\n{_PROGRAM}"


_DIRECTIONS = {
    "harder": "Add a condition or a step, or ask for cases that the attempts got wrong.",
    "easier": "Drop a condition or a step, or say more plainly what the attempts got wrong.",
}


def _stated(problem: Problem, *, examples: bool = True) -> str:
    """The problem as a solver and a tester read it."""
    if problem.kind == "stdio":
        form = "a Python program that reads standard input and writes standard output"
    elif (name := called(problem)) == problem.entry_point:
        form = f"a Python function `{name}`"
    else:
        form = f"Python code that can be called as `{name}(...)`"
    public = [test for test in problem.tests if test.public][:_EXAMPLES] if examples else []
    return "\n\n".join(
        [
            f"The problem asks for {form}.",
            problem.statement.strip(),
            *(_example(problem, test) for test in public),
        ]
    )


def _example(problem: Problem, test: Test) -> str:
    if problem.kind == "stdio":
        return f"Example input:\n{cut(test.input)}\nExample output:\n{cut(test.output)}"
    if problem.checker == "assertion":
        return f"Example: with results = [{', '.join(map(cut, calls(test.input)))}]\n{cut(test.output)}"
    return f"Example: {cut(test.input)} == {cut(test.output)}"


def _answer(response: str) -> str:
    """What follows the model's thoughts."""
    return response.rpartition("</think>")[2]


def _last(found: Iterator[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(collections.deque(found, maxlen=1)), None)
