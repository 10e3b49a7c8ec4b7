"""Demonstrations in the household world, for a warm start that stands for pretraining: play, judgement and rewriting.

All of them are deliberately imperfect: the expert is disturbed, verdicts are flipped, so that there is something left to learn.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.knowledge import Expert
from rlanything_jax.envs.base import Observation


class Turn(NamedTuple):
    observation: Observation  # before the action
    action: str
    noisy: bool  # drawn at random instead of by the expert


def demonstrate(game: Game, rng: random.Random, *, max_steps: int, noise: float) -> tuple[list[Turn], Observation]:
    """Plays one episode with the searching expert, whose action is replaced by a random one with probability `noise`.

    Half of the random actions are admissible ones, the others put a verb to names that were seen, which mostly does nothing.
    Returns the turns and the last observation.
    """
    env = AlfworldEnv(game, max_steps)
    observation = env.reset()
    expert = Expert(game, env.facts)
    turns = []
    while not observation.done:
        noisy = rng.random() < noise
        action = _random_action(game, observation, rng) if noisy else expert.act()
        turns.append(Turn(observation, action, noisy))
        observation = env.step(action)
        expert.observe(action, env.facts)
    return turns, observation


def _random_action(game: Game, observation: Observation, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice([a for a in observation.admissible if a not in ("help", "look", "inventory")])
    place = rng.choice(game.receptacles).name
    thing = rng.choice(game.objects).name
    return rng.choice(
        [f"go to {place}", f"open {place}", f"take {thing} from {place}", f"move {thing} to {place}", f"close {place}"]
    )
