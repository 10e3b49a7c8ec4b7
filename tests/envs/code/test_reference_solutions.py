"""The data sets' own solutions pass their tests, and programs that solve nothing do not: all of them, in the real sandbox."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlanything_jax.data import load
from rlanything_jax.envs.code.grading import Job, grade_all
from rlanything_jax.envs.code.problem import Problem

SETS = {"humaneval": ("test",), "mbpp_sanitized": ("prompt", "test", "validation", "train")}
SIZES = {"humaneval": 164, "mbpp_sanitized": 427}


@pytest.fixture(scope="module", params=SETS)
def problems(
    request: pytest.FixtureRequest, sandbox: None, prepare_data: Callable[[str], Path]
) -> list[Problem]:
    name = request.param
    sources = [load(name, split, prepare_data(name)) for split in SETS[name]]
    found = [source[i] for source in sources for i in range(len(source))]
    assert len(found) == SIZES[name]
    return found


def accepted(problems: list[Problem], *programs: Callable[[Problem], str]) -> list[str]:
    """The problems whose tests such a program passes."""
    jobs = [Job(problem, program(problem), problem.tests) for problem in problems for program in programs]
    verdicts = grade_all(jobs)
    return [
        job.problem.id
        for job, of_job in zip(jobs, verdicts, strict=True)
        if all(verdict.passed for verdict in of_job)
    ]


def test_all_solutions_are_accepted(problems: list[Problem]) -> None:
    assert len(accepted(problems, lambda problem: problem.solutions[0])) == len(problems)


def test_no_program_that_solves_nothing_is_accepted(problems: list[Problem]) -> None:
    programs = (
        lambda problem: "",
        lambda problem: f"def {problem.entry_point}(*given, **named): return None",
        lambda problem: f"def {problem.entry_point}(*given, **named): raise SystemExit(0)",
    )
    assert accepted(problems, *programs) == []
