"""The fewest commands that still solve a game, from any state, and the commands themselves.

Every location is one command away from every other, so an optimal plan is a short list of visits: put down
what is in the way, take the target, work on it, put it where it belongs. What there is to choose is which
receptacle serves for each visit. The planner tries all choices that can matter: of receptacles that are
alike (as far away, as open) it keeps one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from rlanything_jax.envs.alfworld.condition import Atom
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.rooms import WORK
from rlanything_jax.envs.alfworld.simulator import Simulator


class Visit(NamedTuple):
    """One command at one receptacle; receptacles and objects are indices into the game's."""

    receptacle: int
    verb: str  # 'take', 'move', 'clean', 'heat', 'cool', 'use', or 'stand' for being there
    object: int


class View(NamedTuple):
    """What of a state matters to the planner."""

    location: str  # of the agent
    shut: frozenset[int]  # receptacles that must be opened before something is taken from or put into them
    held: int | None
    places: dict[int, tuple[int, ...]]  # target or lamp -> the receptacles it is in
    done: frozenset[int]  # targets treated as the goal asks, and lamps that are on


def solve(game: Game) -> list[str]:
    """A shortest list of commands that wins `game`. ValueError where there is none."""
    simulator = Simulator(game)
    simulator.reset()
    return Planner(game).plan(simulator.facts)


class Planner:
    """Plans for one game. ValueError where its goal is none of the six task types."""

    def __init__(self, game: Game) -> None:
        goal = game.goal
        if goal.object is None:
            raise ValueError(
                f"{game.path or 'game'}: no planner for a goal that is none of the six task types"
            )
        self.game = game
        self.locations = [r.location for r in game.receptacles]
        self._verb, able, worker, state = WORK.get(game.task_type, ("", "", "", ""))
        self._workers = [i for i, r in enumerate(game.receptacles) if r.type == worker]
        self._goals = [i for i, r in enumerate(game.receptacles) if r.type == goal.receptacle]
        self.targets = frozenset(
            i
            for i, o in enumerate(game.objects)
            if o.type == goal.object and (not able or able in o.properties)
        )
        self.lamps = frozenset(
            i for i, o in enumerate(game.objects) if o.type == goal.toggle and "toggleable" in o.properties
        )
        self._pickupable = frozenset(i for i, o in enumerate(game.objects) if "pickupable" in o.properties)
        self._room_for: dict[str | None, list[int]] = {}
        # What `view` looks up.
        places = {game.start, *self.locations}
        self._at = [(place, ("atlocation", game.agent, place)) for place in sorted(places)]
        self._opened = [(i, ("opened", r.id)) for i, r in enumerate(game.receptacles) if r.openable]
        self._holds = [(i, ("holds", game.agent, game.objects[i].id)) for i in sorted(self._pickupable)]
        self._done = [(i, (state, game.objects[i].id)) for i in self.targets if state]
        self._done += [(i, ("istoggled", game.objects[i].id)) for i in self.lamps]
        self._in = {
            i: [(j, ("inreceptacle", game.objects[i].id, r.id)) for j, r in enumerate(game.receptacles)]
            for i in sorted(self.targets | self.lamps)
        }

    def view(self, facts: Set[Atom]) -> View:
        """What matters of a state, which is given by the facts that hold in it (`Simulator.facts`)."""
        return View(
            location=next(place for place, atom in self._at if atom in facts),
            shut=frozenset([i for i, atom in self._opened if atom not in facts]),
            held=next((i for i, atom in self._holds if atom in facts), None),
            places={
                thing: tuple([i for i, atom in atoms if atom in facts]) for thing, atoms in self._in.items()
            },
            done=frozenset([i for i, atom in self._done if atom in facts]),
        )

    def distance(self, facts: Set[Atom]) -> float:
        """The fewest commands from a state to a won game; infinity where there is no way."""
        return self.shortest(self.view(facts))[0]

    def plan(self, facts: Set[Atom]) -> list[str]:
        """The commands of a shortest way from a state to a won game. ValueError where there is none."""
        view = self.view(facts)
        cost, visits = self.shortest(view)
        if cost == math.inf:
            raise ValueError(f"{self.game.path or 'game'}: {self.game.instruction!r} cannot be solved")
        return self.commands(view, visits)

    def shortest(self, view: View, known: Collection[int] | None = None) -> tuple[float, Sequence[Visit]]:
        """The cost and the visits of a shortest plan; `known` limits the targets and lamps it may use."""
        routes = {"look_at_obj_in_light": self._look, "pick_two_obj_and_place": self._place_two}.get(
            self.game.task_type, self._place
        )
        usable = self.targets if known is None else self.targets.intersection(known)
        lamps = self.lamps if known is None else self.lamps.intersection(known)
        best: tuple[float, Sequence[Visit]] = (math.inf, ())
        for visits in routes(view, usable, lamps):
            cost = self._cost(view, visits)
            if cost < best[0]:
                best = (cost, visits)
        return best

    def beginning(self, view: View, known: Collection[int]) -> Sequence[Visit]:
        """The visits that can be made already while not all that a plan needs is known; there may be none.

        That is getting hold of a target that will be looked at, or bringing the first of two where both
        belong.
        """
        usable = self.targets.intersection(known)
        routes: Iterable[Sequence[Visit]] = ()
        if self.game.task_type == "look_at_obj_in_light":
            routes = (start for start, *_ in self._takes(view, usable, self._special(view, usable, ()), ()))
        elif self.game.task_type == "pick_two_obj_and_place":
            routes = self._place(view, usable, frozenset())
        return min(routes, key=lambda visits: self._cost(view, visits), default=())

    def commands(self, view: View, visits: Iterable[Visit]) -> list[str]:
        """The commands that make these visits, with the going and the opening they need."""
        location, shut = view.location, set(view.shut)
        commands = []
        for receptacle, verb, object in visits:
            place = self.game.receptacles[receptacle].name
            thing = self.game.objects[object].name
            if self.locations[receptacle] != location:
                commands.append(f"go to {place}")
                location = self.locations[receptacle]
            if receptacle in shut and verb in ("take", "move"):
                commands.append(f"open {place}")
                shut.remove(receptacle)
            if verb != "stand":
                link = {"take": f" from {place}", "move": f" to {place}", "use": ""}.get(
                    verb, f" with {place}"
                )
                commands.append(f"{verb} {thing}{link}")
        return commands

    def _cost(self, view: View, visits: Sequence[Visit]) -> int:
        """The number of `commands`."""
        location, shut = view.location, view.shut
        cost, opened = len(visits), []
        for receptacle, verb, _ in visits:
            if self.locations[receptacle] != location:
                location = self.locations[receptacle]
                cost += 1
            if receptacle in shut and (verb == "take" or verb == "move") and receptacle not in opened:
                opened.append(receptacle)
                cost += 1
            if verb == "stand":
                cost -= 1
        return cost

    def _place(self, view: View, usable: frozenset[int], _: frozenset[int]) -> Iterator[Sequence[Visit]]:
        """Routes to a target, worked on where the goal says so, in a receptacle of the goal's type."""
        goals = set(self._goals)
        done = usable if not self._verb else usable & view.done
        if any(goals.intersection(view.places[target]) for target in done):
            yield ()
            return
        special = self._special(view, usable, self._workers)
        ends = self._alike(view, self._roomy(self.game.goal.object, self._goals), special)
        for start, target, source in self._takes(view, usable, special, ends):
            rest = goals.intersection(view.places[target]) - {source}  # real games have things in two places
            for worker in (None,) if target in done else self._workers:
                work = () if worker is None else (Visit(worker, self._verb, target),)
                if rest:
                    yield (*start, *work)
                else:
                    for end in ends:
                        yield (*start, *work, Visit(end, "move", target))

    def _place_two(self, view: View, usable: frozenset[int], _: frozenset[int]) -> Iterator[Sequence[Visit]]:
        """Routes to two targets in one receptacle of the goal's type."""
        inside = {end: {t for t in usable if end in view.places[t]} for end in self._goals}
        if any(len(targets) > 1 for targets in inside.values()):
            yield ()
            return
        special = self._special(view, usable, [end for end in self._goals if inside[end]])
        ends = self._alike(view, self._roomy(self.game.goal.object, self._goals), special)
        for end in ends:
            missing = usable - inside[end]
            for start, target, _source in self._takes(view, missing, special, ends):
                first = (*start, Visit(end, "move", target))
                if inside[end]:
                    yield first
                    continue
                for other in missing & self._pickupable:
                    if other != target:
                        for source in view.places[other]:
                            yield (*first, Visit(source, "take", other), Visit(end, "move", other))

    def _look(self, view: View, usable: frozenset[int], lamps: frozenset[int]) -> Iterator[Sequence[Visit]]:
        """Routes to a held target where a lamp is on."""
        stands = [
            Visit(place, "stand" if lamp in view.done else "use", lamp)
            for lamp in lamps
            for place in view.places[lamp]
        ]
        special = self._special(view, usable, [stand.receptacle for stand in stands])
        for start, _target, _source in self._takes(view, usable, special, ()):
            for stand in stands:
                yield (*start, stand)

    def _takes(
        self, view: View, usable: Collection[int], special: Collection[str], ends: Sequence[int]
    ) -> Iterator[tuple[tuple[Visit, ...], int, int | None]]:
        """(visits, target, where it was taken) of every way to get hold of a target."""
        held = view.held
        if held is not None and held in usable:
            yield (), held, None
        drops: list[tuple[Visit, ...]] = [()]
        if held is not None:
            room = self._roomy(self.game.objects[held].type)
            choices = {*self._alike(view, room, special), *(end for end in ends if end in room)}
            drops = [(Visit(place, "move", held),) for place in sorted(choices)]
        for target in usable:
            if target != held and target in self._pickupable:
                for source in view.places[target]:
                    take = Visit(source, "take", target)
                    for drop in drops:
                        yield (*drop, take), target, source

    def _roomy(self, type: str | None, among: Sequence[int] | None = None) -> list[int]:
        """The receptacles (`among` these) that can hold a type."""
        if type not in self._room_for:
            fits = self.game.can_contain
            self._room_for[type] = [i for i, r in enumerate(self.game.receptacles) if (r.type, type) in fits]
        room = self._room_for[type]
        return room if among is None else [i for i in among if i in room]

    def _special(self, view: View, usable: Collection[int], others: Iterable[int]) -> set[str]:
        """The locations a plan may pass anyway, where receptacles differ from others of their kind."""
        passed = {self.locations[i] for i in others}
        passed.update(self.locations[place] for target in usable for place in view.places[target])
        passed.add(view.location)
        return passed

    def _alike(self, view: View, receptacles: Sequence[int], special: Collection[str]) -> list[int]:
        """The receptacles at special locations, and of the others one that no plan would do worse with."""
        kept: list[int] = []
        rest: list[int] = []
        for i in receptacles:
            (kept if self.locations[i] in special else rest).append(i)
        if rest:
            held = None if view.held is None else self.game.objects[view.held].type
            room = self._roomy(held) if held else ()
            kept.append(min(rest, key=lambda i: (i in view.shut, i not in room)))
        return kept
