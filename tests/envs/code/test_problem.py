"""Programs are run here as they are, not in the sandbox: what a result is worth is decided outside it."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from rlanything_jax.envs.code.problem import (
    Problem,
    RecordError,
    Test,
    Verdict,
    judge,
    no_answer,
    program,
    read_answers,
    read_values,
)

FORGED = {
    "nothing at all": "",
    "exit code 0": "import os\ndef f(x): os._exit(0)",
    "exit code 0 before any call": "import os; os._exit(0)",
    "a raised SystemExit": "def f(x): raise SystemExit(0)",
    "printed sentinels": "def f(x): print('PASSED', 'OK', 4)",
    "an object equal to all": "class All:\n def __eq__(self, o): return True\ndef f(x): return All()",
    "a number equal to all": "class All(int):\n def __eq__(self, o): return True\ndef f(x): return All(3)",
    "a list equal to all": "class All(list):\n def __eq__(self, o): return True\ndef f(x): return All()",
    "patched builtins": (
        "import builtins, json\nbuiltins.all = builtins.isinstance = lambda *a: True\n"
        "json.loads = lambda *a: [4]\ndef f(x): return 3"
    ),
    "a patched driver": "import __main__\n__main__.encoded = lambda v: {'type': 'passed', 'items': []}\ndef f(x): return 3",
    "a type that is not plain": "def f(x): return (x for x in [4])",
    "an answer of its own": "import os\nos.write(3, b'0 [true]')\nos.write(1, b'0 [true]')\ndef f(x): os._exit(0)",
    "an object that is true": "import re\ndef f(x): return re.match('a', 'a')",
    "two answers": "import os\ndef f(x):\n os.write(3, b'0 [12345678]\\n0 [4]\\n'); os._exit(0)",
    "a look at what is expected": (
        "import sys\ndef f(x):\n"
        " frame, seen, wanted = sys._getframe(1), [], '1234' + '5678'\n"
        " while frame:\n  seen += [frame.f_locals, frame.f_globals]; frame = frame.f_back\n"
        " return int(wanted) if wanted in repr(seen) else 0"
    ),
}


def run(source: str, stdin: str) -> SimpleNamespace:
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-S", "-c", source], input=stdin, capture_output=True, text=True)
    status = "ok" if done.returncode == 0 else "error"
    return SimpleNamespace(
        status=status, stdout=done.stdout, stderr=done.stderr, seconds=time.monotonic() - start
    )


def call_problem(output: str = "4", checker: str = "equal", **rest: str) -> Problem:
    return Problem("p1", "", "call", (Test("f(2)", output),), checker, entry_point="f", **rest)


def judge_output(problem: Problem, test: Test, result: SimpleNamespace) -> Verdict:
    (answer,) = read_answers(problem, result, 1)
    return judge(problem, test, answer or no_answer(result))


def judged(problem: Problem, code: str) -> Verdict:
    test = problem.tests[0]
    return judge_output(problem, test, run(*program(problem, code, test.input)))


def ending(stdout: str, status: str = "ok", stderr: str = "") -> SimpleNamespace:
    return SimpleNamespace(status=status, stdout=stdout, stderr=stderr, seconds=0.1)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("def f(x): return x * x", "4"),
        ("def f(x):\n print('[5]'); return x + 2", "4"),
        (
            "def f(x): return (x, [x], {x: 'é'}, {x}, None, b'x', 1j)",
            "(2, [2], {2: 'é'}, {2}, None, b'x', 1j)",
        ),
        ("import collections\ndef f(x): return collections.Counter('aab')", "{'a': 2, 'b': 1}"),
        ("if __name__ == '__main__': f(0)\ndef f(x): return x + 2", "4"),
    ],
    ids=["plain", "prints", "types", "subclass", "main"],
)
def test_a_right_function_passes(code: str, output: str) -> None:
    assert judged(call_problem(output), code) == Verdict(True)


@pytest.mark.parametrize("code", FORGED.values(), ids=FORGED)
def test_a_pass_cannot_be_forged(code: str) -> None:
    verdict = judged(call_problem("12345678"), code)
    assert not verdict.passed
    assert verdict.reason


def test_the_expected_output_does_not_enter_the_sandbox() -> None:
    problem = call_problem("12345678")
    assert "12345678" not in "".join(program(problem, "def f(x): pass", problem.tests[0].input))


def test_preamble_and_setup_surround_the_program() -> None:
    problem = call_problem(preamble="import math", setup="_two = Two()")
    code = "class Two: value = 2\ndef f(x): return math.floor(x + _two.value)"
    assert judged(problem, code).passed


def test_a_failure_says_what_happened() -> None:
    assert judged(call_problem(), "def f(x): return 3").reason == "wrong answer: expected '4', got '3'"
    error = judged(call_problem(), "def f(x):\n    return 1 / 0").reason
    assert error == "error: ZeroDivisionError: division by zero"
    quiet = judged(call_problem(), "import os\ndef f(x): os._exit(0)").reason
    assert quiet == "no answer: the program ended before its function returned"


def test_a_traceback_quotes_the_program() -> None:
    problem = call_problem()
    result = run(*program(problem, "def f(x):\n    return 1 / 0  # here", problem.tests[0].input))
    assert 'File "solution.py", line 2, in f\n    return 1 / 0  # here' in result.stderr


def test_a_program_that_reads_stdin_is_judged_by_its_output() -> None:
    problem = Problem("p2", "", "stdio", (Test("3\n", "9\n"),), "tokens")
    assert judged(problem, "print(int(input()) ** 2)").passed
    assert not judged(problem, "print(int(input()) * 2)").passed
    # Right output, wrong ending.
    assert not judged(problem, "print(9); raise SystemExit(1)").passed


@pytest.mark.parametrize("status", ["timeout", "memory", "output", "signal"])
def test_a_run_that_did_not_end_well_fails_whatever_it_wrote(status: str) -> None:
    problem = Problem("p2", "", "stdio", (Test("3\n", "9\n"),), "tokens")
    assert judge_output(problem, problem.tests[0], ending("9\n", status)) == Verdict(False, status)
    call = call_problem()
    assert judge_output(call, call.tests[0], ending("\n0 [4]\n", status)) == Verdict(False, status)
    assert judge_output(call, call.tests[0], ending("\n0 [4]\n")) == Verdict(True)


def test_of_an_object_that_is_not_plain_its_truth_counts() -> None:
    matched = "import re\ndef f(x): return re.match('a', 'ab'[x - 2:])"
    assert judged(call_problem("assert results[0]", "assertion"), matched).passed
    assert not judged(call_problem("assert results[0] == True", "assertion"), matched).passed
    assert not judged(call_problem("assert not results[0]", "assertion"), matched).passed


def test_200_kb_of_output_is_not_a_timeout() -> None:
    text = "x " * 100_000
    problem = Problem("p3", "", "stdio", (Test("", text),), "tokens")
    assert judged(problem, "print('x ' * 100000)").passed


@pytest.mark.parametrize(
    "stdout",
    [
        "",
        "[",
        "{}",
        "[1, 2]",
        '[{"type": "All", "items": []}]',
        '[{"items": []}]',
        '[{"type": "set", "items": [[]]}]',
        '[{"type": "bytes", "items": "xx"}]',
        "[" * 200 + "]" * 200,
        "[" * 100_000,
        "[" + "9" * 10_000 + "]",
    ],
)
def test_what_is_no_value_is_no_answer(stdout: str) -> None:
    problem = call_problem()
    for answer in (stdout, f"\n0 {stdout}\n", "\n0 [4]\n" * 2):  # two answers are none
        verdict = judge_output(problem, problem.tests[0], ending(answer))
        assert not verdict.passed
        assert verdict.reason.startswith("no answer: ")


def test_values_keep_their_types() -> None:
    encoded = [
        {"type": "tuple", "items": [1, {"type": "dict", "items": [{"type": "tuple", "items": ["a", 2.5]}]}]}
    ]
    assert read_values(json.dumps(encoded), count=1) == [(1, {"a": 2.5})]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tests": ()}, "tests: the problem has none"),
        ({"kind": "shell"}, "kind: must be 'stdio' or 'call', got 'shell'"),
        ({"checker": "equal"}, "checker: 'equal' is none of those for stdio problems: exact, tokens, float"),
        ({"time_limit": 0.0}, "time_limit: must be positive, got 0.0"),
        ({"entry_point": "f"}, "entry_point: 'f' does not fit a stdio problem"),
    ],
)
def test_a_problem_that_cannot_be_right_is_refused(fields: dict, message: str) -> None:
    plain = {"id": "p", "statement": "", "kind": "stdio", "tests": (Test("1", "2"),), "checker": "tokens"}
    with pytest.raises(RecordError, match=message):
        Problem(**{**plain, **fields})


def test_a_problem_survives_json() -> None:
    problem = Problem(
        *("p", "s", "call", (Test("f(1)", "2", True), Test("f(2)", "3")), "equal", "f"),
        solutions=("def f(x): ...",),
    )
    assert Problem.from_json(json.loads(json.dumps(problem.to_json()))) == problem
