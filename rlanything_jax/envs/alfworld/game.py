"""A game: the room, the goal and the instruction of one ALFWorld game file, read, changed and written again.

A game file is JSON with `pddl_domain`, `grammar`, `pddl_problem`, and perhaps `walkthrough` and `solvable`.
Domain and grammar are the same text in every file, so only what differs is kept: a Game is a few tens of
kilobytes. Names and numbers of things ('cabinet 4') are the TextWorld engine's and follow from the PDDL
ids; a Game that is changed with `dataclasses.replace` numbers its things anew, as the engine does when it
loads the saved file.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from sys import intern
from typing import Any, TypeVar

from rlanything_jax.envs.alfworld import pddl
from rlanything_jax.envs.alfworld.domain import check_domain, read_instruction, shipped, write_grammar
from rlanything_jax.envs.alfworld.goal import Goal, make_goal, read_goal

__all__ = ["Game", "Goal", "Object", "Receptacle", "find_games", "load_game", "make_goal", "read_goal"]

FILE_NAME = "game.tw-pddl"
# What can hold of one object in the beginning; the engine's domain knows no other.
PROPERTIES = frozenset(
    "pickupable heatable coolable cleanable sliceable toggleable moveable isReceptacleObject"
    " isReceptacleObjectFull isHot isCool isClean isSliced isToggled isOn".split()
)
_PROPERTY = {name.lower(): name for name in PROPERTIES}
# Types that the domain's actions name, so that every problem has to declare them.
DOMAIN_TYPES = {
    "KnifeType": "otype",
    "ButterKnifeType": "otype",
    "SinkType": "otype",
    "SinkBasinType": "rtype",
    "MicrowaveType": "rtype",
    "FridgeType": "rtype",
}
# Predicates of two arguments that a game may start with, and the types of these.
_ARGUMENTS = {
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "objectatlocation": ("object", "location"),
    "inreceptacle": ("object", "receptacle"),
    "inreceptacleobject": ("object", "object"),
    "receptacletype": ("receptacle", "rtype"),
    "objecttype": ("object", "otype"),
    "cancontain": ("rtype", "otype"),
}
_SHARED: dict[Any, Any] = {}  # equal parts of different games, kept once


@dataclasses.dataclass(frozen=True, slots=True)
class Receptacle:
    """A piece of furniture or an appliance. `name` is filled in by the Game that holds it."""

    id: str  # PDDL id in lower case, e.g. 'cabinet_bar_01'
    type: str  # 'Cabinet'
    location: str  # where the agent stands to use it; several receptacles may share one
    openable: bool = False
    opened: bool = False
    name: str = ""  # 'cabinet 4'


@dataclasses.dataclass(frozen=True, slots=True)
class Object:
    """A thing. `name` is filled in by the Game that holds it."""

    id: str
    type: str | None  # 'Mug'; None for the few things of real games that have none
    properties: frozenset[str] = frozenset()  # of PROPERTIES
    receptacles: tuple[
        str, ...
    ] = ()  # ids; two where it lies in a pan on a table, none if it is out of reach
    locations: tuple[str, ...] = ()  # its objectAtLocation facts
    inside: tuple[str, ...] = ()  # ids of the receptacle objects (a box, a pot) it lies in
    name: str = ""  # 'mug 1'

    @property
    def receptacle(self) -> str | None:
        """The id of the first receptacle it is in, or None."""
        return self.receptacles[0] if self.receptacles else None

    @property
    def location(self) -> str | None:
        """The first of its locations, or None."""
        return self.locations[0] if self.locations else None


@dataclasses.dataclass(frozen=True, slots=True)
class Game:
    """One game. Receptacles and objects stand in the order of their ids, in which the engine lists them."""

    receptacles: tuple[Receptacle, ...]
    objects: tuple[Object, ...]
    can_contain: frozenset[tuple[str, str]]  # (receptacle type, object type)
    start: str  # the agent's first location
    goal: Goal
    instruction: str  # 'put a hot apple in fridge.'
    walkthrough: tuple[str, ...] = ()  # commands that win, where known
    declared: tuple[tuple[str, str], ...] = ()  # (name, PDDL type) of what no fact mentions
    agent: str = "agent1"
    path: str = dataclasses.field(default="", compare=False)  # the file it was read from

    def __post_init__(self) -> None:
        names = number([r.id for r in self.receptacles] + [o.id for o in self.objects])
        object.__setattr__(self, "receptacles", _named(self.receptacles, names))
        object.__setattr__(self, "objects", _named(self.objects, names))

    @property
    def task_type(self) -> str:
        """One of the six task types, or 'other'."""
        return self.goal.task_type

    @staticmethod
    def from_json(data: Mapping[str, Any], path: str = "") -> Game:
        """Reads the contents of a game file; ValueError names `path` and the field at fault."""
        where = path or "game"
        if not isinstance(data, Mapping):
            raise ValueError(f"{where}: a game file holds a JSON object, not {type(data).__name__}")
        readers: dict[str, Callable[[str], Any]] = {
            "pddl_domain": check_domain,
            "grammar": read_instruction,
            "pddl_problem": _read_problem,
        }
        found = {}
        for field, reader in readers.items():
            if not isinstance(data.get(field), str):
                raise ValueError(
                    f"{where}: field {field!r} is missing or no string; present are {sorted(data)}"
                )
            try:
                found[field] = reader(data[field])
            except ValueError as error:
                raise ValueError(f"{where}: field {field!r}: {error}") from None
        walkthrough = data.get("walkthrough") or []
        if not isinstance(walkthrough, list) or not all(isinstance(command, str) for command in walkthrough):
            raise ValueError(f"{where}: field 'walkthrough' is no list of commands: {str(walkthrough)[:80]}")
        return Game(
            **found["pddl_problem"],
            instruction=found["grammar"],
            walkthrough=tuple(map(intern, walkthrough)),
            path=path,
        )

    def to_json(self) -> dict[str, Any]:
        """The contents of a game file that the TextWorld engine plays as this game."""
        return {
            "pddl_domain": shipped("alfred.pddl"),
            "grammar": write_grammar(self.instruction),
            "pddl_problem": _write_problem(self),
            "solvable": True,
            "walkthrough": list(self.walkthrough),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the game file."""
        Path(path).write_text(json.dumps(self.to_json()), encoding="utf-8")


def load_game(path: str | os.PathLike[str]) -> Game:
    """Reads a game file; FileNotFoundError or ValueError names the file and what is wrong with it."""
    path = os.fspath(path)
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder: pass one of its game files (find_games lists them)")
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: not a complete JSON file ({error}): copy the game again") from None
    return Game.from_json(data, path)


def find_games(folder: str | os.PathLike[str]) -> list[str]:
    """The sorted paths of all game files under `folder`; FileNotFoundError where there is none."""
    folder = os.fspath(folder)
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"{folder} is not a folder: pass the one that holds ALFWorld's {FILE_NAME} files"
        )
    paths = sorted(os.path.join(root, FILE_NAME) for root, _, files in os.walk(folder) if FILE_NAME in files)
    if not paths:
        raise FileNotFoundError(f"no file named {FILE_NAME} anywhere under {folder}: unpack the games there")
    return paths


def number(ids: Iterable[str]) -> dict[str, str]:
    """id -> the engine's name for it: what precedes '_bar_', and its rank among these, the last id first."""
    names: dict[str, str] = {}
    count: Counter[str] = Counter()
    for id in sorted(ids, reverse=True):
        kind, bar, _ = id.partition("_bar_")
        if bar:
            kind += "basin" if "basin" in id else ""
            count[kind] += 1
        names[id] = intern(f"{kind} {count[kind]}" if bar else f"{kind} ")
    return names


_Part = TypeVar("_Part")


def _share(part: _Part) -> _Part:
    """The first part equal to this one."""
    return _SHARED.setdefault(part, part)


_Thing = TypeVar("_Thing", Receptacle, Object)


def _named(things: Iterable[_Thing], names: Mapping[str, str]) -> tuple[_Thing, ...]:
    """`things` in the order of their ids, each with its name."""
    ordered = sorted(things, key=lambda thing: thing.id)
    for before, after in zip(ordered, ordered[1:], strict=False):
        if before.id == after.id:
            raise ValueError(f"{after.id} is there twice: ids must differ")
    return tuple(
        thing if thing.name == names[thing.id] else dataclasses.replace(thing, name=names[thing.id])
        for thing in ordered
    )


def _read_problem(text: str) -> dict[str, Any]:
    """The fields of Game that a PDDL problem holds."""
    match pddl.read(text):
        case (("define", *parts),):
            sections = {part[0]: part[1:] for part in parts if isinstance(part, tuple) and part}
        case _:
            raise ValueError("a single (define (problem ...) ...) was expected")
    for name in (":objects", ":init", ":goal"):
        if name not in sections:
            raise ValueError(f"section {name} is missing")
    if len(sections[":goal"]) != 1:
        raise ValueError(f"section :goal holds {len(sections[':goal'])} conditions, not one")
    symbols: dict[str, str] = {}  # lower case -> as declared
    kinds: dict[str, str] = {}
    for name, kind in pddl.declarations(sections[":objects"]):
        symbols.setdefault(name.lower(), name)
        kinds[intern(name.lower())] = intern(kind.lower())
    facts = _Facts(sections[":init"], kinds)

    def type_of(symbol: str) -> str:
        if not symbol.endswith("type"):
            raise ValueError(f"type {symbols[symbol]!r} does not end in 'Type'")
        return intern(symbols[symbol][:-4])

    receptacles = [
        Receptacle(
            id,
            type_of(facts.one("receptacletype", id)),
            facts.one("receptacleatlocation", id),
            openable=id in facts["openable"],
            opened=id in facts["opened"],
        )
        for id in facts.mentioned
        if kinds[id] == "receptacle"
    ]
    objects = [
        Object(
            id,
            type_of(facts.one("objecttype", id)) if id in facts["objecttype"] else None,
            _share(frozenset(name for key, name in _PROPERTY.items() if id in facts[key])),
            receptacles=tuple(facts["inreceptacle"].get(id, ())),
            locations=tuple(facts["objectatlocation"].get(id, ())),
            inside=tuple(facts["inreceptacleobject"].get(id, ())),
        )
        for id in facts.mentioned
        if kinds[id] == "object"
    ]
    agents = list(facts["atlocation"])
    if len(agents) != 1:
        raise ValueError(f"one agent with an atLocation fact was expected, not {len(agents)}")
    return {
        "receptacles": tuple(receptacles),
        "objects": tuple(objects),
        "can_contain": _share(
            frozenset(
                _share((type_of(receptacle), type_of(object)))
                for receptacle, contained in facts["cancontain"].items()
                for object in contained
            )
        ),
        "start": facts.one("atlocation", agents[0]),
        "goal": _share(read_goal(sections[":goal"][0])),
        "declared": tuple(
            _share((intern(symbols[name]), kind))
            for name, kind in kinds.items()
            if name not in facts.mentioned and symbols[name] not in DOMAIN_TYPES
        ),
        "agent": agents[0],
    }


class _Facts(dict[str, dict[str, list[str]]]):
    """The initial facts in lower case: predicate -> first argument -> second arguments."""

    def __init__(self, section: Iterable[pddl.Expression], kinds: Mapping[str, str]) -> None:
        super().__init__({name: {} for name in (*_ARGUMENTS, *_PROPERTY, "openable", "opened")})
        self.mentioned: dict[str, None] = {}
        for fact in section:
            if fact[:1] == ("=",):  # (= (total-cost) 0): costs have no part in the play
                continue
            names = [symbol.lower() if isinstance(symbol, str) else "" for symbol in fact]
            head, arguments = names[0] if names else "", [intern(name) for name in names[1:]]
            if head not in self:
                raise ValueError(f"initial fact {pddl.write(fact)[:80]} is none that a game may start with")
            expected = _ARGUMENTS.get(
                head, ("receptacle",) if head in ("openable", "opened") else ("object",)
            )
            for argument, kind in zip(arguments, expected, strict=False):
                if kinds.get(argument) != kind:
                    raise ValueError(
                        f"initial fact {pddl.write(fact)}: {argument!r} is not declared as {kind}"
                    )
            if len(arguments) != len(expected):
                raise ValueError(f"initial fact {pddl.write(fact)} should have {len(expected)} arguments")
            seconds = self[head].setdefault(arguments[0], [])
            seconds += [argument for argument in arguments[1:] if argument not in seconds]
            self.mentioned.update(dict.fromkeys(arguments))

    def one(self, predicate: str, name: str) -> str:
        """The only second argument of `predicate` with `name`."""
        found = self[predicate].get(name, [])
        if len(found) != 1:
            raise ValueError(f"{name} has {len(found)} {predicate} facts, not one")
        return found[0]


def _write_problem(game: Game) -> str:
    """The PDDL problem of `game`, the inverse of `_read_problem`."""
    kinds = {game.agent: "agent"}
    kinds |= {f"{receptacle.type}Type": "rtype" for receptacle in game.receptacles}
    kinds |= {f"{name}Type": "rtype" for name, _ in sorted(game.can_contain)}
    kinds |= {f"{object.type}Type": "otype" for object in game.objects if object.type}
    kinds |= {f"{name}Type": "otype" for _, name in sorted(game.can_contain)}
    kinds |= {object.id: "object" for object in game.objects}
    kinds |= {receptacle.id: "receptacle" for receptacle in game.receptacles}
    places = {receptacle.location for receptacle in game.receptacles}.union(
        *(o.locations for o in game.objects)
    )
    kinds |= {place: "location" for place in sorted(places | {game.start})}
    for name, kind in (*game.declared, *DOMAIN_TYPES.items()):
        kinds.setdefault(name, kind)

    facts = [f"atLocation {game.agent} {game.start}"]
    for receptacle in game.receptacles:
        facts.append(f"receptacleType {receptacle.id} {receptacle.type}Type")
        facts.append(f"receptacleAtLocation {receptacle.id} {receptacle.location}")
        facts += [f"openable {receptacle.id}"] * receptacle.openable + [
            f"opened {receptacle.id}"
        ] * receptacle.opened
    for object in game.objects:
        facts += [f"objectType {object.id} {object.type}Type"] if object.type else []
        facts += [f"{name} {object.id}" for name in sorted(object.properties)]
        facts += [f"inReceptacle {object.id} {receptacle}" for receptacle in object.receptacles]
        facts += [f"objectAtLocation {object.id} {location}" for location in object.locations]
        facts += [f"inReceptacleObject {object.id} {outer}" for outer in object.inside]
    facts += [f"canContain {receptacle}Type {name}Type" for receptacle, name in sorted(game.can_contain)]
    return "\n".join(
        [
            "(define (problem game)",
            "(:domain alfred)",
            "(:objects",
            *(f"    {name} - {kind}" for name, kind in kinds.items()),
            ")",
            "(:init",
            *(f"    ({fact})" for fact in facts),
            ")",
            f"(:goal {pddl.write(game.goal.expression)})",
            ")\n",
        ]
    )
