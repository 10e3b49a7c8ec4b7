"""What an agent can know from what it has seen, and what follows: step labels and a searching expert."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence, Set

from rlanything_jax.envs.alfworld.condition import Atom
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.planner import Planner, View

_HINTED = re.compile(r"\ba \w+ is in (\w+ \d+)")


class Knowledge:
    """Where an agent has been and what it has seen in an episode. All numbers are indices into the game's."""

    def __init__(self, planner: Planner, view: View) -> None:
        """Starts an episode: the agent knows what a hint tells it, and nothing else."""
        game = planner.game
        self.visited: set[int] = set()  # receptacles it went to
        self.seen: set[int] = set()  # receptacles it has seen into
        self.known: set[int] = set()  # targets and lamps whose place it knows
        self._opened: set[int] = set()  # containers that it last saw open
        self._planner = planner
        self._index = {r.name: i for i, r in enumerate(game.receptacles)}
        told = {self._index.get(name) for name in _HINTED.findall(game.instruction)}
        self.known.update(t for t in planner.targets if told.intersection(view.places[t]))
        self.view = view

    def update(self, command: str, view: View) -> int | None:
        """Takes in what `command` led to. Returns the receptacle it was the first look at, or None."""
        before, self.view = self.view, view
        if view.held in self._planner.targets:
            self.known.add(view.held)
        verb, _, name = command.strip().partition(" ")
        receptacle = self._index.get(name.removeprefix("to ") if verb == "go" else name)
        if receptacle is None or self._planner.locations[receptacle] != view.location:
            return None
        if receptacle in view.shut:
            self._opened.discard(receptacle)
        else:  # an 'open' that does nothing tells as much
            self._opened.add(receptacle)
        looks = (
            (verb == "go" and before.location != view.location)
            or (verb == "open" and receptacle in before.shut)
            or verb == "examine"
        )
        first = False
        if looks and receptacle not in self.visited:
            self.visited.add(receptacle)
            first = receptacle not in self.seen
        if looks and receptacle not in view.shut:
            first |= receptacle not in self.seen
            self.seen.add(receptacle)
            self.known.update(thing for thing, places in view.places.items() if receptacle in places)
        return receptacle if first else None

    def believed(self) -> View:
        """The current view as the agent takes it to be: a container is closed unless it was seen open."""
        receptacles = self._planner.game.receptacles
        shut = frozenset(i for i, r in enumerate(receptacles) if r.openable and i not in self._opened)
        return self.view._replace(shut=shut)

    def worth_searching(self, *, informed: bool = True) -> list[int]:
        """The receptacles that may hold what is still missing, in the order in which the room lists them.

        Where `informed`, these are the ones whose type suits a missing thing, and all others once those are
        searched.
        """
        game, planner = self._planner.game, self._planner
        needed = 2 if game.task_type == "pick_two_obj_and_place" else 1
        target = len(self.known & planner.targets) < needed
        lamp = game.task_type == "look_at_obj_in_light" and not self.known & planner.lamps
        if not target and not lamp:
            return []
        unseen = [i for i in range(len(game.receptacles)) if i not in self.seen]
        if not informed:
            return unseen
        if game.task_type == "pick_and_place_simple":  # a target at the goal would have won the game
            unseen = [i for i in unseen if game.receptacles[i].type != game.goal.receptacle]
        suits = [
            i
            for i in unseen
            if (target and (game.receptacles[i].type, game.goal.object) in game.can_contain)
            or (lamp and not game.receptacles[i].openable)
        ]
        return suits or unseen


class StepLabeller:
    """Labels the steps of one episode: +1 where a step helped as far as the agent could know, else -1.

    A step helps if it lowers the fewest commands left to win, or if it is the first look at a receptacle
    (going there, or opening or examining it) that may hold what the agent still has to find. Going back,
    undoing, doing nothing and doing what cannot be done do not help. `facts` are those of the state
    (`Simulator.facts`).
    """

    def __init__(self, game: Game, facts: Set[Atom]) -> None:
        self._planner = Planner(game)
        view = self._planner.view(facts)
        self._knowledge = Knowledge(self._planner, view)
        self._distance = self._planner.shortest(view)[0]

    def label(self, command: str, facts: Set[Atom]) -> int:
        """Labels the `command` that led to `facts`; to be called once for every step, in their order."""
        view = self._planner.view(facts)
        before, self._distance = self._distance, self._planner.shortest(view)[0]
        worth = self._knowledge.worth_searching()
        looked = self._knowledge.update(command, view)
        return 1 if self._distance < before or looked in worth else -1


class Expert:
    """Plays a game from what it has seen: searches for what it needs, and does what is to be done with it.

    It searches receptacles in the order in which the room lists them; an informed one takes those first
    whose type suits what is missing. It goes on from any state, whatever was done before, and is
    deterministic. `facts` are those of the state (`Simulator.facts`).
    """

    def __init__(self, game: Game, facts: Set[Atom], *, informed: bool = True) -> None:
        self._game = game
        self._informed = informed
        self._planner = Planner(game)
        self._knowledge = Knowledge(self._planner, self._planner.view(facts))

    def observe(self, command: str, facts: Set[Atom]) -> None:
        """Takes in the `command` that was carried out, whoever chose it, and the `facts` it led to."""
        self._knowledge.update(command, self._planner.view(facts))

    def act(self) -> str:
        """Returns the next command; 'look' where nothing is left to do."""
        view, known = self._knowledge.believed(), self._knowledge.known
        cost, visits = self._planner.shortest(view, known)
        if cost == math.inf:
            visits = self._planner.beginning(view, known)
        if visits:
            return self._planner.commands(view, visits)[0]
        worth = self._knowledge.worth_searching(informed=self._informed)
        return self._search(worth, view.location) if worth else "look"

    def _search(self, worth: Sequence[int], location: str) -> str:
        """The command that looks into a receptacle in front of the agent or else goes to the first of all."""
        here = [i for i in worth if self._planner.locations[i] == location]
        name = self._game.receptacles[(here or worth)[0]].name
        if not here:
            return f"go to {name}"
        return f"open {name}" if here[0] in self._knowledge.visited else f"examine {name}"
