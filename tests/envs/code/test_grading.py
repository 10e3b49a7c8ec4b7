"""Programs and tests in the real sandbox: what passes, what does not, and that it matters not what is graded together."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.data import load
from rlanything_jax.envs.code import grading
from rlanything_jax.envs.code.checker import CheckerError
from rlanything_jax.envs.code.grading import Job, answers, grade, grade_all
from rlanything_jax.envs.code.problem import Answer, Problem, Test
from rlanything_jax.envs.code.sandbox import Program

pytestmark = pytest.mark.usefixtures("sandbox", "nothing_remembered")

SQUARES = Problem(
    *(
        "squares",
        "Square it.",
        "call",
        tuple(Test(f"f({i})", str(i * i + 1000)) for i in range(5)),
        "equal",
        "f",
    ),
    time_limit=2.0,
)
RIGHT = "def f(x):\n    return x * x + 1000"
ECHO = Problem("echo", "", "stdio", (Test("1 2\n", "3\n"), Test("2 2\n", "4\n")), "tokens", time_limit=2.0)


@pytest.fixture
def nothing_remembered() -> None:
    grading._remembered.clear()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many programs each submission to the sandbox held."""
    submitted: list[int] = []
    run_all = grading.run_all

    def counted(programs: list[Program]) -> list:
        submitted.append(len(programs))
        return run_all(programs)

    monkeypatch.setattr(grading, "run_all", counted)
    yield submitted


def passes(program: str, problem: Problem = SQUARES) -> list[bool]:
    return [verdict.passed for verdict in grade(problem, program, problem.tests)]


def test_a_right_program_passes_and_a_wrong_one_fails_where_it_is_wrong() -> None:
    assert passes(RIGHT) == [True] * 5
    assert passes("def f(x):\n    return 2 * x + 1000") == [True, False, True, False, False]
    verdict = grade(SQUARES, "def f(x): return 5", SQUARES.tests[:1])[0]
    assert verdict.reason == "wrong answer: expected '1000', got '5'"


@pytest.mark.parametrize(
    "program",
    [
        "",
        "def f(x): pass",
        "def f(x): return None",
        "def g(x): return x * x + 1000",
        "def f(x:",
        "raise SystemExit(0)",
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "def f(x): return 10**9",
        "f = 1000",
    ],
)
def test_a_program_that_solves_nothing_fails_every_test(program: str) -> None:
    verdicts = grade(SQUARES, program, SQUARES.tests)
    assert not any(verdict.passed for verdict in verdicts)
    assert all(verdict.reason for verdict in verdicts)


FORGED = {
    "json": "import json\ndef f(x):\n print(json.dumps([1000])); print('0 [1000]', flush=True)",
    "exit code 0": "import sys\ndef f(x): sys.exit(0)",
    "an end without a trace": "import os\ndef f(x): os._exit(0)",
    "patched builtins": (
        "import builtins, json, os\nbuiltins.isinstance = builtins.bool = lambda *a: True\n"
        "builtins.int = lambda *a: 7\njson.dumps = lambda *a, **k: '[true]'\ndef f(x): return 3"
    ),
    "an equal of everything": "class A(int):\n def __eq__(s, o): return True\n __hash__ = None\ndef f(x): return A(3)",
    "what is read": "import sys\ndef f(x): return int(sys.stdin.read() or 0)",
    "what the driver holds": (
        "import re, sys\ndef f(x):\n frame, seen = sys._getframe(), ''\n while frame:\n"
        "  seen += repr([frame.f_locals, frame.f_globals]); frame = frame.f_back\n"
        " return next(map(int, re.findall(r'\\b10[0-9][0-9]\\b', seen)), 0)"  # of addresses no part
    ),
    "a wrong answer for all": "import os\ndef f(x):\n [os.write(3, b'\\n%d [1]\\n' % i) for i in range(5)]; os._exit(0)",
    "guesses until one is right": (
        "import os\ndef f(x):\n for i in range(1000, 1020): os.write(3, b'\\n%d [%d]\\n' % (x, i))\n os._exit(0)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", FORGED.values(), ids=FORGED)
def test_a_pass_cannot_be_forged_where_tests_are_tried_together(program: str) -> None:
    assert passes(program) == [False] * 5


def test_no_expected_output_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    run_all = grading.run_all
    monkeypatch.setattr(
        grading, "run_all", lambda ps: seen.extend(f"{p.code} {p.stdin!r}" for p in ps) or run_all(ps)
    )
    secret = dataclasses.replace(SQUARES, tests=tuple(Test(f"f({i})", f"{i}87654321") for i in (1, 2, 3)))
    assert passes(RIGHT, secret) == [False] * 3
    assert seen and not any("87654321" in text for text in seen)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("raise ValueError('no')", "error: ValueError: no"),
        ("raise SystemExit(0)", "error: SystemExit: 0"),
        ("os._exit(0)", "no answer: the program ended before its function returned"),
        ("os._exit(3)", "error"),
        ("while True: pass", "timeout"),
        ("print('x\\n' * (1 << 20))", "output: x"),
        ("return f", "wrong answer: expected '1009', got \"Opaque(type='function', truth=True)\""),
    ],
)
def test_trouble_in_one_call_fails_that_test_alone(trouble: str, reason: str) -> None:
    program = f"import os\ndef f(x):\n    if x == 3:\n        {trouble}\n    return x * x + 1000"
    verdicts = grade(SQUARES, program, SQUARES.tests)
    assert [verdict.passed for verdict in verdicts] == [True, True, True, False, True]
    assert verdicts[3].reason == reason


def test_a_test_finds_no_variable_as_another_left_it(runs: list[int]) -> None:
    counter = (
        "seen = globals().get('seen', [])\ndef f(x, more=[]):\n    seen.append(x); more.append(x)\n"
        "    return x * x + 999 + len(seen) * len(more)"
    )
    assert passes(counter) == [True] * 5
    assert runs == [1]


def test_the_calls_of_one_test_share_what_the_program_holds() -> None:
    twice = dataclasses.replace(
        SQUARES, checker="assertion", tests=(Test("f(1)\nf(1)", "assert results[0] + 1 == results[1]"),)
    )
    assert passes("n = 0\ndef f(x):\n    global n\n    n += 1\n    return n", twice) == [True]


@settings(max_examples=5, deadline=None)
@given(st.permutations(range(5)), st.integers(1, 4))
def test_verdicts_do_not_depend_on_company_or_order(order: list[int], first: int) -> None:
    program = "def f(x):\n    if x == 3: raise SystemExit\n    if x == 4: import os; os._exit(0)\n    return x * x + 1000"
    wanted = dict(enumerate([True, True, True, False, False]))
    grading._remembered.clear()
    tests = [SQUARES.tests[i] for i in order]
    parts = [grade(SQUARES, program, part) for part in (tests[:first], tests[first:])]
    assert [v.passed for part in parts for v in part] == [wanted[i] for i in order]


def test_functions_are_tried_in_one_run_and_programs_in_one_for_each_test(runs: list[int]) -> None:
    job, io = (
        Job(SQUARES, RIGHT, SQUARES.tests),
        Job(ECHO, "print(sum(map(int, input().split())))", ECHO.tests),
    )
    assert [[v.passed for v in of_job] for of_job in grade_all([job, io])] == [[True] * 5, [True] * 2]
    assert runs == [3]


def test_equal_work_is_done_once_and_remembered(runs: list[int]) -> None:
    job = Job(SQUARES, RIGHT, SQUARES.tests)
    other = dataclasses.replace(SQUARES, id="another", tests=tuple(Test(t.input, "7") for t in SQUARES.tests))
    results = grade_all([job, job, Job(other, RIGHT, other.tests)])
    assert [sum(v.passed for v in of_job) for of_job in results] == [5, 5, 0]
    assert runs == [1]
    assert grade(SQUARES, RIGHT, SQUARES.tests) == results[0]
    assert runs == [1]
    assert grade(SQUARES, RIGHT, [*SQUARES.tests, Test("f(9)", "1081")])[-1].passed  # the new one alone
    assert runs == [1, 1]
    assert passes(RIGHT, dataclasses.replace(SQUARES, setup="def f(x): return 0")) == [False] * 5
    assert runs == [1, 1, 1]


def test_memory_of_answers_is_bounded_and_keeps_what_is_used(
    monkeypatch: pytest.MonkeyPatch, runs: list[int]
) -> None:
    monkeypatch.setattr(grading, "REMEMBERED", 3)
    grade(SQUARES, RIGHT, SQUARES.tests[:3])
    grade(SQUARES, RIGHT, SQUARES.tests[:1])
    grade(SQUARES, RIGHT, SQUARES.tests[3:4])
    assert [key[1] for key in grading._remembered] == ["f(2)", "f(0)", "f(3)"]
    assert runs == [1, 1]
    long = dataclasses.replace(ECHO, tests=(Test("", "y"),))
    assert passes("print('x' * 5000)", long) == [False]
    assert len(grading._remembered) == 3 and all(len(a.text) < 100 for a in grading._remembered.values())


def test_answers_are_what_programs_gave() -> None:
    asked = [(SQUARES, "def f(x): return (x, 'é')", ["f(1)"]), (ECHO, "print(input())", ["a\n", ""])]
    (call,), (line, none) = answers(asked)
    assert call == Answer('[{"type": "tuple", "items": [1, "\\u00e9"]}]')
    assert line == Answer("a\n")
    assert none == Answer("", "error: EOFError: EOF when reading a line")


def test_unicode_comes_through_whole() -> None:
    word = "größe \N{SNOWMAN} \u2028 \x0b \\ \" '"
    problem = dataclasses.replace(
        SQUARES, tests=(Test(f"f({word!r})", repr(word[::-1])), Test("f('ß')", "'ß'"))
    )
    assert passes("def f(x): return x[::-1]  # ö", problem) == [True, True]
    io = dataclasses.replace(ECHO, checker="exact", tests=(Test("ö\u2028x\n", "x\u2028ö\n"),))
    assert passes("print(input()[::-1])", io) == [True]


def test_an_endless_loop_on_one_input_costs_its_limit_not_more() -> None:
    problem = dataclasses.replace(SQUARES, time_limit=1.0)
    start = time.monotonic()
    program = "def f(x):\n    while x == 0: pass\n    return x * x + 1000"
    assert passes(program, problem) == [False, True, True, True, True]
    assert time.monotonic() - start < 6


def test_a_failing_checker_is_no_verdict() -> None:
    broken = dataclasses.replace(SQUARES, tests=(Test("f(1)", "no literal"),))
    with pytest.raises(CheckerError, match="squares"):
        grade(broken, RIGHT, broken.tests)


def test_solutions_of_real_problems_pass_and_stubs_fail(prepare_data: Callable[[str], Path]) -> None:
    for name, split in (("mbpp", "train"), ("humaneval", "test")):
        folder = prepare_data(name)
        problems = [load(name, split, folder)[i] for i in range(0, 60, 3)]
        right = grade_all([Job(p, p.solutions[0], p.tests) for p in problems])
        assert all(v.passed for of_job in right for v in of_job)
        stubs = grade_all([Job(p, f"def {p.entry_point}(*args): pass", p.tests) for p in problems])
        assert not any(all(v.passed for v in of_job) for of_job in stubs)
