"""What a game asks for: the goal of an ALFWorld problem, recognised where it is one of the six task types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rlanything_jax.envs.alfworld import pddl

OTHER = "other"

_PLACE = "(and (exists (?r - receptacle) (exists (?o - object) (and {0}))))"
_TEMPLATES = {
    "pick_and_place_simple": _PLACE.format(
        "(inReceptacle ?o ?r) (objectType ?o {object}Type) (receptacleType ?r {receptacle}Type)"
    ),
    "look_at_obj_in_light": (
        "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and"
        " (objectType ?ot {toggle}Type) (toggleable ?ot) (isToggled ?ot)"
        " (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))"
        " (exists (?o - object ?a - agent) (and (objectType ?o {object}Type) (holds ?a ?o))))"
    ),
    **{
        f"pick_{verb}_then_place_in_recep": _PLACE.format(
            f"({able} ?o) (objectType ?o {{object}}Type) (receptacleType ?r {{receptacle}}Type) ({state} ?o)"
            " (inReceptacle ?o ?r)"
        )
        for verb, able, state in (
            ("clean", "cleanable", "isClean"),
            ("heat", "heatable", "isHot"),
            ("cool", "coolable", "isCool"),
        )
    },
    "pick_two_obj_and_place": (
        "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {object}Type)"
        " (receptacleType ?r {receptacle}Type) (inReceptacle ?o1 ?r)"
        " (exists (?o2 - object) (and (not (= ?o1 ?o2))"
        " (objectType ?o2 {object}Type) (receptacleType ?r {receptacle}Type) (inReceptacle ?o2 ?r)))))))"
    ),
}


class Goal(NamedTuple):
    """A goal: its task type and types ('Mug', 'Cabinet', 'DeskLamp') where it is one of the six, and the
    PDDL.

    task_type is 'other', and object, receptacle and toggle are None, for any goal that is not written as
    ALFWorld writes its six; `expression` is what is evaluated in every case.
    """

    task_type: str
    object: str | None
    receptacle: str | None
    toggle: str | None
    expression: pddl.Expression


def make_goal(
    task_type: str, object: str, *, receptacle: str | None = None, toggle: str | None = None
) -> Goal:
    """The goal of one of the six task types; look_at_obj_in_light takes `toggle`, the others `receptacle`."""
    if task_type not in _TEMPLATES:
        raise ValueError(f"task type {task_type!r} is unknown: use one of {', '.join(_TEMPLATES)}")
    needed, unused = ("toggle", receptacle) if task_type == "look_at_obj_in_light" else ("receptacle", toggle)
    if not {"toggle": toggle, "receptacle": receptacle}[needed] or unused:
        raise ValueError(f"{task_type} takes an object and a {needed}, not {receptacle=}, {toggle=}")
    text = _TEMPLATES[task_type].format(object=object, receptacle=receptacle, toggle=toggle)
    return Goal(task_type, object, receptacle, toggle, pddl.read(text)[0])


def read_goal(expression: pddl.Expression) -> Goal:
    """The Goal of a PDDL goal, recognised as one of the six up to letter case and the order of conditions."""
    types = dict(_types(expression))
    fields = {
        "object": types.get("?o") or types.get("?o1"),
        "receptacle": None if "?ot" in types else types.get("?r"),
        "toggle": types.get("?ot"),
    }
    for task_type, template in _TEMPLATES.items():
        if _canonical(pddl.read(template.format(**fields))[0]) == _canonical(expression):
            return Goal(task_type, **fields, expression=expression)
    return Goal(OTHER, None, None, None, expression)


def _types(expression: pddl.Expression) -> Iterator[tuple[str, str]]:
    """(variable, type) of every objectType and receptacleType condition."""
    match expression:
        case (str(head), str(variable), str(kind)) if head.lower() in ("objecttype", "receptacletype"):
            yield variable.lower(), re.sub("type$", "", kind, flags=re.IGNORECASE)
        case tuple():
            for part in expression:
                yield from _types(part)


def _canonical(expression: pddl.Expression) -> str:
    """The expression in lower case, with the conditions of every conjunction sorted."""
    if isinstance(expression, str):
        return expression.lower()
    parts = [_canonical(part) for part in expression]
    if parts[:1] == ["and"]:
        parts[1:] = sorted(parts[1:])
    return f"({' '.join(parts)})"
