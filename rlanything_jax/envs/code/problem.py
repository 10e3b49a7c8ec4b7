"""A programming problem with its tests, the run that tries a program on one, and the verdict on what came out.

The expected output is never inside the sandbox. A program that reads stdin is run as it is. A function is called
by `driver.py`, which sends back what it returned as JSON: plain values, so that no object of the program's is
ever compared with, and a result can only be forged by returning the right value. The comparison is made here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rlanything_jax.envs.code import checker

_DRIVER = Path(__file__).with_name("driver.py").read_text(encoding="utf-8")
_SHOWN = 200  # characters of an output in a reason
_DEPTH = 100  # of a value inside values; deeper ones would exhaust the stack of whoever compares them


class RecordError(ValueError):
    """A record of a data file that cannot become a problem: which field, and what is wrong with it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


@dataclasses.dataclass(frozen=True)
class Test:
    """One test of a problem.

    input: of kind 'stdio', what the program reads; of kind 'call', one Python call a line, such as `f([1, 2])`.
    output: what the problem's checker compares with (see `checker`).
    public: whether the policy may see it.
    """

    __test__ = False  # not one of pytest's

    input: str
    output: str
    public: bool = False


@dataclasses.dataclass(frozen=True)
class Problem:
    """One programming problem. Raises RecordError where a field cannot be right.

    kind: 'stdio' (a program reads stdin and writes stdout) or 'call' (a function is called).
    entry_point: the function's name, '' for stdio.
    preamble: code that goes before the program, such as imports; setup: code that goes after it, before the calls.
    solutions: accepted programs, perhaps none, to be run like any other.
    time_limit: seconds for one test.
    """

    id: str
    statement: str
    kind: str
    tests: tuple[Test, ...]
    checker: str
    entry_point: str = ""
    preamble: str = ""
    setup: str = ""
    solutions: tuple[str, ...] = ()
    time_limit: float = 5.0
    source: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("stdio", "call"):
            raise RecordError("kind", f"must be 'stdio' or 'call', got {self.kind!r}")
        if self.checker not in checker.CHECKERS[self.kind]:
            known = ", ".join(checker.CHECKERS[self.kind])
            raise RecordError(
                "checker", f"{self.checker!r} is none of those for {self.kind} problems: {known}"
            )
        if not self.tests:
            raise RecordError("tests", "the problem has none")
        if not self.time_limit > 0:
            raise RecordError("time_limit", f"must be positive, got {self.time_limit!r}")
        if (self.kind == "call") != bool(self.entry_point):
            raise RecordError("entry_point", f"{self.entry_point!r} does not fit a {self.kind} problem")

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that `json.dumps` accepts."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        """Inverse of `to_json`. TypeError where a field is missing or unknown."""
        tests = tuple(Test(**test) for test in data["tests"])
        return cls(**{**data, "tests": tests, "solutions": tuple(data["solutions"])})


class WrittenTest(NamedTuple):
    """A test that a model wrote, and why it wrote this one."""

    test: Test
    reasoning: str


@dataclasses.dataclass(frozen=True, eq=False)
class Opaque:
    """A returned object that is not plain, such as a match of a regular expression: true or not, equal to nothing."""

    type: str
    truth: bool

    def __bool__(self) -> bool:
        return self.truth


class Verdict(NamedTuple):
    """Whether a program passed a test, and why not."""

    passed: bool
    reason: str = ""


class Ending(Protocol):
    """How a run ended, as `envs.code.run` returns it."""

    @property
    def status(self) -> str: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


class Answer(NamedTuple):
    """What a program gave to an input: text, for calls the values as JSON; or, if it gave none, the reason."""

    text: str
    fault: str = ""


def program(problem: Problem, code: str, *inputs: str) -> tuple[str, str]:
    """Returns (source, stdin): what the sandbox runs to try `code` on the inputs of tests, one only for 'stdio'."""
    code = f"{problem.preamble}\n{code}" if problem.preamble else code
    if problem.kind == "stdio":
        (stdin,) = inputs
        return code, stdin
    job = {"code": code, "setup": problem.setup, "tests": [calls(text) for text in inputs]}
    return _DRIVER, json.dumps(job)


def calls(text: str) -> list[str]:
    """The calls of a test of kind 'call'."""
    return [line for line in text.split("\n") if line.strip()]


def read_answers(problem: Problem, result: Ending, count: int) -> list[Answer | None]:
    """What a run of `program` left for each of its `count` inputs; None where it left nothing that can be read.

    Of a run that ended badly, answers that it gave before stand if it had several inputs; one input has no answer then.
    """
    if problem.kind == "stdio":
        return [Answer(result.stdout) if result.status == "ok" else None]
    found: dict[str, list[str]] = {}
    for line in result.stdout.split("\n"):
        number, _, text = line.partition(" ")
        found.setdefault(number, []).append(text)
    if count == 1 and result.status != "ok":
        return [None]
    return [_answer(found.get(str(test), ())) for test in range(count)]


def no_answer(result: Ending) -> Answer:
    """What to say of a run of one input that has no answer."""
    if result.status == "ok":
        reason = (
            "cannot be read" if result.stdout.strip() else "the program ended before its function returned"
        )
        return Answer("", f"no answer: {reason}")
    lines = result.stderr.strip().splitlines()
    return Answer("", f"{result.status}: {lines[-1][:_SHOWN]}" if lines else result.status)


def judge(problem: Problem, test: Test, answer: Answer) -> Verdict:
    """Judges the answer to the input of `test`.

    Raises `checker.CheckerError` where the problem's checker, not the program, is at fault.
    """
    if answer.fault:
        return Verdict(False, answer.fault)
    got: Any = answer.text
    if problem.kind == "call":
        try:
            got = read_values(answer.text, count=len(calls(test.input)))
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
            return Verdict(False, f"no answer: {str(error)[:_SHOWN]}")
    if checker.check(problem.kind, problem.checker, test.output, got, problem=problem.id):
        return Verdict(True)
    shown = got if isinstance(got, str) else ", ".join(map(repr, got))
    return Verdict(False, f"wrong answer: expected {_short(test.output)}, got {_short(shown)}")


def _answer(texts: Sequence[str]) -> Answer | None:
    """The only one of the texts; two are none, or a program could try one after the other."""
    if len(texts) != 1:
        return None
    try:
        outcome = json.loads(texts[0])
    except (ValueError, RecursionError, MemoryError):
        return None
    return Answer("", f"error: {outcome[:_SHOWN]}") if isinstance(outcome, str) else Answer(texts[0])


def read_values(text: str, *, count: int) -> list[Any]:
    """Inverse of the driver's encoding; ValueError, TypeError or KeyError where `text` is not `count` values."""
    values = json.loads(text)
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"{count} values expected")
    return [_decoded(value, _DEPTH) for value in values]


def _decoded(data: Any, depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"a value nested more than {_DEPTH} deep")
    if isinstance(data, list):
        return [_decoded(item, depth - 1) for item in data]
    if not isinstance(data, dict):
        return data
    items = data["items"]
    if data["type"] == "bytes":
        return bytes.fromhex(items)
    values = [_decoded(item, depth - 1) for item in items]
    match data["type"]:
        case "tuple":
            return tuple(values)
        case "set":
            return set(values)
        case "frozenset":
            return frozenset(values)
        case "dict":
            return dict(values)
        case "complex":
            return complex(*values)
    (truth,) = items
    return Opaque(str(data["type"]), truth is True)


def cut(text: str, most: int = _SHOWN) -> str:
    """`text` as far as it may be shown."""
    text = text.strip()
    return text if len(text) <= most else text[:most] + "..."


def _short(text: str) -> str:
    return repr(cut(text))
