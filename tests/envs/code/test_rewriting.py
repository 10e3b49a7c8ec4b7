"""Rewritten problems: their outputs are those that two programs agree on, or there is no problem."""

import dataclasses
import json
from typing import Any

import pytest

from rlanything_jax.envs.base import Refused
from rlanything_jax.envs.code.grading import grade
from rlanything_jax.envs.code.problem import Problem, Test
from rlanything_jax.envs.code.rewriting import Edit, parse_edit, rewritten

pytestmark = pytest.mark.usefixtures("sandbox")

SQUARES = Problem(
    *("mbpp/7", "Square it.", "call", (Test("f(2)", "4", True), Test("f(3)", "9")), "equal", "f"),
    time_limit=2.0,
    source="mbpp",
    licence="CC-BY-4.0",
)
ADD = Problem("cf/1", "Add two.", "stdio", (Test("1 2\n", "3\n"),), "tokens", time_limit=2.0)
CUBES = {"question": "Cube it.", "inputs": [f"f({i})" for i in (0, 2, -3, 5)], "solution": "def f(x): return x ** 3"}  # fmt: skip
SECOND = "def f(x):\n    return x * x * x"


def edited(problem: Problem = SQUARES, **fields: Any) -> Edit:
    return parse_edit(problem, json.dumps(CUBES | fields))


def rewrite(second: str = SECOND, problem: Problem = SQUARES, **fields: Any) -> Problem:
    return rewritten(problem, edited(problem, **fields), second)


# Agreement.


def test_agreed_outputs_become_the_tests() -> None:
    new = rewrite()
    assert new.tests == tuple(Test(f"f({i})", str(o)) for i, o in ((0, 0), (2, 8), (-3, -27), (5, 125)))
    assert new.statement == "Cube it." and new.solutions == (CUBES["solution"],)
    assert (new.kind, new.entry_point, new.source, new.licence) == ("call", "f", "mbpp", "CC-BY-4.0")
    assert new.id.startswith("mbpp/7#") and new.id == rewrite().id
    assert rewrite(question="Cube x.").id != new.id
    assert all(verdict.passed for verdict in grade(new, SECOND, new.tests))


def test_nothing_of_the_old_tests_is_left() -> None:
    assert not {test.input for test in rewrite(inputs=["f(7)", "f(8)", "f(9)", "f(10)"]).tests} & {
        test.input for test in SQUARES.tests
    }


def test_the_first_disagreement_is_named() -> None:
    with pytest.raises(Refused, match=r"disagrees on 'f\(-3\)': wrong answer: expected '-27', got '27'"):
        rewrite("def f(x): return abs(x) ** 3")


def test_both_programs_must_end_well() -> None:
    with pytest.raises(Refused, match=r"solution fails on 'f\(0\)': error: ZeroDivisionError"):
        rewrite(solution="def f(x): return 1 // x")
    with pytest.raises(Refused, match=r"disagrees on 'f\(5\)': error: ValueError: 5"):
        rewrite("def f(x):\n    if x == 5: raise ValueError(x)\n    return x ** 3")
    with pytest.raises(Refused, match=r"solution fails on 'f\(2\)': timeout"):
        rewrite(solution="def f(x):\n    while x == 2: pass\n    return x")
    with pytest.raises(Refused, match="second solver gave no program"):
        rewrite(" ")


def test_outputs_that_are_all_the_same_test_nothing() -> None:
    with pytest.raises(Refused, match="gives '7' for every input"):
        rewrite("def f(x): return 7", solution="def f(x): return 7")


def test_programs_that_draw_at_random_do_not_agree() -> None:
    random = "import random\ndef f(x): return random.random()"
    with pytest.raises(Refused, match="disagrees"):
        rewrite(random, solution=random + "\n")


@pytest.mark.parametrize("value", ["lambda: x", "float('nan')", "open", "[object()]"])
def test_only_plain_values_can_be_expected(value: str) -> None:
    program = f"def f(x): return {value}"
    with pytest.raises(Refused, match="no plain value"):
        rewrite(program, solution=program)


def test_values_of_many_types_can_be_expected() -> None:
    program = "def f(x): return {(x, 'ü\\n'): [x / 2, None, {x}, b'x', 1j, set()]}"
    assert rewrite(program, solution=program).tests[1].output == (
        "{(2, 'ü\\n'): [1.0, None, {2}, b'x', 1j, set()]}"
    )


def test_programs_that_read_and_write_are_rewritten_too() -> None:
    solution = "a, b = map(int, input().split())\nprint(a / b)"
    fields = {"inputs": ["1 2\n", "2 2\n", "3 4\n", "9 9"], "solution": solution}
    second = "print('%.9f' % eval(input().replace(' ', '/')))"
    new = rewrite(second, ADD, **fields)
    assert new.checker == "float"  # though the old one's outputs were integers
    assert new.tests[0] == Test("1 2\n", "0.5\n")
    with pytest.raises(Refused, match="for every input"):
        rewrite("print()", ADD, **fields | {"solution": "print('  ')"})


def test_assertions_give_way_to_values() -> None:
    asserted = dataclasses.replace(SQUARES, checker="assertion", tests=(Test("f(2)", "assert results[0] == 4"),))  # fmt: skip
    assert rewrite(problem=asserted).checker == "equal"
    json_like = dataclasses.replace(SQUARES, checker="json_equal")
    assert rewrite(problem=json_like).checker == "json_equal"


# The form of an edit.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object"),
        ("Make it cubes.", "not JSON"),
        ("[1]", "must be a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"question": "Cube it."', "not JSON"),
        (json.dumps({"question": "Cube it."}), "'inputs' must be a list, got None"),
        (json.dumps(CUBES | {"question": 7}), "'question' must be a str, got 7"),
        (json.dumps(CUBES | {"question": " "}), "1 to 10000 characters"),
        (json.dumps(CUBES | {"question": "x" * 10_001}), "it has 10001"),
        (json.dumps(CUBES | {"question": "Square\n it. "}), "the statement is what it was"),
        (json.dumps(CUBES | {"solution": "cube it"}), "not Python: SyntaxError"),
        (json.dumps(CUBES | {"solution": ""}), "it is empty"),
        (json.dumps(CUBES | {"inputs": ["f(1)", "f(2)", "f(3)"]}), "4 to 16 different ones, it holds 3"),
        (json.dumps(CUBES | {"inputs": ["f(1)", "f(2)", "f(3)", "f( 1 )"]}), "it holds 3"),
        (json.dumps(CUBES | {"inputs": [f"f({i})" for i in range(17)]}), "it holds 17"),
        (json.dumps(CUBES | {"inputs": ["f(1)", "f(2)", "f(3)", "f(g(4))"]}), "is no call of f"),
        (json.dumps(CUBES | {"inputs": ["1", "2", "3", "4"]}), "'1' is no call of f"),
        (json.dumps(CUBES | {"inputs": [1, 2, 3, 4]}), "must be text of at most 10000 characters, got 1"),
        (json.dumps(CUBES | {"inputs": ["f('" + "x" * 10_000 + "')"] * 4}), "at most 10000"),
    ],
)  # fmt: skip
def test_an_edit_that_is_none_is_refused_and_says_why(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason.replace("(", r"\(")):
        parse_edit(SQUARES, text)


def test_json_that_models_write_is_read() -> None:
    broken_lines = json.dumps(CUBES | {"extra": 1}).replace("Cube it.", "Cube\nit: größe, \\u00fc")
    assert parse_edit(SQUARES, broken_lines).question == "Cube\nit: größe, ü"


def test_a_field_cannot_stand_in_for_another() -> None:
    trap = 'Cube it.", "inputs": [], "solution": "def f(x): return 0'
    assert edited(question=trap) == Edit(trap, tuple(CUBES["inputs"]), CUBES["solution"])
