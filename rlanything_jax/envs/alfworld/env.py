"""The ALFWorld environment: a game, a limit on steps, and what the policy sees."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from rlanything_jax.envs.alfworld.condition import Atom
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.simulator import Simulator
from rlanything_jax.envs.base import Observation

_GO_TO = "go to "


class AlfworldEnv:
    """Plays `game` for at most `max_steps` commands, of which inadmissible ones count too.

    An observation's `score` is 1.0 once the goal is reached, and then the episode is over. `info` has
    'holding' (the name of what the agent carries, or ''), 'at' (the receptacle it last went to, or ''), 'state', after a
    step 'admissible' (whether the command did anything), and then with `labels=True` also 'label' (+1 where the
    step helped, else -1, see `knowledge.StepLabeller`).
    """

    def __init__(self, game: Game, max_steps: int = 50, labels: bool = False) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} leaves no step to play: use at least 1")
        self.game = game
        self.max_steps = max_steps
        self._simulator = Simulator(game)
        self._labels = labels
        self._steps = 0
        self._at = ""
        self._done = True

    def reset(self) -> Observation:
        """Starts an episode."""
        text = self._simulator.reset()
        self._steps = 0
        self._at = ""
        if self._labels:
            # Imported here because most episodes need no labels, and so no planner.
            from rlanything_jax.envs.alfworld.knowledge import StepLabeller

            self._labeller = StepLabeller(self.game, self._simulator.facts)
        return self._observe(text, {})

    def step(self, command: str) -> Observation:
        """Carries out a command; RuntimeError where no episode is running."""
        if self._done:
            raise RuntimeError(
                f"the episode of {self.game.path or 'this game'} is over or was not begun: call reset()"
            )
        command = command.strip()
        info: dict[str, Any] = {"admissible": command in self._simulator.admissible}
        text = self._simulator.step(command)
        self._steps += 1
        if info["admissible"] and command.startswith(_GO_TO):
            self._at = command.removeprefix(_GO_TO)
        if self._labels:
            info["label"] = self._labeller.label(command, self._simulator.facts)
        return self._observe(text, info)

    @property
    def facts(self) -> Set[Atom]:
        """The facts that hold now, for planners and experts; no policy sees them."""
        return self._simulator.facts

    def close(self) -> None:
        """Ends the episode; nothing else is held."""
        self._done = True

    def _observe(self, text: str, info: dict[str, Any]) -> Observation:
        won = self._simulator.won
        self._done = won or self._steps >= self.max_steps
        info |= {"holding": self._simulator.holding, "at": self._at, "state": self._simulator.state}
        return Observation(text, self._simulator.admissible, float(won), won, self._done, info)
