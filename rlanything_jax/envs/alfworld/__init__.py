"""ALFWorld: household games in text, played by a simulator that answers as the TextWorld engine does."""

from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game, find_games, load_game

__all__ = ["AlfworldEnv", "Game", "find_games", "load_game"]
