"""The grammar of generated functions: operations on an integer, a string or a list of integers.

An operation is said in a sentence, written as one line of Python and meant by a function on this side; line and meaning are
written independently and agree on every value of the type. Operations of one family are those that somebody in a hurry takes for
each other: many differ on some inputs only, so that a test must choose its input well to tell them apart.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

TYPES = ("int", "str", "list")
LETTERS = "abcd"


@dataclasses.dataclass(frozen=True)
class Op:
    """One operation on `x`; `{k}` in its texts stands for its constant as a Python literal.

    constants: the values of `{k}` in the order in which neighbours are mistaken for each other, (None,) where there is none.
    """

    name: str
    family: str
    takes: str  # one of TYPES, as is `gives`
    gives: str
    line: str
    sentences: tuple[str, ...]
    meaning: Callable[[Any, Any], Any]  # (x, k) -> x
    constants: tuple[Any, ...]


# Type and name, family and line of every operation, and below it the sentences that say it.
_TEXTS = """
int.add | shift | x = x + {k}
    Add {k}. | Increase it by {k}.
int.sub | shift | x = x - {k}
    Subtract {k}. | Decrease it by {k}.
int.sub_above | shift | x = x - {k} if x > {k} else x
    If it is above {k}, subtract {k}. | Subtract {k} if it is above {k}.
int.double | scale | x = x + x
    Double it. | Add it to itself.
int.times | scale | x = x * {k}
    Multiply it by {k}. | Take it {k} times.
int.mod | divide | x = x % {k}
    Take it modulo {k}. | Reduce it modulo {k}.
int.div | divide | x = x // {k}
    Divide it by {k}, rounding down. | Floor divide it by {k}.
int.neg | sign | x = -x
    Negate it. | Flip its sign.
int.abs | sign | x = abs(x)
    Take its absolute value. | Drop its sign.
int.neg_odd | sign | x = -x if x % 2 == 1 else x
    Negate it if it is odd. | If it is odd, flip its sign.
int.at_least | bound | x = max(x, {k})
    Raise it to at least {k}. | If it is below {k}, make it {k}.
int.at_most | bound | x = min(x, {k})
    Lower it to at most {k}. | If it is above {k}, make it {k}.
int.negative_to | bound | x = {k} if x < 0 else x
    If it is negative, make it {k}. | Replace it by {k} if it is negative.
int.halve_even | parity | x = x // 2 if x % 2 == 0 else x + 1
    If it is even, halve it, otherwise add 1. | Halve it if it is even, else add 1.
int.double_even | parity | x = x * 2 if x % 2 == 0 else x - 1
    If it is even, double it, otherwise subtract 1. | Double it if it is even, else subtract 1.
int.pair | pair | x = [x, {k}]
    Make a list of it and {k}. | Put it in a list, followed by {k}.
int.span | pair | x = [x, x + {k}]
    Make a list of it and it plus {k}. | Put it in a list, followed by it plus {k}.
str.reverse | order | x = x[::-1]
    Reverse it. | Turn it around.
str.sort | order | x = ''.join(sorted(x))
    Sort it. | Put it in alphabetical order.
str.reverse_long | order | x = x[::-1] if len(x) > {k} else x
    If it is longer than {k}, reverse it. | Reverse it if it is longer than {k}.
str.drop_first | cut | x = x[1:]
    Drop its first letter. | Remove the first letter.
str.drop_last | cut | x = x[:-1]
    Drop its last letter. | Remove the last letter.
str.keep_first | cut | x = x[:{k}]
    Keep its first {k} letters. | Cut it off after {k} letters.
str.repeat | grow | x = x + x
    Write it twice in a row. | Append it to itself.
str.append | grow | x = x + {k}
    Append {k}. | Put {k} at the end.
str.remove | filter | x = ''.join(y for y in x if y != {k})
    Remove every {k}. | Drop each letter that is {k}.
str.unique | filter | x = ''.join(dict.fromkeys(x))
    Drop repeated letters, but keep the first of each. | Keep only the first of equal letters.
str.count | measure | x = sum(y == {k} for y in x)
    Count how often {k} occurs. | Count the letters that are {k}.
str.len | measure | x = len(x)
    Take its length. | Count its letters.
str.change | filter | x = x.replace({k}, 'a')
    Change every {k} to 'a'. | Write 'a' for every {k}.
str.skip | cut | x = x[1:] if x[:1] == {k} else x
    If it starts with {k}, drop that letter. | Drop the first letter if it is {k}.
list.reverse | order | x = x[::-1]
    Reverse it. | Turn it around.
list.sort | order | x = sorted(x)
    Sort it. | Put it in ascending order.
list.reverse_long | order | x = x[::-1] if len(x) > {k} else x
    If it is longer than {k}, reverse it. | Reverse it if it is longer than {k}.
list.drop_first | cut | x = x[1:]
    Drop its first element. | Remove the first element.
list.drop_last | cut | x = x[:-1]
    Drop its last element. | Remove the last element.
list.keep_first | cut | x = x[:{k}]
    Keep its first {k} elements. | Cut it off after {k} elements.
list.repeat | grow | x = x + x
    Write it twice in a row. | Append it to itself.
list.append | grow | x = [*x, {k}]
    Append {k}. | Put {k} at the end.
list.remove | filter | x = [y for y in x if y != {k}]
    Remove every {k}. | Drop each element that is {k}.
list.unique | filter | x = list(dict.fromkeys(x))
    Drop repeated elements, but keep the first of each. | Keep only the first of equal elements.
list.count | measure | x = sum(y == {k} for y in x)
    Count how often {k} occurs. | Count the elements that are {k}.
list.len | measure | x = len(x)
    Take its length. | Count its elements.
list.each_add | each | x = [y + {k} for y in x]
    Add {k} to each element. | Increase every element by {k}.
list.each_double | each | x = [y * 2 for y in x]
    Double each element. | Multiply every element by 2.
list.keep_even | keep | x = [y for y in x if y % 2 == 0]
    Keep only even elements. | Remove all odd elements.
list.keep_above | keep | x = [y for y in x if y > {k}]
    Keep only elements above {k}. | Remove all elements up to {k}.
list.sum | measure | x = sum(x)
    Add up its elements. | Take its sum.
list.largest | measure | x = max(x, default=0)
    Take its largest element, 0 if there is none. | Take the maximum, 0 if there is none.
list.smallest | measure | x = min(x, default=0)
    Take its smallest element, 0 if there is none. | Take the minimum, 0 if there is none.
list.first | measure | x = x[0] if x else 0
    Take its first element, 0 if there is none. | Pick the first element, 0 if there is none.
list.last | measure | x = x[-1] if x else 0
    Take its last element, 0 if there is none. | Pick the last element, 0 if there is none.
"""

# What they mean, by name; of one that strings and lists share, for both.
_MEANINGS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, k: x + k,
    "sub": lambda x, k: x - k,
    "sub_above": lambda x, k: x - k * (x > k),
    "double": lambda x, k: 2 * x,
    "times": lambda x, k: k * x,
    "mod": lambda x, k: x - k * math.floor(x / k),
    "div": lambda x, k: math.floor(x / k),
    "neg": lambda x, k: 0 - x,
    "abs": lambda x, k: x if x > 0 else 0 - x,
    "neg_odd": lambda x, k: 0 - x if x & 1 else x,
    "at_least": lambda x, k: x if x > k else k,
    "at_most": lambda x, k: x if x < k else k,
    "negative_to": lambda x, k: x if x >= 0 else k,
    "halve_even": lambda x, k: x + 1 if x & 1 else x >> 1,
    "double_even": lambda x, k: x - 1 if x & 1 else x + x,
    "pair": lambda x, k: [x] + [k],
    "span": lambda x, k: [x + n for n in (0, k)],
    "reverse": lambda x, k: _like(x, reversed(x)),
    "sort": lambda x, k: _like(x, (y for y in sorted(set(x)) for _ in range(x.count(y)))),
    "reverse_long": lambda x, k: _like(x, reversed(x)) if x[k:] else x,
    "drop_first": lambda x, k: _like(x, (x[i] for i in range(1, len(x)))),
    "drop_last": lambda x, k: _like(x, (x[i] for i in range(len(x) - 1))),
    "keep_first": lambda x, k: _like(x, (y for i, y in enumerate(x) if i < k)),
    "repeat": lambda x, k: 2 * x,
    "append": lambda x, k: _like(x, (*x, k)),
    "remove": lambda x, k: _like(x, filter(lambda y: y not in (k,), x)),
    "unique": lambda x, k: _like(x, (y for i, y in enumerate(x) if y not in x[:i])),
    "count": lambda x, k: Counter(x)[k],
    "len": lambda x, k: Counter(x).total(),
    "change": lambda x, k: "a".join(x.split(k)),
    "skip": lambda x, k: x.removeprefix(k),
    "each_add": lambda x, k: list(map(k.__add__, x)),
    "each_double": lambda x, k: [y + y for y in x],
    "keep_even": lambda x, k: [y for y in x if not y & 1],
    "keep_above": lambda x, k: [y for y in x if not y <= k],
    "sum": lambda x, k: int(math.fsum(x)),
    "largest": lambda x, k: [0, *sorted(x)][-1] if x else 0,
    "smallest": lambda x, k: sorted(x)[0] if x else 0,
    "first": lambda x, k: next(iter(x), 0),
    "last": lambda x, k: next(reversed(x), 0),
}

# Constants, by name.
_CONSTANTS: Mapping[str, Iterable[Any]] = {
    **dict.fromkeys(("add", "sub", "sub_above"), range(1, 10)),
    "times": (3, 4),
    "mod": range(2, 8),
    "div": range(2, 5),
    **dict.fromkeys(("at_least", "at_most"), range(6)),
    **dict.fromkeys(("negative_to", "pair", "span", "each_add", "keep_above"), range(1, 6)),
    **dict.fromkeys(("reverse_long", "keep_first"), (2, 3)),
    "change": LETTERS[1:],
}
_ITEMS: Mapping[str, Iterable[Any]] = {
    "str": LETTERS,
    "list": range(1, 7),
}  # constants of all others that have one


def _like(x: Any, items: Iterable[Any]) -> Any:
    """A string or a list, as `x` is, of `items`."""
    return "".join(items) if isinstance(x, str) else list(items)


def _read(head: str, said: str) -> Op:
    full_name, family, line = head.split(" | ")
    takes, name = full_name.split(".")
    constants = _CONSTANTS.get(name) or _ITEMS[takes] if "{k}" in line else (None,)
    return Op(
        name=full_name,
        family=family,
        takes=takes,
        gives={"measure": "int", "pair": "list"}.get(family, takes),
        line=line,
        sentences=tuple(said.strip().split(" | ")),
        meaning=_MEANINGS[name],
        constants=tuple(constants),
    )


_LINES = _TEXTS.strip().splitlines()
OPS: Mapping[str, Op] = {op.name: op for op in map(_read, _LINES[::2], _LINES[1::2])}
