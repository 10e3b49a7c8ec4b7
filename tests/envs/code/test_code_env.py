"""Episodes of the coding environment, with programs that really run."""

import dataclasses
import pickle

import pytest

from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.code import env as env_module
from rlanything_jax.envs.code.checker import CheckerError
from rlanything_jax.envs.code.env import CodeEnv
from rlanything_jax.envs.code.problem import Problem, Test, Verdict

pytestmark = pytest.mark.usefixtures("sandbox")

HIDDEN = (Test("f(31)", "1961"), Test("f(-40)", "2600"), Test("f(0)", "1000"), Test("f(9)", "1081"))
PROBLEM = Problem(
    *("squares", "Square it, add 1000.", "call", (Test("f(2)", "1004", True), Test("f(3)", "1009", True), *HIDDEN)),
    *("equal", "f"),
    time_limit=2.0,
)  # fmt: skip
RIGHT = "def f(x): return x * x + 1000"
PUBLIC_ONLY = "def f(x): return {2: 1004, 3: 1009}.get(x, 0)"
HALF = "def f(x): return x * x + 1000 if x in (31, 9) else 0"


def play(problem: Problem, *programs: str, max_steps: int = 3) -> list[Observation]:
    environment = CodeEnv(problem, max_steps)
    return [environment.reset(), *(environment.step(program) for program in programs)]


def test_a_right_program_wins_at_once() -> None:
    start, end = play(PROBLEM, RIGHT)
    assert start == Observation(PROBLEM.statement, (), 0.0, False, False)
    assert (end.score, end.won, end.done) == (1.0, True, True)
    assert end.info == {"admissible": True, "failed": (), "passed": (True,) * 4, "label": 1}
    assert end.text == "All 2 examples passed."


def test_the_score_is_the_share_of_hidden_tests_and_public_ones_do_not_count() -> None:
    _, end = play(PROBLEM, PUBLIC_ONLY)
    assert (end.score, end.won, end.done) == (0.0, False, True)  # nothing left to repair that it could see
    assert end.info["label"] == -1
    _, end = play(PROBLEM, HALF)
    assert (end.score, end.info["passed"], end.done) == (0.5, (True, False, False, True), False)


def test_a_program_is_repaired_by_what_the_examples_say() -> None:
    _, first, second, third = play(PROBLEM, "def f(x): return x + 1002", "def f(x): 1 / 0", RIGHT)
    assert first.text == "1 of 2 examples failed:\nf(3)\n    wrong answer: expected '1009', got '1005'"
    assert second.text == (
        "2 of 2 examples failed:\nf(2)\n    error: ZeroDivisionError: division by zero\n"
        "f(3)\n    error: ZeroDivisionError: division by zero"
    )
    assert [o.done for o in (first, second, third)] == [False, False, True]
    assert [o.won for o in (first, second, third)] == [False, False, True]


def test_the_last_program_is_the_one_that_counts() -> None:
    *_, end = play(PROBLEM, HALF, "def f(x): return 0", max_steps=2)
    assert (end.score, end.won, end.done) == (0.0, False, True)


def test_an_episode_ends_with_its_last_program() -> None:
    environment = CodeEnv(PROBLEM, max_steps=1)
    with pytest.raises(RuntimeError, match="squares is over or was not begun"):
        environment.step(RIGHT)
    environment.reset()
    assert environment.step("def f(x): return 0").done
    with pytest.raises(RuntimeError, match="call reset"):
        environment.step(RIGHT)
    assert not environment.reset().done
    assert environment.step(RIGHT).won
    environment.reset()
    environment.close()
    with pytest.raises(RuntimeError):
        environment.step(RIGHT)


@pytest.mark.parametrize(
    "program",
    [
        "def f(x): return x + 1",
        "def f(x): return x * x",
        "def f(x):\n    if x > 3: raise ValueError(x)\n    return 0",
        "def f(x):\n    print(x)\n    return globals()",
        "import sys\nprint(sys.stdin.read())\ndef f(x):\n frame, seen = sys._getframe(1), ''\n while frame:\n"
        "  seen += repr(frame.f_locals.get('job', {}).get('tests')); frame = frame.f_back\n raise Exception(seen)",
        "def f(x",
        "",
    ],
)
def test_hidden_tests_are_in_no_text(program: str) -> None:
    for observation in play(PROBLEM, program):
        for test in HIDDEN[:2]:
            assert test.output not in observation.text and test.input not in observation.text
        assert observation.admissible == ()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("I would square it.", "SyntaxError: "),
        ("def f(x:", "SyntaxError: "),
        ("f = '\0'", "SyntaxError: source code string cannot contain null bytes"),
        ("(" * 5000, "SyntaxError: too many nested parentheses"),
        ("x = '\ud800'", "UnicodeEncodeError: "),
        ("-" * 100_000 + "1", "Error"),
    ],
)
def test_what_is_not_python_is_inadmissible_and_not_run(
    program: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_module, "grade", None)
    _, after = play(PROBLEM, program)
    assert not after.info["admissible"] and after.info["passed"] == (False,) * 4
    assert after.text.startswith("This is not a Python program: ") and said in after.text
    assert not after.done and after.info["label"] == -1


def test_a_program_that_warns_is_admissible() -> None:
    _, after = play(PROBLEM, f"re = '\\d'\n{RIGHT}")
    assert after.won and after.info["admissible"]


def test_without_public_tests_every_program_is_the_last() -> None:
    secret = dataclasses.replace(PROBLEM, tests=HIDDEN)
    _, end = play(secret, "def f(x): return 0")
    assert end.done and end.text == "The program was taken."
    _, broken, end = play(secret, "def f(x:", RIGHT)  # but for what is none
    assert not broken.done and end.won


def test_without_hidden_tests_the_public_ones_grade() -> None:
    shown = dataclasses.replace(PROBLEM, tests=PROBLEM.tests[:2])
    _, end = play(shown, "def f(x): return 1004")
    assert (end.score, end.info["passed"], end.done) == (0.5, (True, False), False)
    assert play(shown, PUBLIC_ONLY)[-1].won


def test_the_last_program_is_tried_on_hidden_tests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(
        env_module,
        "grade",
        lambda problem, program, tests: tried.append(tests) or [Verdict(True)] * len(tests),
    )
    _, end = play(PROBLEM, RIGHT, max_steps=1)
    assert tried == [[], list(HIDDEN)] and end.won and end.done and end.text == "The program was taken."


def test_labels_are_given_only_where_asked_for() -> None:
    environment = CodeEnv(PROBLEM, labels=False)
    environment.reset()
    assert "label" not in environment.step(RIGHT).info


def test_a_program_that_reads_and_writes_is_graded_by_its_output() -> None:
    io = Problem("sum", "", "stdio", (Test("1 2\n", "3\n", True), Test("5 6\n", "11\n")), "tokens")
    assert play(io, "print(sum(map(int, input().split())))")[-1].won
    _, after = play(io, "print(4)")
    assert after.text == "1 of 1 examples failed:\n1 2\n    wrong answer: expected '3', got '4'"


def test_unicode_and_long_values_are_shown_cut() -> None:
    tests = (Test("f('ß')", repr("ö" * 5000), True), HIDDEN[0])
    _, after = play(dataclasses.replace(PROBLEM, tests=tests), "def f(x): return 'ü' * 5000")
    assert "öööö" in after.text and "üüüü" in after.text and len(after.text) < 600


def test_an_observation_can_be_sent_to_another_process() -> None:
    after = play(PROBLEM, "def f(x): return 0")[-1]
    assert pickle.loads(pickle.dumps(after)) == after


def test_a_failing_checker_is_an_error_not_a_verdict() -> None:
    broken = dataclasses.replace(PROBLEM, tests=(Test("f(1)", "no literal"),))
    with pytest.raises(CheckerError):
        play(broken, RIGHT)


def test_an_episode_without_a_program_is_refused() -> None:
    with pytest.raises(ValueError, match="max_steps=0"):
        CodeEnv(PROBLEM, max_steps=0)
