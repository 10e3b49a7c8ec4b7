"""Edits of tasks: the small language in which a rewriter changes a game, and what its words do to one.

An edit is one or more changes joined by ' ; ':

    hint on | hint off          say, or no longer say, in the instruction where the target is
    object apple                ask for another type of object
    receptacle cabinet          ask for it in another type of receptacle
    move target to drawer 2     start the target (both, where two are asked for) somewhere else
    add distractor in shelf 1   put one more object of the target's type there
    remove distractors          take away the objects of the target's type that are not needed
    close drawer 2 | open drawer 2

Goal and instruction are always written anew together, so neither can be changed without the other.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from rlanything_jax.envs.alfworld.game import Game, Object, Receptacle, make_goal
from rlanything_jax.envs.alfworld.generate import new_id
from rlanything_jax.envs.alfworld.instruction import has_hint, instruct, template_of
from rlanything_jax.envs.alfworld.planner import Planner, Visit
from rlanything_jax.envs.alfworld.simulator import Simulator
from rlanything_jax.envs.base import Refused

_TYPE = ("[a-z]+", "a type, such as 'apple',")
_PLACE = ("[a-z]+ [1-9][0-9]*", "a place, such as 'drawer 2',")
# Verb -> what its argument looks like, as a pattern and in words.
_ARGUMENTS = {
    "hint": ("on|off", "'on' or 'off'"),
    "object": _TYPE,
    "receptacle": _TYPE,
    "move target to": _PLACE,
    "add distractor in": _PLACE,
    "remove distractors": ("", "nothing"),
    "close": _PLACE,
    "open": _PLACE,
}
_STATES = {"isHot", "isCool", "isClean", "isSliced", "isToggled", "isOn", "isReceptacleObjectFull"}


class Change(NamedTuple):
    """One change: a verb of the language and its argument, '' where it takes none."""

    verb: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.argument}".strip()


@dataclasses.dataclass(frozen=True)
class TaskEdit:
    """Changes to a game, in the order in which they are made. `parse` and `str` are inverses."""

    changes: tuple[Change, ...]

    def __str__(self) -> str:
        return " ; ".join(map(str, self.changes))

    @staticmethod
    def parse(text: str) -> TaskEdit:
        """Reads an edit, whatever its case and spaces. Raises `Refused`, naming the text it cannot read."""
        changes = []
        for part in text.split(";"):
            words = " ".join(part.lower().split())
            verb = next((v for v in _ARGUMENTS if f"{words} ".startswith(f"{v} ")), None)
            if verb is None:
                verbs = ", ".join(_ARGUMENTS)
                raise Refused(f"cannot read {part.strip()!r}: a change starts with one of {verbs}")
            pattern, form = _ARGUMENTS[verb]
            argument = words[len(verb) + 1 :]
            if not re.fullmatch(pattern, argument):
                raise Refused(f"cannot read {part.strip()!r}: {form} goes after {verb!r}")
            changes.append(Change(verb, argument))
        return TaskEdit(tuple(changes))

    def apply(self, game: Game, taken: Collection[str] = ()) -> Game:
        """Returns the edited game, with the walkthrough that wins it.

        Raises `Refused` with the reason where a change cannot be made, where the result cannot be solved,
        is solved before it begins or is the game as it was, and where its `fingerprint` is among `taken`.
        """
        if game.goal.object is None:
            raise Refused(f"{str(self)!r}: the goal of this game is none of the six that can be edited")
        template, hint = template_of(game.goal, game.instruction), has_hint(game.instruction)
        edited = game
        for change in self.changes:
            if change.verb == "hint":
                hint = change.argument == "on"
            else:
                edited = _apply(change, edited)
        visits, walkthrough = _plan(edited, str(self))
        hints = [
            (edited.goal.object or "", edited.receptacles[visit.receptacle].name)
            for visit in visits
            if hint and visit.verb == "take"
        ]
        instruction = instruct(edited.goal, template, hints)
        edited = dataclasses.replace(edited, instruction=instruction, walkthrough=tuple(walkthrough))
        mark = fingerprint(edited)
        if mark == fingerprint(game):
            raise Refused(f"{str(self)!r} changes nothing")
        if mark in taken:
            raise Refused(f"{str(self)!r} makes a task that is already in the pool")
        return edited


def single_edits(game: Game) -> list[str]:
    """Every edit of one change in a fixed order, those included that cannot be made."""
    places = [r.name for r in game.receptacles]
    of_verb = {
        "hint": ["on", "off"],
        "object": sorted({o.type.lower() for o in game.objects if o.type}),
        "receptacle": sorted({r.type.lower() for r in game.receptacles if r.type}),
        "remove distractors": [""],
    }
    return [str(Change(verb, argument)) for verb in _ARGUMENTS for argument in of_verb.get(verb, places)]


def fingerprint(game: Game) -> str:
    """Equal for two games if and only if they are the same game: scene, goal and instruction."""
    names = {r.id: r.name for r in game.receptacles} | {o.id: o.name for o in game.objects}
    content = (
        [(r.name, r.location, r.openable, r.opened) for r in game.receptacles],
        [
            (
                o.name,
                sorted(o.properties),
                [names[r] for r in o.receptacles],
                o.locations,
                [names[i] for i in o.inside],
            )
            for o in game.objects
        ],
        sorted(game.can_contain),
        game.start,
        game.goal,
        game.instruction,
    )
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _plan(game: Game, why: str) -> tuple[Sequence[Visit], list[str]]:
    """The visits and commands of a shortest plan. Raises Refused where there is none or none is needed."""
    simulator = Simulator(game)
    simulator.reset()
    if simulator.won:
        raise Refused(f"{why!r} makes a task that is solved before it begins")
    planner = Planner(game)
    view = planner.view(simulator.facts)
    _, visits = planner.shortest(view)
    if not visits:
        raise Refused(f"{why!r} makes a task that cannot be solved")
    return visits, planner.commands(view, visits)


def _apply(change: Change, game: Game) -> Game:
    """Makes one change other than that of the hint; the instruction is left for later."""
    verb, name = change
    goal = game.goal
    match verb:
        case "object":
            type = _type(name, [o.type for o in game.objects if "pickupable" in o.properties], change)
            new = make_goal(goal.task_type, type, receptacle=goal.receptacle, toggle=goal.toggle)
            return dataclasses.replace(game, goal=new)
        case "receptacle":
            if goal.receptacle is None or goal.object is None:
                raise Refused(f"{str(change)!r}: this task does not end in a receptacle")
            type = _type(name, [r.type for r in game.receptacles], change)
            return dataclasses.replace(game, goal=make_goal(goal.task_type, goal.object, receptacle=type))
        case "remove distractors":
            return _remove_distractors(game, change)
    place = next((r for r in game.receptacles if r.name == name), None)
    if place is None:
        raise Refused(f"{str(change)!r}: there is no {name} in this room")
    match verb:
        case "open" | "close":
            if not place.openable:
                raise Refused(f"{str(change)!r}: {name} has no door")
            turned = dataclasses.replace(place, opened=verb == "open")
            return dataclasses.replace(
                game, receptacles=tuple(turned if r is place else r for r in game.receptacles)
            )
        case "move target to":
            used = {
                game.objects[visit.object] for visit in _plan(game, str(change))[0] if visit.verb == "take"
            }
            return dataclasses.replace(
                game, objects=tuple(_put(o, place) if o in used else o for o in game.objects)
            )
        case _:
            return dataclasses.replace(game, objects=(*game.objects, _distractor(game, place)))


def _type(name: str, types: Collection[str | None], change: Change) -> str:
    """The type among `types` that `name` is in lower case."""
    for type in types:
        if type and type.lower() == name:
            return type
    raise Refused(f"{str(change)!r}: there is no {name} in this room")


def _put(thing: Object, place: Receptacle) -> Object:
    return dataclasses.replace(thing, receptacles=(place.id,), locations=(place.location,), inside=())


def _distractor(game: Game, place: Receptacle) -> Object:
    """One more object of the target's type, numbered after all others."""
    alike = [o for o in game.objects if o.type == game.goal.object]
    kind = alike[0].id.partition("_bar_")[0]
    numbered = re.findall(rf"^{kind}_bar_(\d+)$", "\n".join(o.id for o in alike), re.MULTILINE)
    number = max([len(alike), *(1000 - int(digits) for digits in numbered)]) + 1
    new = dataclasses.replace(
        alike[0], id=new_id(kind, number), properties=alike[0].properties - _STATES, name=""
    )
    return _put(new, place)


def _remove_distractors(game: Game, change: Change) -> Game:
    """Leaves as many objects of the target's type as are asked for, those of a shortest plan first."""
    visits, _ = _plan(game, str(change))
    used = [game.objects[visit.object].id for visit in visits if visit.verb == "take"]
    ends = {game.receptacles[visit.receptacle].id for visit in visits if visit.verb == "move"}
    # The other one of two may lie where it belongs already.
    alike = sorted(
        (o for o in game.objects if o.type == game.goal.object),
        key=lambda o: (o.id not in used, ends.isdisjoint(o.receptacles)),
    )
    removed = {o.id for o in alike[2 if game.task_type == "pick_two_obj_and_place" else 1 :]}
    return dataclasses.replace(
        game,
        objects=tuple(
            dataclasses.replace(o, inside=tuple(i for i in o.inside if i not in removed))
            for o in game.objects
            if o.id not in removed
        ),
    )
