"""Items of prepared data sets as tasks: 'mbpp:train[:200]' names the first 200 items of MBPP's training split."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

SPLITS = ("train", "valid_seen", "valid_unseen")


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=_Identified)

_SPEC = re.compile(r"(?P<set>\w+):(?P<split>\w+)(?:\[(?P<start>\d*):(?P<stop>\d*)\])?")


class Place(NamedTuple):
    """Where an item is: in which data set, which split of that, at which place, and by which id it is known there."""

    set: str
    split: str
    number: int
    id: str


def check_split(split: str) -> None:
    """ValueError for a split that no world has."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")


def find(
    sources: Mapping[str, str], split: str, data: str | None, kind: type[Item]
) -> Iterator[tuple[Place, Item]]:
    """The items that `sources` names for a split of the world, in their order, from the prepared folder `data`.

    Raises ValueError where nothing is named, where the name cannot be read or is not of a data set of `kind`, and
    FileNotFoundError, with the command that prepares it, where the data set is not there.
    """
    check_split(split)
    if split not in sources:
        raise ValueError(
            f"world.sources={dict(sources)} names no data for {split!r}: add one such as 'mbpp:test[:50]'"
        )
    named = _SPEC.fullmatch(sources[split])
    if named is None:
        raise ValueError(
            f"world.sources.{split}={sources[split]!r} cannot be read: write 'SET:SPLIT' or 'SET:SPLIT[START:STOP]'"
        )
    start, stop = (int(end) if end else None for end in (named["start"], named["stop"]))
    source = _source(data, named["set"], named["split"])
    numbers = range(len(source))[start:stop]
    if not numbers:
        raise ValueError(f"world.sources.{split}={sources[split]!r} holds no items: there are {len(source)}")
    for number in numbers:
        found = _checked(source[number], kind, named["set"])
        yield Place(named["set"], named["split"], number, found.id), found


def item(data: str | None, place: Place, kind: type[Item]) -> Item:
    """The item at a place. ValueError where another one is there now, or one that is not of `kind`."""
    source = _source(data, place.set, place.split)
    found = _checked(source[place.number], kind, place.set) if place.number < len(source) else None
    if found is None or found.id != place.id:
        raise ValueError(
            f"{place.set}:{place.split}[{place.number}] in {data} is {found and found.id!r}, and the task was made from "
            f"{place.id!r}: use the folder that it was made with"
        )
    return found


def _checked(found: Any, kind: type[Item], name: str) -> Item:
    if not isinstance(found, kind):
        raise ValueError(
            f"data set {name!r} holds a {type(found).__name__}, and this world plays a {kind.__name__}"
        )
    return found


@functools.lru_cache(maxsize=8)
def _source(data: str | None, name: str, split: str) -> Any:
    # Imported here because generated tasks need no data sets.
    from rlanything_jax.data.loading import load

    if not data:
        raise ValueError(
            f"{name}:{split} needs world.data, the folder that python -m rlanything_jax.data prepare made"
        )
    return load(name, split, data)
