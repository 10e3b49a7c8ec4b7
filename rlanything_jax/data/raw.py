"""Reads raw files of records and converts them; a record that cannot be used is named, and reading goes on."""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rlanything_jax.envs.code.problem import RecordError


class Identified(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=Identified)


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A record that is left out: of which file, which one (counted from 1), for which field, why."""

    file: str
    record: int
    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, record {self.record}, {self.field or 'whole record'}: {self.reason}"


def read(path: Path, convert: Callable[[Mapping[str, Any]], Item]) -> Iterator[Item | Rejected]:
    """Yields what `convert` makes of each record of a .jsonl or .json file (a list), or why it is left out.

    A file may be gzipped, and may be cut anywhere: what comes before the cut is read. `convert` raises RecordError;
    its items have an `id`, and one that repeats an earlier one is left out. A record without an 'id' is given one
    from the file's name and its place.
    """
    seen: set[str] = set()
    stem = path.name.partition(".")[0]
    for number, record in enumerate(_records(path), 1):
        try:
            if isinstance(record, RecordError):
                raise record
            if not isinstance(record, dict):
                raise RecordError("", f"must be an object, got {type(record).__name__}")
            item = convert({"id": f"{stem}-{number}", **record})
            if item.id in seen:
                raise RecordError("id", f"repeats {item.id!r}")
        except RecordError as error:
            yield Rejected(path.name, number, error.field, error.reason)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            yield Rejected(path.name, number, "", f"has an unexpected shape: {type(error).__name__}: {error}")
        else:
            seen.add(item.id)
            yield item


def _records(path: Path) -> Iterator[Any]:
    """The records, a RecordError in place of one that cannot be read."""
    lines = ".jsonl" in path.suffixes
    if path.suffix == ".gz":
        content, cut = _unzipped(path.read_bytes())
        yield from map(_line, filter(bytes.strip, content.split(b"\n"))) if lines else _array(content)
        if cut and (not lines or content.endswith(b"\n")):
            yield RecordError("", "the compressed file is cut off here")
    elif lines:
        with path.open("rb") as file:
            yield from map(_line, filter(bytes.strip, file))
    else:
        yield from _array(path.read_bytes())


def _unzipped(packed: bytes) -> tuple[bytes, bool]:
    """(what can be had, whether the rest is missing)."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    content = bytearray()
    try:
        # In small pieces: what a piece holds before a fault is lost.
        for start in range(0, len(packed), 1024):
            content += stream.decompress(packed[start : start + 1024])
    except zlib.error:
        return bytes(content), True
    return bytes(content), not stream.eof


def _line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return RecordError(
            _last_key(line.decode("utf-8", "replace")), f"is not JSON, perhaps cut off: {error}"
        )


def _array(content: bytes) -> Iterator[Any]:
    text = content.decode("utf-8", "replace")
    start = re.compile(r"\s*\[\s*").match(text)
    if start is None:
        yield RecordError("", f"the file must hold a list of records, it begins with {text[:40]!r}")
        return
    position, separator = start.end(), re.compile(r"\s*(,|\]|$)\s*")
    while position < len(text):
        try:
            record, position = json.JSONDecoder().raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield RecordError(_last_key(text[position:]), f"is not JSON, perhaps cut off: {error}")
            return
        yield record
        after = separator.match(text, position)
        if after is None or not after[1]:
            yield RecordError("", "the file is cut off here" if after else "no comma before this record")
            return
        if after[1] == "]":
            return
        position = after.end()


def _last_key(text: str) -> str:
    """The field in which a record breaks off, as far as can be seen."""
    keys = re.findall(r'[{,]\s*"([A-Za-z_]\w*)"\s*:', text[-100_000:])
    return keys[-1] if keys else ""
