"""The domain and the grammar that every ALFWorld game file embeds: checked on reading, written on saving.

The simulator is written after these two texts (`data/alfred.pddl`, `data/alfred.twl2`), so a game with other
rules or other words must not be played: reading it says where it differs.
"""

from __future__ import annotations

import functools
import importlib.resources
import re

from rlanything_jax.envs.alfworld import pddl

_UNKNOWN = "UNKNOWN GOAL."
_MARKUP = set('#{}[]|;<>"\\\n\t')  # what the engine would not print as it stands


@functools.cache
def shipped(name: str) -> str:
    """The text of a file in `data/`."""
    return importlib.resources.files(__package__).joinpath("data", name).read_text(encoding="utf-8")


@functools.cache
def arities() -> dict[str, int]:
    """Predicate, in lower case -> its number of arguments."""
    text = re.sub(r";[^\n]*", "", shipped("alfred.pddl").lower())
    declared = text[text.index("(:predicates") : text.index("(:functions")]
    return {name: arguments.count("?") for name, arguments in re.findall(r"\((\w+) ([^()]*)\)", declared)}


@functools.lru_cache(maxsize=8)
def check_domain(text: str) -> None:
    """Raises ValueError where `text` is not the domain the simulator plays, comments and spaces aside."""
    ours, theirs = pddl.tokens(shipped("alfred.pddl").lower()), pddl.tokens(text.lower())
    # alfworld 0.4.2 ships a domain without this alternative, which no receptacle of a game meets.
    dead = pddl.tokens("(receptacletype ?r sinktype)")
    start = next(i for i in range(len(ours)) if ours[i : i + len(dead)] == dead)
    if theirs not in (ours, ours[:start] + ours[start + len(dead) :]):
        raise ValueError(f"these are not ALFWorld's rules: {_difference(ours, theirs)}")


@functools.cache
def help_text() -> str:
    """What the engine answers to 'help'."""
    start = shipped("alfred.twl2").index("Available commands:")
    return shipped("alfred.twl2")[start:].rpartition('"')[0]


def read_instruction(grammar: str) -> str:
    """The instruction in a game's grammar; ValueError where the rest of it is not ALFWorld's."""
    before, after = shipped("alfred.twl2").split(_UNKNOWN)
    if grammar.startswith(before) and grammar.endswith(after):
        return _checked(grammar[len(before) : len(grammar) - len(after)])
    found = re.search(r"Your task is to: (.*)\"\n", grammar)
    if not found:
        raise ValueError("no rule says 'Your task is to: ...'")
    ours, theirs = _words(before + after), _words(grammar.replace(found[1], "", 1))
    if ours != theirs:
        raise ValueError(f"these are not ALFWorld's texts: {_difference(ours, theirs)}")
    return _checked(found[1])


def write_grammar(instruction: str) -> str:
    """The grammar of a game with this instruction; ValueError where the engine would print it otherwise."""
    return shipped("alfred.twl2").replace(_UNKNOWN, _checked(instruction))


def _checked(instruction: str) -> str:
    if bad := _MARKUP.intersection(instruction):
        raise ValueError(f"instruction {instruction!r} has {sorted(bad)}, which the engine reads as markup")
    return instruction


def _words(grammar: str) -> list[str]:
    """The words of a grammar; alfworld 0.4.2 ships one that wraps the same help text in a rule of its own."""
    text = grammar.replace("\\n", "\n")
    return re.sub(
        r"action help \{.*(Available commands:.*sharp object).*\}", r"\1", text, flags=re.DOTALL
    ).split()


def _difference(ours: list[str], theirs: list[str]) -> str:
    """The first place in which two lists of words differ, with what stands around it."""
    short = min(len(ours), len(theirs))
    first = next((i for i in range(short) if ours[i] != theirs[i]), short)
    here = slice(max(0, first - 8), first + 4)
    return f"it says ...{' '.join(theirs[here])}..., not ...{' '.join(ours[here])}..."
