"""The text of a compiled program as data: computations, their instructions, and how often each of them runs.

An instruction in the body of a loop counts as often as the loop runs: XLA's own cost analysis counts it once. Where the number of
runs is not in the text, since it depends on values (tokens until a stop, blocks that a query sees), the caller says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_START = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"calls=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+)")
_LOOP = re.compile(r"condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_KNOWN = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^}]*)\})?")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "f64": 8, "s64": 8, "u64": 8}


class Array(NamedTuple):
    bytes: int
    in_hbm: bool  # not in a chip's own memories, S(1) and others


class Instruction(NamedTuple):
    name: str
    result: list[Array]  # of a tuple its parts
    operation: str
    operands: list[str]
    rest: str  # attributes
    root: bool

    @property
    def size(self) -> int:
        return sum(array.bytes for array in self.result)


class Module(NamedTuple):
    computations: dict[str, list[Instruction]]
    entry: str


class Visit(NamedTuple):
    """An instruction where it runs."""

    instruction: Instruction
    computation: str
    times: float
    path: str  # the loops around it


def parse(text: str) -> Module:
    computations: dict[str, list[Instruction]] = {}
    current, entry = "", ""
    for line in text.splitlines():
        if not line.startswith(" "):
            if match := _HEAD.match(line):
                current = match[2]
                computations[current] = []
                entry = current if match[1] else entry
        elif current and (match := _START.match(line)):
            computations[current].append(_instruction(line, match))
    return Module(computations, entry)


def _instruction(line: str, match: re.Match) -> Instruction:
    at = match.end()
    end = _closing(line, at) if line[at] == "(" else line.index(" ", at)
    kind, _, _ = line[end:].lstrip().partition("(")
    opening = line.index("(", end)
    closing = _closing(line, opening)
    result = [_array(m) for m in _ARRAY.finditer(line[at:end])]
    operands = _NAME.findall(line[opening:closing])
    return Instruction(match[2], result, kind, operands, line[opening:], bool(match[1]))


def _closing(line: str, opening: int) -> int:
    """The place behind the bracket that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(line)):
        depth += (line[i] == "(") - (line[i] == ")")
        if depth == 0:
            return i + 1
    return len(line)


def _array(match: re.Match) -> Array:
    size = _BYTES.get(match[1], 4)
    for n in match[2].split(","):
        size *= int(n) if n else 1
    return Array(size, "S(" not in (match[3] or ""))


def walk(module: Module, start: str = "", unknown: float = 1.0, *, inside: bool = False) -> Iterator[Visit]:
    """All instructions that run, those of fusions only if `inside`; of a choice its first side alone.

    Args:
      start: the computation to begin in; the whole program by default.
      unknown: runs of a loop whose number is not in the text.
    """

    def visit(name: str, times: float, path: str) -> Iterator[Visit]:
        for one in module.computations.get(name, ()):
            yield Visit(one, name, times, path)
            if one.operation == "while" and (match := _LOOP.search(one.rest)):
                runs = runs_of(module, one, match[1])
                yield from visit(match[2], times * (unknown if runs is None else runs), f"{path}/{match[2]}")
            elif one.operation == "conditional" and (branches := _BRANCHES.search(one.rest)):
                first = (branches[1] or branches[2]).split(",")[0].strip().lstrip("%")
                yield from visit(first, times, path)
            elif (inside or one.operation == "call") and (match := _CALLED.search(one.rest)):
                yield from visit(match[1], times, path)

    yield from visit(start or module.entry, 1.0, "")


def runs_of(module: Module, loop: Instruction, condition: str) -> int | None:
    """How often a loop runs: what the compiler says, or the constant that its counter, from 0, is compared with."""
    if match := _KNOWN.search(loop.rest):
        return int(match[1])
    inside = {one.name: one for one in module.computations.get(condition, ())}
    for one in inside.values():
        if one.root and one.operation == "compare" and "direction=LT" in one.rest:
            limit = inside.get(one.operands[-1])
            if (
                limit is not None
                and limit.operation == "constant"
                and (match := re.match(r"\((\d+)\)", limit.rest))
            ):
                return int(match[1])
    return None


def token_loop(module: Module) -> str:
    """The body of the loop over sampled tokens: of those of the program itself whose number of runs is not known, the longest."""
    bodies = [
        match[2]
        for one in module.computations[module.entry]
        if one.operation == "while"
        and (match := _LOOP.search(one.rest))
        and runs_of(module, one, match[1]) is None
    ]
    return max(bodies, key=lambda body: len(module.computations[body]), default=module.entry)


def called(instruction: Instruction) -> str:
    """The computation of a fusion."""
    match = _CALLED.search(instruction.rest)
    return match[1] if match else ""
