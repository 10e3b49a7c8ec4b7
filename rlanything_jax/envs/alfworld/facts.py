"""The facts of a game's beginning as PDDL atoms, and the things that a goal's quantifiers range over."""

from __future__ import annotations

import functools

from rlanything_jax.envs.alfworld.condition import Atom
from rlanything_jax.envs.alfworld.domain import arities
from rlanything_jax.envs.alfworld.game import DOMAIN_TYPES, Game

# The predicates that actions change.
FLUENTS = frozenset(
    "atlocation objectatlocation opened inreceptacle checked holds holdsany"
    " isclean ishot iscool ison istoggled issliced".split()
)


def names_by_type(game: Game) -> dict[str, set[str]]:
    """PDDL type -> what a quantifier over it ranges over: for 'object', the root of all types, everything."""
    names: dict[str, set[str]] = {k: set() for k in ("agent", "location", "receptacle", "rtype", "otype")}
    names["agent"].add(game.agent)
    names["receptacle"].update(receptacle.id for receptacle in game.receptacles)
    names["rtype"].update(f"{receptacle.type}Type".lower() for receptacle in game.receptacles)
    names["otype"].update(f"{object.type}Type".lower() for object in game.objects if object.type)
    names["rtype"].update(
        f"{name}Type".lower() for name in {receptacle for receptacle, _ in game.can_contain}
    )
    names["otype"].update(f"{name}Type".lower() for name in {kind for _, kind in game.can_contain})
    names["location"].update([game.start], (receptacle.location for receptacle in game.receptacles))
    names["location"].update(*(object.locations for object in game.objects))
    objects = {object.id for object in game.objects}
    for name, kind in (*game.declared, *DOMAIN_TYPES.items()):
        names.get(kind, objects).add(name.lower())
    names["object"] = objects.union(*names.values())
    return names


def static_atoms(game: Game) -> dict[str, set[Atom]]:
    """Predicate -> the atoms that hold from beginning to end."""
    receptacles, objects = game.receptacles, game.objects
    static: dict[str, set[Atom]] = {name: set() for name in arities() if name not in FLUENTS}
    static["receptacletype"] = {("receptacletype", r.id, f"{r.type}Type".lower()) for r in receptacles}
    static["receptacleatlocation"] = {("receptacleatlocation", r.id, r.location) for r in receptacles}
    static["openable"] = {("openable", r.id) for r in receptacles if r.openable}
    static["objecttype"] = {("objecttype", o.id, f"{o.type}Type".lower()) for o in objects if o.type}
    static["inreceptacleobject"] = {
        ("inreceptacleobject", o.id, outer) for o in objects for outer in o.inside
    }
    static["cancontain"] = _fits(game.can_contain)
    for object in objects:
        for name in object.properties:
            if name.lower() not in FLUENTS:
                static[name.lower()].add((name.lower(), object.id))
    return static


@functools.lru_cache(maxsize=64)
def _fits(pairs: frozenset[tuple[str, str]]) -> set[Atom]:
    return {("cancontain", f"{place}Type".lower(), f"{kind}Type".lower()) for place, kind in pairs}


def fluent_atoms(game: Game) -> set[Atom]:
    """The facts of the beginning that actions can change."""
    facts: set[Atom] = {("atlocation", game.agent, game.start)}
    facts.update(("opened", receptacle.id) for receptacle in game.receptacles if receptacle.opened)
    for object in game.objects:
        facts.update((name.lower(), object.id) for name in object.properties if name.lower() in FLUENTS)
        facts.update(("inreceptacle", object.id, receptacle) for receptacle in object.receptacles)
        facts.update(("objectatlocation", object.id, location) for location in object.locations)
    return facts
