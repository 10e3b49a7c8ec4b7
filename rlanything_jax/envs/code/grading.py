"""Grades programs on tests: runs them in this process's shared sandbox, compares what they gave with what is expected.

All that one call of `grade_all` needs is submitted together. The tests of a function are tried in one run, each on a new copy of
the program (see `driver`); those that are left without an answer, for instance by a call that never returns, run alone. Equal
work is done once, and short answers are remembered.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

from rlanything_jax.envs.code.problem import (
    Answer,
    Problem,
    Test,
    Verdict,
    judge,
    no_answer,
    program,
    read_answers,
)
from rlanything_jax.envs.code.sandbox import Program, run_all

REMEMBERED = 1 << 15  # answers
_LONGEST = 4000  # characters of an input and an answer that are remembered


class Job(NamedTuple):
    """A program for a problem, and the tests that it is graded on."""

    problem: Problem
    program: str
    tests: Sequence[Test]


class _Work(NamedTuple):
    """All that a run depends on but its input."""

    program: str
    kind: str
    preamble: str
    setup: str
    time_limit: float


_Key = tuple[_Work, str]


class _Run(NamedTuple):
    problem: Problem
    program: str
    inputs: tuple[str, ...]

    def keys(self) -> list[_Key]:
        p = self.problem
        work = _Work(self.program, p.kind, p.preamble, p.setup, p.time_limit)
        return [(work, text) for text in self.inputs]

    def split(self) -> list[_Run]:
        return [self._replace(inputs=(text,)) for text in self.inputs]


_remembered: collections.OrderedDict[_Key, Answer] = collections.OrderedDict()


def grade(problem: Problem, program: str, tests: Sequence[Test]) -> list[Verdict]:
    """Grades one program; see `grade_all`."""
    (verdicts,) = grade_all([Job(problem, program, tests)])
    return verdicts


def grade_all(jobs: Sequence[Job]) -> list[list[Verdict]]:
    """The verdicts on every test of every job.

    Raises `checker.CheckerError` where a problem's checker fails and RuntimeError where the sandbox does: neither is a verdict.
    """
    given = answers([(job.problem, job.program, [test.input for test in job.tests]) for job in jobs])
    return [
        [judge(job.problem, test, answer) for test, answer in zip(job.tests, of_job, strict=True)]
        for job, of_job in zip(jobs, given, strict=True)
    ]


def answers(asked: Sequence[tuple[Problem, str, Sequence[str]]]) -> list[list[Answer]]:
    """What every (problem, program) gives to each of its inputs. RuntimeError where the sandbox fails."""
    runs = [_Run(problem, program, tuple(inputs)) for problem, program, inputs in asked]
    keys = [run.keys() for run in runs]
    known = {key: _remembered[key] for of_run in keys for key in of_run if key in _remembered}
    new: dict[_Work, tuple[_Run, dict[str, None]]] = {}
    for run, of_run in zip(runs, keys, strict=True):
        for work, text in of_run:
            if (work, text) not in known:
                new.setdefault(work, (run, {}))[1][text] = None
    together = [run._replace(inputs=tuple(inputs)) for run, inputs in new.values()]
    again = _take(
        [r for run in together for r in ([run] if run.problem.kind == "call" else run.split())], known
    )
    _take(again, known)
    for key in dict.fromkeys(key for of_run in keys for key in of_run):
        _remember(key, known[key])
    return [[known[key] for key in of_run] for of_run in keys]


def _take(runs: Sequence[_Run], known: dict[_Key, Answer]) -> list[_Run]:
    """Runs all at once and adds their answers to `known`. Returns what is to be run again, one input at a time."""
    if not runs:
        return []
    programs = [
        Program(*program(run.problem, run.program, *run.inputs), timeout_s=run.problem.time_limit)
        for run in runs
    ]
    again = []
    for run, result in zip(runs, run_all(programs), strict=True):
        found = read_answers(run.problem, result, len(run.inputs))
        for one, key, answer in zip(run.split(), run.keys(), found, strict=True):
            if answer is None and len(run.inputs) > 1:
                again.append(one)
            else:
                known[key] = answer or no_answer(result)
    return again


def _remember(key: _Key, answer: Answer) -> None:
    """Keeps the most recently used answers."""
    if len(key[1]) + len(answer.text) <= _LONGEST:
        _remembered[key] = answer
        _remembered.move_to_end(key)
        if len(_remembered) > REMEMBERED:
            _remembered.popitem(last=False)
