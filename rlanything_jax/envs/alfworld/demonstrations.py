"""Demonstrations in the household world, for a warm start that stands for pretraining: play, judgement and rewriting.

They are imperfect on purpose: the expert is disturbed while it plays, and the verdicts are flipped by whoever uses them, so
that there is something left to learn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlanything_jax.envs.alfworld.edit import TaskEdit
from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.knowledge import Expert
from rlanything_jax.envs.alfworld.prompts import RATIONALES
from rlanything_jax.envs.base import Demonstration, Observation, Refused
from rlanything_jax.tasks.critique import summarise
from rlanything_jax.tasks.task import Task

if TYPE_CHECKING:
    from rlanything_jax.envs.alfworld.world import AlfworldWorld


class Turn(NamedTuple):
    observation: Observation  # before the action
    action: str
    disturbed: bool  # drawn at random instead of by the expert


def demonstrate(game: Game, rng: random.Random, *, max_steps: int, noise: float) -> list[Turn]:
    """Plays one episode with the searching expert, whose action is replaced by a random one with probability `noise`."""
    env = AlfworldEnv(game, max_steps)
    observation = env.reset()
    expert = Expert(game, env.facts)
    turns = []
    while not observation.done:
        disturbed = rng.random() < noise
        action = _random_action(game, observation, rng) if disturbed else expert.act()
        turns.append(Turn(observation, action, disturbed))
        observation = env.step(action)
        expert.observe(action, env.facts)
    return turns


def _random_action(game: Game, observation: Observation, rng: random.Random) -> str:
    """An admissible action, or a verb put to any place of the room, which mostly does nothing.

    Nothing is taken at random, whether it is there or not: models that see it done take things blindly instead of looking for
    what they want among what they see, and stop to take any when that is punished.
    """
    if rng.random() < 0.4:
        idle = ("help", "look", "inventory", "take ")
        return rng.choice([a for a in observation.admissible if not a.startswith(idle)])
    place = rng.choice(game.receptacles).name
    return rng.choice([f"go to {place}", f"open {place}", f"close {place}", f"examine {place}"])


def explain(actions: Sequence[str], admissible: bool, verdict: int) -> str:
    """Why the last of `actions` deserves `verdict` (+1 or -1), in the words of a judge."""
    action = actions[-1]
    looks = action.startswith(("go to ", "open ", "examine "))
    if verdict > 0:
        return RATIONALES["search" if looks else "progress"]
    if not admissible:
        return RATIONALES["nothing"]
    return RATIONALES["again" if action in actions[:-1] else "away"]


def edit_towards(game: Game, direction: str, rng: random.Random) -> str | None:
    """An edit that should make `game` 'easier' or 'harder', drawn from those that can be made; None where none can."""
    candidates = _easier(game, rng) if direction == "easier" else _harder(game, rng)
    rng.shuffle(candidates)
    for candidate in candidates:
        try:
            TaskEdit.parse(candidate).apply(game)
        except Refused:
            continue
        return candidate
    return None


def _easier(game: Game, rng: random.Random) -> list[str]:
    """Say where the target is, put it in plain sight, or take away what resembles it."""
    surfaces = [r.name for r in game.receptacles if not r.openable]
    holders = {o.receptacle for o in game.objects if o.type == game.goal.object}
    opened = [f"open {r.name}" for r in game.receptacles if r.id in holders and r.openable and not r.opened]
    moves = [f"move target to {name}" for name in rng.sample(surfaces, min(1, len(surfaces)))]
    return ["hint on", *opened, *moves, *(["remove distractors"] if len(holders) > 1 else [])]


def _harder(game: Game, rng: random.Random) -> list[str]:
    """Hide the target, no longer say where it is, or ask for something else in the room."""
    closed = [r.name for r in game.receptacles if r.openable and not r.opened]
    holders = {o.receptacle for o in game.objects if o.type == game.goal.object}
    shut = [f"close {r.name}" for r in game.receptacles if r.id in holders and r.opened]
    moves = [f"move target to {name}" for name in rng.sample(closed, min(1, len(closed)))]
    others = sorted({o.type.lower() for o in game.objects if o.type and o.type != game.goal.object})
    asks = [f"object {name}" for name in rng.sample(others, min(1, len(others)))]
    return ["hint off", *shut, *moves, *asks]


class AlfworldTeacher:
    """The `Teacher` of the household world; `noise` is the share of disturbed actions in its play."""

    def __init__(self, world: AlfworldWorld, noise: float) -> None:
        self._world = world
        self._noise = noise
        self._stored = world.tasks("train") if world.data else []

    def task(self, rng: random.Random) -> Task:
        return (
            rng.choice(self._stored)
            if self._stored
            else self._world.generated("train", rng.randrange(10**6, 10**9))
        )

    def play(self, task: Task, rng: random.Random) -> list[Demonstration]:
        turns = demonstrate(self._world.game(task), rng, max_steps=self._world.max_steps, noise=self._noise)
        return [
            Demonstration(self._world.render(turn.observation, task, i == 0), turn.action)
            for i, turn in enumerate(turns)
        ]

    def explain(self, actions: Sequence[str], admissible: bool, verdict: int) -> str:
        return explain(actions, admissible, verdict)

    def rewrite(self, task: Task, direction: str, rng: random.Random) -> tuple[str, str] | None:
        edit = edit_towards(self._world.game(task), direction, rng)
        complaints = [RATIONALES[name] for name in ("nothing", "again", "away")]
        critique = summarise(rng.choices(complaints, k=rng.randrange(4)))
        return (self._world.rewrite_prompt(task, direction, critique), edit) if edit else None
