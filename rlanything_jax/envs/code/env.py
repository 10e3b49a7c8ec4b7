"""The coding environment: a problem, a limit on programs, and what the policy sees of how they fared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.code.grading import grade
from rlanything_jax.envs.code.problem import Problem, Test, Verdict, cut
from rlanything_jax.envs.code.syntax import fault


class CodeEnv:
    """Tries at most `max_steps` programs on `problem`; a program that passes all public tests ends the episode.

    Hidden tests, those that are not public, grade a program; where all are public, they do. An observation's `score` is the share
    of them that the last program passes, `won` whether it passes all. Its text says which public tests the program failed, and
    nothing of the others. The last program that may be tried is not tried on public tests: nobody can learn from it any more.

    `info` has after a step 'admissible' (whether the program is Python at all), 'failed' (of the public tests, pairs of a test
    and the reason), 'passed' (of the tests that grade, one bool each) and with `labels=True` 'label' (+1 where all are passed,
    else -1). A step may take the problem's time limit 2 + tests / slots times, with the slots of the sandbox. It raises
    `checker.CheckerError` or RuntimeError where checker or sandbox, not the program, is at fault.
    """

    def __init__(self, problem: Problem, max_steps: int = 1, labels: bool = True) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} leaves no program to write: use at least 1")
        self.problem = problem
        self.max_steps = max_steps
        self._labels = labels
        self._public = [test for test in problem.tests if test.public]
        self._hidden = [test for test in problem.tests if not test.public] or self._public
        self._steps = 0
        self._done = True

    def reset(self) -> Observation:
        """Starts an episode."""
        self._steps, self._done = 0, False
        return Observation(self.problem.statement, (), 0.0, False, False)

    def step(self, program: str) -> Observation:
        """Runs a program; RuntimeError where no episode is running."""
        if self._done:
            raise RuntimeError(f"the episode of {self.problem.id} is over or was not begun: call reset()")
        self._steps += 1
        wrong, last = fault(program), self._steps >= self.max_steps
        shown = [] if last else self._public
        # Two runs: what a program says of its public tests must not hold what it was asked in hidden ones.
        public, hidden = (
            [Verdict(False, wrong)] * len(tests) if wrong else grade(self.problem, program, tests)
            for tests in (shown, self._hidden)
        )
        passed = tuple(verdict.passed for verdict in hidden)
        failed = [(test, v.reason) for test, v in zip(shown, public, strict=True) if not v.passed]
        info: dict[str, Any] = {"admissible": not wrong, "failed": tuple(failed), "passed": passed}
        if self._labels:
            info["label"] = 1 if all(passed) else -1
        self._done = last or not (wrong or failed)
        return Observation(
            _report(wrong, failed, len(public)), (), sum(passed) / len(passed), all(passed), self._done, info
        )

    def close(self) -> None:
        """Ends the episode; nothing else is held."""
        self._done = True


def _report(wrong: str, failed: Sequence[tuple[Test, str]], public: int) -> str:
    if wrong:
        return f"This is not a Python program: {cut(wrong)}"
    if failed:
        lines = [f"{cut(test.input)}\n    {reason}" for test, reason in failed]
        return "\n".join([f"{len(failed)} of {public} examples failed:", *lines])
    return f"All {public} examples passed." if public else "The program was taken."
