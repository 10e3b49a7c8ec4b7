"""Records what the TextWorld engine answers in generated games, and reads such records back.

A record holds how its game was made rather than the game, and a hash that tells when the generator changes.
Some games are changed at random first, into what the generator does not make but the released games (and
more) contain: things that are in two places, that start cold or switched on, odd goals.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Iterator
from typing import Any

from rlanything_jax.envs.alfworld import pddl
from rlanything_jax.envs.alfworld.game import FILE_NAME, Game, read_goal
from rlanything_jax.envs.alfworld.generate import generate
from rlanything_jax.envs.alfworld.rooms import ROOMS
from rlanything_jax.envs.alfworld.transcript import Answer, engine, transcript

_GOALS = (
    "(forall (?o - object) (imply (isHot ?o) (exists (?r - receptacle)"
    " (and (inReceptacle ?o ?r) (opened ?r)))))",
    "(or (exists (?r - receptacle) (and (opened ?r) (checked ?r))) (exists (?o - object) (isClean ?o)))",
    "(not (exists (?r - receptacle) (and (openable ?r) (not (opened ?r)))))",
    "(exists (?o - object ?a - agent) (and (holds ?a ?o) (checked ?o)))",
    "(exists (?o1 ?o2 - object ?r - receptacle) (and (inReceptacle ?o1 ?r) (inReceptacle ?o2 ?r) (checked ?r)"
    " (pickupable ?o1) (not (= ?o1 ?o2))))",
)
_PROPERTIES = (
    "isHot isCool isClean isSliced isToggled isOn sliceable toggleable heatable cleanable isReceptacleObject"
).split()


def specifications() -> list[dict[str, Any]]:
    """How to make the recorded games: every task type in every room that offers it, then changed kitchens."""
    knobs = {"receptacles": 12, "objects": 16, "distractors": 1, "closed": 0.7, "varied": True, "shared": 0.4}
    offers = [(room, task_type) for room, offer in ROOMS.items() for task_type in offer.task_types]
    plain = [
        {"generate": {"seed": seed, "room": room, "task_type": task_type, **knobs}}
        for seed, (room, task_type) in enumerate(offers)
    ]
    changed = [
        {"generate": {"seed": seed, "room": "kitchen", **knobs}, "goal": goal, "changes": seed}
        for seed, goal in enumerate(_GOALS, len(plain))
    ]
    return [*plain, *changed]


def make(specification: dict[str, Any]) -> Game:
    """The game of a specification: generated, with another goal or with random changes where it says so."""
    game = generate(**specification["generate"])
    if "goal" in specification:
        goal = read_goal(pddl.read(specification["goal"])[0])
        game = dataclasses.replace(game, goal=goal, walkthrough=())
    return _changed(game, random.Random(specification["changes"])) if "changes" in specification else game


def record(specification: dict[str, Any]) -> dict[str, Any]:
    """What the engine answers in the game of a specification: a row for `recorded`."""
    game = make(specification)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, FILE_NAME)
        game.save(path)
        play = engine(path)
    steps = []
    before: tuple[str, ...] = ()
    for command, answer in transcript(game, play, random.Random(specification["generate"]["seed"])):
        changes = [f"-{x}" for x in before if x not in answer.admissible]
        changes += [f"+{x}" for x in answer.admissible if x not in before]
        steps.append([command, answer.text, answer.won, *changes])
        before = answer.admissible
    return {**specification, "sha256": fingerprint(game), "steps": steps}


def recorded(row: dict[str, Any]) -> tuple[Game, Iterator[tuple[str | None, Answer]]]:
    """The game of a recorded row, and its commands with the engine's answers.

    Raises ValueError where the generator no longer makes the game that was recorded.
    """
    game = make(row)
    if fingerprint(game) != row["sha256"]:
        raise ValueError(f"generate(**{row['generate']}) makes another game than was recorded: record again")

    def answers() -> Iterator[tuple[str | None, Answer]]:
        admissible: set[str] = set()
        for command, text, won, *changes in row["steps"]:
            admissible -= {change[1:] for change in changes if change[0] == "-"}
            admissible |= {change[1:] for change in changes if change[0] == "+"}
            yield command, Answer(text, tuple(sorted(admissible)), won)

    return game, answers()


def fingerprint(game: Game) -> str:
    """A hash of all that the engine plays by."""
    played = dataclasses.replace(game, walkthrough=())
    return hashlib.sha256(json.dumps(played.to_json()).encode()).hexdigest()


def _changed(game: Game, rng: random.Random) -> Game:
    """`game` with random properties of its things, some of them in two receptacles or in one another."""
    objects = []
    for thing in game.objects:
        properties = thing.properties | {name for name in _PROPERTIES if rng.random() < 0.12}
        place, outer = rng.choice(game.receptacles), rng.choice(game.objects)
        objects.append(
            dataclasses.replace(
                thing,
                properties=properties - {"pickupable"} if rng.random() < 0.1 else properties,
                receptacles=_perhaps_two(thing.receptacles, place.id, rng),
                locations=_perhaps_two(thing.locations, place.location, rng),
                inside=(outer.id,) if outer != thing and rng.random() < 0.1 else (),
            )
        )
    start = game.start if rng.random() < 0.5 else rng.choice(game.receptacles).location
    return dataclasses.replace(game, objects=tuple(objects), start=start)


def _perhaps_two(places: tuple[str, ...], other: str, rng: random.Random) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*places, other))) if rng.random() < 0.2 else places
