"""Plays an ALFWorld game as the TextWorld engine does, in plain Python: the same texts, commands and wins.

The rules are the actions of `data/alfred.pddl` and the words those of `data/alfred.twl2`; `conformance.py`
compares this file with the engine. Where the engine does not do what the two seem to say, a comment says why.

One core plays 140,000 steps a second, each with its text and all admissible commands (the engine: some 10); a
reset takes 0.03 ms, building a Simulator 0.8 ms (`python -m benchmarks.environment`).
"""

from __future__ import annotations

import functools
import operator
import zlib
from bisect import insort
from collections.abc import Callable, Iterable, Set

from rlanything_jax.envs.alfworld.condition import Atom, ground, holds, predicates
from rlanything_jax.envs.alfworld.domain import help_text
from rlanything_jax.envs.alfworld.facts import FLUENTS, fluent_atoms, names_by_type, static_atoms
from rlanything_jax.envs.alfworld.game import Game, Object, Receptacle

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
NOTHING_HAPPENS = "Nothing happens."
# Verb -> what allows it, the receptacle types that do it, the state it gives and the state it takes.
_TREATMENTS = {
    "clean": ("cleanable", ("sink", "sinkbasin"), "isclean", None),
    "heat": ("heatable", ("microwave",), "ishot", "iscool"),
    "cool": ("coolable", ("fridge",), "iscool", "ishot"),
}
_KNIVES = ("knife", "butterknife")
# The first line whose states all hold describes an examined object.
_CONDITIONS = (
    (("isclean", "ishot", "issliced"), "This is a hot and clean sliced {}."),
    (("isclean", "iscool", "issliced"), "This is a cool and clean sliced {}."),
    (("isclean", "issliced"), "This is a clean sliced {}."),
    (("ishot", "issliced"), "This is a hot sliced {}."),
    (("iscool", "issliced"), "This is a cool sliced {}."),
    (("isclean", "ishot"), "This is a hot and clean {}."),
    (("isclean", "iscool"), "This is a cool and clean {}."),
    (("ishot",), "This is a hot {}."),
    (("isclean",), "This is a clean {}."),
    (("iscool",), "This is a cold {}."),
    (("toggleable", "istoggled"), "This {} is on."),
    # The engine keeps no record of what was never switched on, so its "This {} is off." is never said.
    (("sliceable", "issliced"), "This is a sliced {}."),
)


class Simulator:
    """One game being played.

    After `reset` and every `step`, `admissible` holds the commands that do something now, sorted, and `won`
    whether the goal is reached.
    """

    def __init__(self, game: Game) -> None:
        """Raises ValueError, naming the game's file, for a goal that is no condition of ALFWorld's domain."""
        self.game = game
        things: list[Receptacle | Object] = [*game.receptacles, *game.objects]
        self._names = {thing.id: thing.name for thing in things}
        self._types = {thing.id: (thing.type or "").lower() for thing in things}
        self._fits = {(receptacle.lower(), kind.lower()) for receptacle, kind in game.can_contain}
        self._place = {receptacle.id: receptacle.location for receptacle in game.receptacles}
        self._at: dict[str, list[str]] = {}  # location -> its receptacles
        for receptacle in game.receptacles:
            self._at.setdefault(receptacle.location, []).append(receptacle.id)
        self._openable = {receptacle.id for receptacle in game.receptacles if receptacle.openable}
        self._can: dict[str, set[str]] = {}  # lasting property in lower case -> the objects that have it
        for object in game.objects:
            for name in object.properties:
                if name.lower() not in FLUENTS:
                    self._can.setdefault(name.lower(), set()).add(object.id)
        self._ways = {f"go to {receptacle.name}": receptacle.id for receptacle in game.receptacles}
        self._ways_from: dict[str, list[str]] = {}  # location -> the commands that leave it
        try:
            self._goal = ground(game.goal.expression, names_by_type(game), static_atoms(game))
        except ValueError as error:
            raise ValueError(f"{game.path or 'game'}: goal: {error}") from None
        self._goal_predicates = predicates(self._goal)
        self._start_facts = fluent_atoms(game)
        self._start_contents: dict[str, list[str]] = {receptacle.id: [] for receptacle in game.receptacles}
        for object in game.objects:  # in the order of ids, in which the engine lists them
            for inside in object.receptacles:
                self._start_contents[inside].append(object.id)
        self._inside: dict[str, list[str]] = {}
        for object in game.objects:
            for outer in object.inside:
                self._inside.setdefault(outer, []).append(object.id)

    def reset(self) -> str:
        """Starts the game over and returns the introduction."""
        self._facts: set[Atom] = set(self._start_facts)
        self._contents = {receptacle: list(contents) for receptacle, contents in self._start_contents.items()}
        # (object, receptacle): taken from it, and not put back into it.
        self._left: set[tuple[str, str]] = set()
        self._location = self.game.start
        self._held: str | None = None
        self.won = holds(self._goal, self._facts)
        self._find_commands()
        seen = self._facing() if self._location in self._at else self._middle(self._place)
        return f"{WELCOME}\n\n{seen}\n\nYour task is to: {self.game.instruction}"

    def step(self, command: str) -> str:
        """Carries out a command and returns the engine's answer, "Nothing happens." if it is inadmissible."""
        command = command.strip()
        if command in self._commands:
            action, *arguments = self._commands[command]
            return action(*arguments)
        receptacle = self._ways.get(command)
        # The engine drops actions that change nothing, and going to where one stands is one.
        if receptacle is None or self._place[receptacle] == self._location:
            return NOTHING_HAPPENS
        return self._go_to(receptacle)

    @property
    def facts(self) -> Set[Atom]:
        """The facts that hold now and that actions can change."""
        return self._facts

    @property
    def state(self) -> str:
        """Equal for two moments of a game, in any process, where all facts but what was looked at are equal."""
        return f"{functools.reduce(operator.xor, map(_digest, self._facts)):08x}"

    @property
    def holding(self) -> str:
        """The name of what the agent carries, or ''."""
        return self._names[self._held] if self._held else ""

    # What can be done.

    def _find_commands(self) -> None:
        """Sets the admissible commands, and what each but 'go to' does."""
        names, here, held = self._names, self._at.get(self._location, ()), self._held
        commands: dict[str, tuple[Callable[..., str], *tuple[str, ...]]] = {
            "help": (self._help,),
            "inventory": (self._inventory,),
            "look": (self._look,),
        }
        pickupable, toggleable = self._can.get("pickupable", ()), self._can.get("toggleable", ())
        for receptacle in here:
            name = names[receptacle]
            commands[f"examine {name}"] = (self._examine_receptacle, receptacle)
            accessible = True
            if receptacle in self._openable:
                accessible = ("opened", receptacle) in self._facts
                verb, action = ("close", self._close) if accessible else ("open", self._open)
                commands[f"{verb} {name}"] = (action, receptacle)
            for object in self._contents[receptacle]:
                if object in toggleable:  # even in a closed receptacle
                    commands[f"use {names[object]}"] = (self._use, object)
                if held is None and accessible and object in pickupable:
                    commands[f"take {names[object]} from {name}"] = (self._take, object, receptacle)
            if held is not None:
                kind = self._types[receptacle]
                if accessible and (kind, self._types[held]) in self._fits:
                    commands[f"move {names[held]} to {name}"] = (self._move, receptacle)
                for verb, (able, kinds, *_) in _TREATMENTS.items():
                    if kind in kinds and held in self._can.get(able, ()):
                        commands[f"{verb} {names[held]} with {name}"] = (self._treat, verb, receptacle)
        if held is not None:
            # The domain would let what lies in sight be examined too, but for a stray comma in its types.
            commands[f"examine {names[held]}"] = (self._examine_object,)
            if self._types[held] in _KNIVES:
                for object in self._can.get("sliceable", ()):
                    if ("objectatlocation", object, self._location) in self._facts:
                        commands[f"slice {names[object]} with {names[held]}"] = (self._slice, object)
        if self._location not in self._ways_from:
            self._ways_from[self._location] = sorted(
                way for way, receptacle in self._ways.items() if self._place[receptacle] != self._location
            )
        self._commands = commands
        self.admissible = tuple(sorted([*self._ways_from[self._location], *commands]))

    # What it does.

    def _change(self, add: Iterable[Atom], remove: Iterable[Atom] = ()) -> None:
        """Makes facts true and false, and finds out what follows."""
        self._facts.difference_update(remove)
        self._facts.update(add)
        if any(atom[0] in self._goal_predicates for atom in (*add, *remove)):
            self.won = holds(self._goal, self._facts)
        self._find_commands()

    def _check(self, name: str) -> None:
        """Records that something was looked at: only a goal can ask for that."""
        if "checked" in self._goal_predicates:
            self._change([("checked", name)])

    def _look(self) -> str:
        self._check(self._location)
        return self._facing() if self._location in self._at else self._middle(())

    def _inventory(self) -> str:
        self._check(self.game.agent)
        return f"You are carrying: a {self.holding}." if self._held else "You are not carrying anything."

    def _help(self) -> str:
        self._check(self.game.agent)
        return help_text()

    def _examine_receptacle(self, receptacle: str) -> str:
        self._check(receptacle)
        return self._describe(receptacle)

    def _examine_object(self) -> str:
        assert self._held is not None
        self._check(self._held)
        name, object = self.holding, self._held
        if object in self._can.get("isreceptacleobject", ()):
            return f"This is a normal {name}. In it, you see {self._a_list(self._inside.get(object, ()))}."
        for states, text in _CONDITIONS:
            if all((state, object) in self._facts or object in self._can.get(state, ()) for state in states):
                return text.format(name)
        return f"There's nothing special about {name}."

    def _go_to(self, receptacle: str) -> str:
        agent, before, after = self.game.agent, self._location, self._place[receptacle]
        self._location = after
        self._change([("atlocation", agent, after)], [("atlocation", agent, before)])
        return f"You arrive at {self._names[receptacle]}. {self._describe(receptacle)}"

    def _open(self, receptacle: str) -> str:
        self._change([("opened", receptacle), ("checked", receptacle)])
        return f"You open the {self._names[receptacle]}. {self._describe(receptacle)}"

    def _close(self, receptacle: str) -> str:
        self._change([], [("opened", receptacle)])
        return f"You close the {self._names[receptacle]}."

    def _take(self, object: str, receptacle: str) -> str:
        agent = self.game.agent
        self._held = object
        self._contents[receptacle].remove(object)
        self._left.add((object, receptacle))
        self._change(
            [("holds", agent, object), ("holdsany", agent)],
            [("inreceptacle", object, receptacle), ("objectatlocation", object, self._location)],
        )
        return f"You pick up the {self._names[object]} from the {self._names[receptacle]}."

    def _move(self, receptacle: str) -> str:
        agent, object = self.game.agent, self._held
        assert object is not None
        self._held = None
        if object not in self._contents[receptacle]:
            insort(self._contents[receptacle], object)
        self._left.discard((object, receptacle))
        self._change(
            [("inreceptacle", object, receptacle), ("objectatlocation", object, self._location)],
            [("holds", agent, object), ("holdsany", agent)],
        )
        return f"You move the {self._names[object]} to the {self._names[receptacle]}."

    def _treat(self, verb: str, receptacle: str) -> str:
        assert self._held is not None
        _, _, gives, takes = _TREATMENTS[verb]
        self._change([(gives, self._held)], [(takes, self._held)] if takes else [])
        return f"You {verb} the {self.holding} using the {self._names[receptacle]}."

    def _use(self, object: str) -> str:
        on = ("ison", object)
        toggled = ("istoggled", object)
        self._change(*([toggled], [on]) if on in self._facts else ([toggled, on], []))
        # "You turn off the ..." is never said: what was toggled once stays toggled.
        return f"You turn on the {self._names[object]}."

    def _slice(self, object: str) -> str:
        self._change([("issliced", object)])
        return f"You sliced the {self._names[object]} with the {self.holding}."

    # How it is told.

    def _describe(self, receptacle: str) -> str:
        name, contents = self._names[receptacle], self._a_list(self._contents[receptacle])
        if receptacle not in self._openable:
            return f"On the {name}, you see {contents}."
        if ("opened", receptacle) in self._facts:
            return f"The {name} is open. In it, you see {contents}."
        return f"The {name} is closed."

    def _facing(self) -> str:
        here = self._at[self._location]
        # What was taken from one receptacle and put into another at the same place is "next to" them.
        beside = [
            object
            for object in sorted({object for object, _ in self._left})
            if ("objectatlocation", object, self._location) in self._facts
            for receptacle in here
            if (object, receptacle) in self._left
        ]
        facing = _listed([self._names[receptacle] for receptacle in here])
        return f"You are facing the {facing}. Next to it, you see {self._a_list(beside)}."

    def _middle(self, receptacles: Iterable[str]) -> str:
        """The view from where no receptacle is. The engine lists them in the introduction only."""
        seen = self._a_list(receptacles)
        return f"You are in the middle of a room. Looking quickly around you, you see {seen}."

    def _a_list(self, things: Iterable[str]) -> str:
        return _listed([f"a {self._names[thing]}" for thing in things])


@functools.cache
def _digest(atom: Atom) -> int:
    return 0 if atom[0] == "checked" else zlib.crc32("\0".join(atom).encode())


def _listed(items: list[str]) -> str:
    if len(items) < 2:
        return items[0] if items else "nothing"
    return f"{', '.join(items[:-1])}, and {items[-1]}"
