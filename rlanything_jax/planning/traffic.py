"""Bytes that a compiled program moves: between a chip and its memory, and between chips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rlanything_jax.planning.hlo import Instruction, Module, called, walk

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
# Nothing is moved by these; the end of an asynchronous operation says again what its start said.
_FREE = "parameter constant get-tuple-element tuple bitcast while conditional call after-all iota partition-id".split()
_SLICES = ("dynamic-slice", "slice", "gather")
_IN_PLACE = {
    "dynamic-update-slice": 1,
    "scatter": 2,
}  # operation -> the operand that is written into its first one


class Collective(NamedTuple):
    kind: str
    axis: str  # of the mesh, several joined by "+"; "mixed" where the groups are not those of axes
    group: np.ndarray  # [n] places in the mesh of the devices that exchange, the first group of them
    moved: float  # bytes that a device receives each time
    times: float
    hidden: bool  # compiled to run beside computation

    @property
    def total(self) -> float:
        return self.moved * self.times


def collectives(
    module: Module, mesh: Mapping[str, int], start: str = "", unknown: float = 1.0
) -> list[Collective]:
    """All collectives of a program compiled for a mesh with these axes; arguments as `hlo.walk`."""
    found: list[Collective] = []
    seen: set[tuple] = set()
    for one, inside, times, path in walk(module, start, unknown, inside=True):
        kind = one.operation.removesuffix("-start").removeprefix("ragged-")
        if kind not in KINDS:
            continue
        if chain := re.search(r'chain_id="(\d+)"', one.rest):
            # The start, the steps beside computation and the end of one exchange each name it.
            channel = re.search(r"channel_id=(\d+)", one.rest)
            key = (path, chain[1], channel and channel[1])
            if key in seen:
                continue
            seen.add(key)
        collective = _collective(one, kind, inside, times, mesh)
        if len(collective.group) > 1:
            found.append(collective)
    return found


def _collective(
    one: Instruction, kind: str, inside: str, times: float, mesh: Mapping[str, int]
) -> Collective:
    started = one.operation.endswith("-start")
    operand_too = started and kind in ("all-gather", "collective-permute")  # (operand, result, ...)
    result = float(one.result[1].bytes if operand_too else one.size)
    group = _first_group(one.rest, mesh)
    n = len(group)
    share = (n - 1) / n
    if kind == "all-reduce" and "reduce-scatter" in inside:
        kind, moved = "reduce-scatter", result * share  # a fusion that keeps a part of its sum
    elif kind == "reduce-scatter":
        moved = result * (n - 1)
    elif kind == "all-reduce":
        moved = 2 * result * share
    else:
        moved = result * (1 if kind == "collective-permute" else share)
    hidden = started or "chain_id=" in one.rest or "async_collective_name=" in one.rest
    return Collective(kind, _axis(group, mesh), group, moved, times, hidden)


def _first_group(text: str, mesh: Mapping[str, int]) -> np.ndarray:
    """The first of the replica groups, in any of the forms that XLA writes."""
    everyone = np.arange(int(np.prod(list(mesh.values()))))
    if match := re.search(r"source_target_pairs=\{(\{[\d,{}]*\})\}", text):
        pairs = np.array(
            [[int(n) for n in pair.split(",")] for pair in re.findall(r"\{([\d,]+)\}", match[1])]
        )
        return np.unique(pairs[pairs[:, 0] != pairs[:, 1]][:1])
    if match := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return np.array([int(n) for n in match[1].split(",")])
    if match := re.search(r"replica_groups=\[([\d,]+)\](<=\[[\d,]+\](?:T\([\d,]+\))?)", text):
        return _iota(match[2]).reshape([int(n) for n in match[1].split(",")])[0]
    axes = re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((\S+)\))? \{([^}]*)\}", text)
    if axes:
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes[1])}
        devices = everyone if axes[2] is None else _iota("<=" + axes[2])
        exchanged = set(re.findall(r"'(\w+)'", axes[3]))
        grid = devices.reshape(list(sizes.values()))
        return grid[tuple(slice(None) if name in exchanged else 0 for name in sizes)].ravel()
    return everyone


def _iota(text: str) -> np.ndarray:
    """'<=[2,4]T(1,0)' -> 0 ... 7, shaped and transposed."""
    match = re.match(r"<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    assert match, text
    shape = [int(n) for n in match[1].split(",")]
    ids = np.arange(int(np.prod(shape))).reshape(shape)
    return (ids.transpose([int(n) for n in match[2].split(",")]) if match[2] else ids).ravel()


def _axis(group: np.ndarray, mesh: Mapping[str, int]) -> str:
    """The axes along which the places of a group differ."""
    places = np.array(np.unravel_index(group, list(mesh.values())))
    names = [name for name, row in zip(mesh, places, strict=True) if len(set(row.tolist())) > 1]
    whole = np.prod([mesh[name] for name in names]) == len(group)
    return "+".join(names) if whole else "mixed"


def hbm_bytes(module: Module, start: str = "", unknown: float = 1.0) -> float:
    """Bytes that a chip reads from and writes to its memory; arguments as `hlo.walk`.

    Every instruction reads its operands and writes its results; what is in a chip's own memory is free. A slice is read as
    far as it is taken, and an array that is written into is written as far as it changes.
    """
    arrays = {
        computation: {one.name: one for one in instructions}
        for computation, instructions in module.computations.items()
    }
    total = 0.0
    for one, computation, times, _ in walk(module, start, unknown):
        if one.operation not in _FREE and not one.operation.endswith("-done"):
            total += times * _moved(module, one, arrays[computation])
    return total


def _moved(module: Module, one: Instruction, known: Mapping[str, Instruction]) -> float:
    if one.operation.endswith("-start") and one.operation.startswith(("copy", "slice")):
        return min(array.bytes for array in one.result[:2]) * sum(array.in_hbm for array in one.result[:2])
    operands = [known.get(name) for name in one.operands]
    sizes = [0 if source is None else _in_hbm(source) for source in operands]
    written: float = _in_hbm(one)
    inner = module.computations.get(called(one), []) if one.operation == "fusion" else []
    if inner:
        parameters = {
            int(re.match(r"\((\d+)\)", x.rest)[1]): x.name  # type: ignore[index]
            for x in inner
            if x.operation == "parameter"
        }
        root = _behind_bitcasts(inner, next(x for x in inner if x.root).name)
        for number, name in parameters.items():
            if number >= len(sizes):
                continue
            users = [x for x in inner if name in x.operands]
            if users and all(x.operation in _SLICES and x.operands[0] == name for x in users):
                sizes[number] = min(sizes[number], sum(x.size for x in users))
            if root.operation in _IN_PLACE and _behind_bitcasts(inner, root.operands[0]).name == name:
                sizes[number] = 0
        if root.operation in _IN_PLACE:
            change = next(x for x in inner if x.name == root.operands[_IN_PLACE[root.operation]])
            written = min(written, 2 * change.size)
    elif one.operation in _SLICES:
        sizes = [min(sizes[0], one.size), *sizes[1:]] if sizes else sizes
    elif one.operation in _IN_PLACE:
        change_size = sizes[_IN_PLACE[one.operation]]
        return 2 * change_size
    return sum(sizes) + written


def _in_hbm(one: Instruction) -> int:
    return sum(array.bytes for array in one.result if array.in_hbm)


def _behind_bitcasts(inner: list[Instruction], name: str) -> Instruction:
    by_name = {x.name: x for x in inner}
    one = by_name[name]
    while (
        one.operation in ("bitcast", "reshape", "transpose", "copy", "convert") and one.operands[0] in by_name
    ):
        one = by_name[one.operands[0]]
    return one
