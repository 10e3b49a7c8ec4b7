"""Compares what a program gave with what a test expects.

For kind 'stdio' both are text:
    exact      the same characters, but for white space at the ends of lines and of the text
    tokens     the same words: white space is not compared
    float      tokens; where the expected word is written as a decimal number, within 1e-6, absolute or relative
For kind 'call' what was given are the values returned by the test's calls:
    equal      one value, == the literal that the test holds
    json_equal equal, where tuples count as lists and keys of dicts as strings, as in JSON
    assertion  `results` passes the statements that the test holds (see `interpreter`)
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

from rlanything_jax.envs.code.interpreter import Interpreter, Unsupported

TOLERANCE = 1e-6


class CheckerError(RuntimeError):
    """A checker failed, so that nothing is known about the program."""


def exact(expected: str, got: str) -> bool:
    return _lines(expected) == _lines(got)


def tokens(expected: str, got: str) -> bool:
    return expected.split() == got.split()


def close(expected: str, got: str) -> bool:
    wanted, given = expected.split(), got.split()
    return len(wanted) == len(given) and all(map(_close_words, wanted, given))


def equal(expected: str, results: list[Any]) -> bool:
    (value,) = results
    return bool(value == ast.literal_eval(expected))


def json_equal(expected: str, results: list[Any]) -> bool:
    (value,) = results
    return bool(_as_json(value) == _as_json(ast.literal_eval(expected)))


def assertion(expected: str, results: list[Any]) -> bool:
    try:
        Interpreter({"results": results}).run(expected)
    except Unsupported:
        raise  # of the test, whatever the program returned
    except Exception:
        return False  # a value of a wrong type, as well as a false assertion
    return True


CHECKERS: Mapping[str, Mapping[str, Callable[[str, Any], bool]]] = {
    "stdio": {"exact": exact, "tokens": tokens, "float": close},
    "call": {"equal": equal, "json_equal": json_equal, "assertion": assertion},
}


def check(kind: str, name: str, expected: str, got: Any, *, problem: str) -> bool:
    """Whether `got` is what is expected, says the checker `name` for problems of `kind`.

    Raises CheckerError, which names the problem, where the checker raises: that is never a pass.
    """
    try:
        return CHECKERS[kind][name](expected, got)
    except Exception as error:
        raise CheckerError(
            f"checker {name!r} of problem {problem!r} raised {type(error).__name__}: {error}"
        ) from error


def text_checker(outputs: list[str]) -> str:
    """The name of the checker for programs that write `outputs`: 'float' where a decimal number is among them."""
    return "float" if any(_decimal(word) for text in outputs for word in text.split()) else "tokens"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _decimal(word: str) -> bool:
    """Whether `word` is a number with a decimal point: an integer must be met exactly, however large it is."""
    if "." not in word:
        return False
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _close_words(wanted: str, given: str) -> bool:
    if wanted == given:
        return True
    if not _decimal(wanted):
        return False
    try:
        return math.isclose(float(wanted), float(given), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except ValueError:
        return False


def _as_json(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    return value
