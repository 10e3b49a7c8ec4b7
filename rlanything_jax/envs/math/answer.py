r"""Finds the final answer in a solution and compares it with a reference, by number and by algebra.

Numbers are compared here, exactly. Anything else goes to `math-verify` (extra 'math') in a child process with a
time and a memory limit, so that `9^{9^{9}}` costs a child and not the run, from whatever thread it is asked: a
limit that relies on signals fails outside the main thread. Nothing is ever given to `eval`.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from fractions import Fraction
from typing import NamedTuple

MAX_LENGTH = 2000  # characters; a longer answer is none
_START_S = 60.0  # for the child to import sympy
_NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)?(\.\d+)?")
_RATIO = re.compile(r"(?P<sign>[-+]?)(\\[dt]?frac\{(?P<a>\d+)\}\{(?P<b>\d+)\}|(?P<c>\d+)/(?P<d>\d+))")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_MARKS = (r"\$", "$", r"\!", r"\,", r"\;", r"\ ", "~", r"\left", r"\right")


class Match(NamedTuple):
    """Whether an answer equals the reference, and how that was found: 'text', 'number', 'algebra' or a failure."""

    equal: bool
    reason: str


def final_answer(solution: str) -> str | None:
    r"""The content of the last \boxed{...}, or what follows the last '####', or None.

    >>> final_answer(r"so \boxed{\frac{1}{2}}."), final_answer("6 * 7\n#### 42")
    ('\\frac{1}{2}', '42')
    """
    for start in sorted((m.end() for m in re.finditer(r"\\(?:boxed|fbox)\s*\{", solution)), reverse=True):
        depth = 1
        for end in range(start, len(solution)):
            depth += {"{": 1, "}": -1}.get(solution[end], 0)
            if depth == 0:
                return solution[start:end].strip()
    _, mark, rest = solution.rpartition("####")
    return rest.strip().partition("\n")[0].strip() or None if mark else None


def match(answer: str | None, reference: str, *, timeout_s: float = 5.0) -> Match:
    """Compares a final answer with the reference answer. Thread-safe.

    Raises ImportError where algebra is needed and math-verify is not installed.
    """
    if answer is None or not answer.strip():
        return Match(False, "no answer")
    if len(answer) > MAX_LENGTH:
        return Match(False, f"an answer of {len(answer)} characters")
    given, wanted = plain(answer), plain(reference)
    if given == wanted:
        return Match(True, "text")
    numbers = number(given), number(wanted)
    if None not in numbers:
        return Match(numbers[0] == numbers[1], "number")
    return _algebra.equal(answer, reference, timeout_s)


def plain(answer: str) -> str:
    """`answer` without dollars, spaces and the like; \\text{...} becomes its content."""
    answer = _TEXT.sub(r"\1", answer.strip().rstrip("."))
    for mark in _MARKS:
        # A backslash mark ends at a letter: \left is not the beginning of \leftarrow.
        answer = re.sub(re.escape(mark) + r"(?![a-zA-Z])" * mark[-1:].isalpha(), "", answer)
    return "".join(answer.split())


def number(answer: str) -> Fraction | None:
    """The rational number that `plain` text writes as an integer, a decimal or a fraction, else None."""
    if _NUMBER.fullmatch(answer) and any(map(str.isdigit, answer)):
        return Fraction(answer.replace(",", ""))
    ratio = _RATIO.fullmatch(answer)
    if ratio is None:
        return None
    above, below = int(ratio["a"] or ratio["c"]), int(ratio["b"] or ratio["d"])
    return Fraction(-above if ratio["sign"] == "-" else above, below) if below else None


class _Algebra:
    """The child that compares formulas: started when first needed, replaced when it takes too long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def equal(self, answer: str, reference: str, timeout_s: float) -> Match:
        with self._lock:
            child = self._started()
            try:
                assert child.stdin
                child.stdin.write(json.dumps([answer, reference, timeout_s]).encode() + b"\n")
                child.stdin.flush()
                line = _read_line(child, timeout_s)
            except BrokenPipeError:
                line = b""
            if line is None or not line:
                self.close()
                return Match(False, "timeout" if line is None else "the comparison crashed")
            equal, reason = json.loads(line)
            return Match(equal, reason)

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            if importlib.util.find_spec("math_verify") is None:
                raise ImportError("comparing formulas needs math-verify: pip install -e '.[math]'")
            program = [sys.executable, "-m", "rlanything_jax.envs.math.algebra"]
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(program, stdin=pipe, stdout=pipe, start_new_session=True)
            if _read_line(self._child, _START_S) != b"ready\n":
                self.close()
                raise RuntimeError(f"{' '.join(program)} did not start within {_START_S:.0f} s")
        return self._child


def _read_line(child: subprocess.Popen[bytes], timeout_s: float) -> bytes | None:
    """The next line that the child writes; b'' where the child ended, None where it takes longer."""
    assert child.stdout
    line, deadline = b"", time.monotonic() + timeout_s
    while not line.endswith(b"\n"):
        if not select.select([child.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            return None
        chunk = os.read(child.stdout.fileno(), 1 << 16)
        if not chunk:
            return b""
        line += chunk
    return line


_algebra = _Algebra()
atexit.register(_algebra.close)
