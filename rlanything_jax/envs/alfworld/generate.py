"""Generates ALFWorld games: a room, its things, a goal and an instruction, in the engine's own file format.

`generate(seed, split=..., **knobs)` is a pure function of its arguments. The scenes follow ALFRED: every
kind of room has a fixed number of layouts (which furniture there is), and a seed fills one of them with
things and picks a goal.

The splits follow ALFWorld's. 'train' and 'valid_seen' share layouts and goals but never a seed.
'valid_unseen' plays in layouts, and for (object type, receptacle type) pairs, that the other two never use;
which ones is a hash of their names, so it does not depend on the knobs.
"""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rlanything_jax.envs.alfworld.game import Game, Object, Receptacle, make_goal
from rlanything_jax.envs.alfworld.instruction import TEMPLATES, instruct
from rlanything_jax.envs.alfworld.planner import solve
from rlanything_jax.envs.alfworld.rooms import (
    AFFORDANCES,
    CAN_CONTAIN,
    LAMP_STANDS,
    OPENABLE,
    ROOMS,
    TASK_TYPES,
    WORK,
)

SPLITS = ("train", "valid_seen", "valid_unseen")
LAYOUTS = 30  # per kind of room, the last fifth of them unseen
_UNSEEN_SHARE = 5  # one pair in this many is unseen
_MOST_OF_A_TYPE = 3  # of clutter


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What a generated game looks like and how hard it is.

    There are fewer receptacles or objects than asked for where a room has no more to offer, and more
    objects where the goal needs them. ValueError names a room or task type that does not exist or does not
    fit.
    """

    room: str | None = None  # a key of ROOMS; None draws one that offers the task type
    task_type: str | None = None  # one of TASK_TYPES; None draws one that the room offers
    receptacles: int = 10
    objects: int = 8  # all of them: targets, distractors, lamp and clutter
    distractors: int = 0  # further objects of the target's type, possibly already at the goal but, say, cold
    closed: float = 1.0  # share of the containers that start closed
    unlikely: bool = False  # the target starts where its type does not belong
    hint: bool = False  # the instruction says where the target is
    varied: bool = False  # phrase the instruction in either of ALFWorld's two ways, not always the first
    shared: float = 0.0  # chance that a receptacle stands at the location of the one before it

    def __post_init__(self) -> None:
        if self.room is not None and self.room not in ROOMS:
            raise ValueError(f"unknown room {self.room!r}: choose one of {', '.join(ROOMS)}")
        if self.task_type is not None and self.task_type not in TASK_TYPES:
            raise ValueError(f"unknown task type {self.task_type!r}: choose one of {', '.join(TASK_TYPES)}")
        if self.room and self.task_type and self.task_type not in ROOMS[self.room].task_types:
            offer = ", ".join(ROOMS[self.room].task_types)
            raise ValueError(f"a {self.room} offers no {self.task_type}: choose one of {offer}")


@dataclasses.dataclass(frozen=True)
class _Scene:
    room: str
    receptacles: tuple[Receptacle, ...]
    task_type: str
    object: str  # type of the target
    goal: str  # type of the receptacle or lamp


def generate(seed: int, *, split: str = "train", **knobs: Any) -> Game:
    """Generates one game; equal arguments give equal games.

    `knobs` are the fields of `Knobs`. Raises ValueError where no game of the split fits them.
    """
    settings = Knobs(**knobs)
    rng = random.Random(f"{split} {seed}")
    scene = _draw_scene(rng, split, settings)
    placed, targets = _place_objects(rng, scene, settings)
    count: Counter[str] = Counter()
    objects, hinted = [], []
    for i in rng.sample(range(len(placed)), len(placed)):  # so that a number says nothing about a role
        type, receptacle = placed[i]
        count[type] += 1
        objects.append(new_object(type, count[type], receptacle))
        if i < targets:
            hinted.append((type, receptacle))
    look = scene.task_type == "look_at_obj_in_light"
    goal = make_goal(scene.task_type, scene.object, **{"toggle" if look else "receptacle": scene.goal})
    object_types = sorted({type for type, _ in placed})
    game = Game(
        receptacles=scene.receptacles,
        objects=tuple(objects),
        can_contain=frozenset(
            (r, o) for r in {r.type for r in scene.receptacles} for o in object_types if o in CAN_CONTAIN[r]
        ),
        start="loc_bar_0",
        goal=goal,
        instruction="",
    )
    names = {r.id: r.name for r in game.receptacles}
    hints = [(type, names[receptacle.id]) for type, receptacle in hinted] if settings.hint else []
    template = rng.choice(TEMPLATES[scene.task_type]) if settings.varied else TEMPLATES[scene.task_type][0]
    game = dataclasses.replace(game, instruction=instruct(goal, template, hints))
    return dataclasses.replace(game, walkthrough=tuple(solve(game)))


def new_id(type: str, number: int) -> str:
    """The id, in lower case, that the engine names '{type} {number}' where the lower numbers are taken.

    The engine numbers the ids of a type from the last in sorted order, so ids fall as numbers rise. Digits
    sort before what follows '_bar_' in the released games, so an id made here for the next free number
    renumbers nothing there. A basin's id is that of the sink or bathtub it belongs to, extended.
    """
    kind = type.removesuffix("Basin")
    return f"{kind}_bar_{1000 - number}{f'_bar_{type}' if kind != type else ''}".lower()


def new_object(type: str, number: int, receptacle: Receptacle) -> Object:
    """An object of `type` in `receptacle`, with the properties that ALFWorld gives its type."""
    properties = {name for name, types in AFFORDANCES.items() if type in types}
    if "toggleable" not in properties:
        properties.add("pickupable")
    return Object(new_id(type, number), type, frozenset(properties), (receptacle.id,), (receptacle.location,))


def is_unseen(object_type: str, goal_type: str) -> bool:
    """Whether goals for this (object type, receptacle or lamp type) pair belong to 'valid_unseen' alone."""
    return zlib.crc32(f"{object_type} {goal_type}".encode()) % _UNSEEN_SHARE == 0


def furnish(room: str, layout: int, count: int, shared: float = 0.0) -> tuple[Receptacle, ...]:
    """Returns the `count` receptacles, all closed, of one of the LAYOUTS of a kind of room."""
    rng = random.Random(f"{room} {layout} {count}")
    types = list(ROOMS[room].core[:count])
    counts = Counter(types)
    while len(types) < count:
        more = {t: weight for t, (weight, most) in ROOMS[room].more.items() if counts[t] < most}
        if not more:
            break
        (drawn,) = rng.choices(list(more), list(more.values()))
        types.append(drawn)
        counts[drawn] += 1
    numbers: Counter[str] = Counter()
    receptacles: list[Receptacle] = []
    place = 0
    for type in sorted(types):
        numbers[type] += 1
        place += not receptacles or rng.random() >= shared
        location = f"loc_bar_{place}"
        receptacles.append(Receptacle(new_id(type, numbers[type]), type, location, type in OPENABLE))
    return tuple(receptacles)


def _goals(
    room: str, task_type: str, types: Sequence[str], split: str, unlikely: bool
) -> list[tuple[str, str]]:
    """All (object type, receptacle or lamp type) pairs to ask for in a room with these receptacles."""
    _, able, worker, _ = WORK.get(task_type, ("", "", "", ""))
    if worker and worker not in types:
        return []
    if task_type == "look_at_obj_in_light":
        goals = ["DeskLamp"] if LAMP_STANDS.intersection(types) else []
    else:
        goals = sorted(set(types) - {worker})
    return [
        (object_type, goal)
        for object_type in ROOMS[room].objects
        if not able or object_type in AFFORDANCES[able]
        for goal in goals
        if goal == "DeskLamp" or object_type in CAN_CONTAIN[goal]
        if is_unseen(object_type, goal) == (split == "valid_unseen")
        if any(t != goal and (object_type in CAN_CONTAIN[t]) != unlikely for t in types)
    ]


def _draw_scene(rng: random.Random, split: str, knobs: Knobs) -> _Scene:
    """Draws room, layout and goal until they fit together."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    seen = LAYOUTS - LAYOUTS // _UNSEEN_SHARE
    layouts = range(seen, LAYOUTS) if split == "valid_unseen" else range(seen)
    rooms = (
        [knobs.room] if knobs.room else [r for r in ROOMS if knobs.task_type in (None, *ROOMS[r].task_types)]
    )
    for _ in range(200):
        room = rng.choice(rooms)
        task_type = knobs.task_type or rng.choice(ROOMS[room].task_types)
        receptacles = furnish(room, rng.choice(layouts), knobs.receptacles, knobs.shared)
        pairs = _goals(room, task_type, [r.type for r in receptacles], split, knobs.unlikely)
        if pairs:
            object_type = rng.choice(sorted({pair[0] for pair in pairs}))
            goal = rng.choice([goal for type, goal in pairs if type == object_type])
            containers = [r.id for r in receptacles if r.openable]
            shut = set(rng.sample(containers, round(knobs.closed * len(containers))))
            receptacles = tuple(
                dataclasses.replace(r, opened=r.openable and r.id not in shut) for r in receptacles
            )
            return _Scene(room, receptacles, task_type, object_type, goal)
    raise ValueError(f"no {split} game fits {knobs}: allow more receptacles or another task type")


def _place_objects(
    rng: random.Random, scene: _Scene, knobs: Knobs
) -> tuple[list[tuple[str, Receptacle]], int]:
    """Returns (type, receptacle) of every object, the targets first, and the number of targets."""
    belongs = {
        type: [r for r in scene.receptacles if type in CAN_CONTAIN[r.type]]
        for type in (scene.object, *ROOMS[scene.room].objects)
    }
    starts = [
        r
        for r in scene.receptacles
        if r.type != scene.goal and (scene.object in CAN_CONTAIN[r.type]) != knobs.unlikely
    ]
    targets = 2 if scene.task_type == "pick_two_obj_and_place" else 1
    placed = [(scene.object, rng.choice(starts)) for _ in range(targets)]
    # At the goal, a further one is a distractor where something must still be done to it and a solution
    # where not.
    elsewhere = [r for r in belongs[scene.object] if scene.task_type in WORK or r.type != scene.goal]
    if elsewhere:
        placed += [(scene.object, rng.choice(elsewhere)) for _ in range(knobs.distractors)]
    if scene.task_type == "look_at_obj_in_light":
        placed.append((scene.goal, rng.choice([r for r in scene.receptacles if r.type in LAMP_STANDS])))
    clutter: Counter[str] = Counter()
    while len(placed) < knobs.objects:
        types = [t for t, r in belongs.items() if r and t != scene.object and clutter[t] < _MOST_OF_A_TYPE]
        if not types:
            break
        drawn = rng.choice(types)
        clutter[drawn] += 1
        placed.append((drawn, rng.choice(belongs[drawn])))
    return placed, targets
