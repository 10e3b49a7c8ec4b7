"""Reads and writes the PDDL of ALFWorld's game files: nested lists of symbols, and typed declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# A symbol, or a list of expressions.
Expression = str | tuple["Expression", ...]

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")


def tokens(text: str) -> list[str]:
    """The parentheses and symbols of `text`, without comments."""
    if ";" in text:
        text = _COMMENT.sub("", text)
    return _TOKEN.findall(text)


def read(text: str) -> tuple[Expression, ...]:
    """The expressions of `text` as nested tuples of symbols; ValueError where parentheses do not match."""
    stack: list[list[Expression]] = [[]]
    for token in tokens(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise ValueError("one ')' too many")
            closed = tuple(stack.pop())
            stack[-1].append(closed)
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise ValueError(
            f"{len(stack) - 1} '(' are never closed, the last before {write(tuple(stack[-1]))[1:60]!r}"
        )
    return tuple(stack[0])


def write(expression: Expression) -> str:
    """The inverse of `read` for one expression."""
    return expression if isinstance(expression, str) else f"({' '.join(map(write, expression))})"


def declarations(items: Iterable[Expression]) -> Iterator[tuple[str, str]]:
    """(name, type) of every name in a typed list `a b - t c - u`; names without a type are of type object."""
    names: list[str] = []
    awaited = False
    for item in items:
        if not isinstance(item, str):
            raise ValueError(f"a name or a type was expected, not {write(item)[:60]}")
        if awaited:
            for name in names:
                yield name, item
            names, awaited = [], False
        elif item == "-":
            awaited = True
        else:
            names.append(item)
    if awaited:
        raise ValueError(f"no type follows the '-' after {' '.join(names)!r}")
    for name in names:
        yield name, "object"
