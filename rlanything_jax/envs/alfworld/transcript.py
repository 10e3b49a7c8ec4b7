"""Plays a game in the simulator or in the TextWorld engine, with the same commands, for their comparison."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.simulator import Simulator

ADMISSIBLE, ODD = 50, 10  # commands of either kind in the random part
# How often a kind of command is drawn while others can be: the more it changes, the more often.
_WEIGHTS = {"go": 4, "take": 6, "examine": 2, "close": 1, "look": 1, "inventory": 0.3, "help": 0.1}
_DESTINATIONS = ("fridge", "microwave", "sinkbasin", "desklamp", "floorlamp")


class Answer(NamedTuple):
    """What one command, or the reset, led to."""

    text: str
    admissible: tuple[str, ...]
    won: bool


Player = Callable[[str | None], Answer]  # command -> answer; None starts the game over


def simulated(game: Game) -> Player:
    """The simulator as a player."""
    simulator = Simulator(game)

    def play(command: str | None) -> Answer:
        text = simulator.reset() if command is None else simulator.step(command)
        return Answer(text, simulator.admissible, simulator.won)

    return play


def engine(path: str) -> Player:
    """The TextWorld engine as a player of a game file. ImportError names the extra that it needs."""
    try:
        import textworld
        from alfworld.agents.environment import alfred_tw_env
    except ImportError as error:
        raise ImportError(
            "the TextWorld engine is missing: pip install 'rlanything-jax[alfworld]'"
        ) from error
    _remember()
    infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    wrappers = [alfred_tw_env.AlfredDemangler(shuffle=False), alfred_tw_env.AlfredInfos]
    environment = textworld.start(path, infos, wrappers=wrappers)

    def play(command: str | None) -> Answer:
        if command is None:
            state = environment.reset()
        else:
            state, score, done = environment.step(command)
            if (score, done) != (int(state["won"]), state["won"]):
                raise AssertionError(
                    f"{path}: the engine's score {score} and done {done} are not its won {state['won']}"
                )
        return Answer(state["feedback"], tuple(state["admissible_commands"]), state["won"])

    return play


@functools.cache
def _remember() -> None:
    """Lets the engine remember the results of its two slow pure functions instead of computing them anew."""
    import fast_downward  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from textworld.envs.pddl import textgen

    fast_downward.pddl2sas = functools.lru_cache(maxsize=2)(fast_downward.pddl2sas)
    parse = textgen._parse_and_convert
    parsed = functools.cache(lambda text, rule: parse(text, rule_name=rule))
    textgen._parse_and_convert = lambda text, rule_name, **_: copy.deepcopy(parsed(text, rule_name))


def transcript(game: Game, play: Player, rng: random.Random) -> Iterator[tuple[str | None, Answer]]:
    """Plays the commands to compare, drawn from what `play` admits, and yields each with its answer."""
    answer = play(None)
    yield None, answer
    kinds = [True] * ADMISSIBLE + [False] * ODD
    rng.shuffle(kinds)
    for ordinary in kinds:
        command = _draw(rng, answer.admissible) if ordinary else _odd(game, rng, answer.admissible)
        answer = play(command)
        yield command, answer
    for again in (None, *game.walkthrough):
        yield again, play(again)


def _draw(rng: random.Random, admissible: Sequence[str]) -> str:
    verbs: dict[str, list[str]] = {}
    for command in admissible:
        verbs.setdefault(command.split()[0], []).append(command)
    (verb,) = rng.choices(list(verbs), [_WEIGHTS.get(verb, 3) for verb in verbs])
    special = [command for command in verbs[verb] if any(name in command for name in _DESTINATIONS)]
    return rng.choice(special if special and rng.random() < 0.4 else verbs[verb])


def _odd(game: Game, rng: random.Random, admissible: Sequence[str]) -> str:
    """A command as a model may write it: badly spaced, in capitals, about what is elsewhere, or nonsense."""
    command = rng.choice(admissible)
    names = [thing.name for thing in game.objects] + [thing.name for thing in game.receptacles]
    thing, other = rng.choice(names), rng.choice(names)
    return rng.choice(
        [
            f"  {command}\t\n",
            command.replace(" ", "  "),
            command.upper(),
            command.capitalize(),
            f"{command}.",
            command.rsplit(" ", 1)[0],
            f"examine {thing}",
            f"go to {thing}",
            f"open {thing}",
            f"close {thing}",
            f"use {thing}",
            f"take {thing} from {other}",
            f"move {thing} to {other}",
            f"put {thing} in/on {other}",
            *(f"{verb} {thing} with {other}" for verb in ("heat", "cool", "clean", "slice")),
            "",
            "go to",
            "look around",
            "nothing happens",
        ]
    )


def difference_of(expected: Answer, got: Answer) -> str | None:
    """In words, or None."""
    if expected.text != got.text:
        return f"the engine says {expected.text!r}, the simulator {got.text!r}"
    if expected.admissible != got.admissible:
        missing = sorted({*expected.admissible} - {*got.admissible})
        return f"the simulator lacks {missing} and adds {sorted({*got.admissible} - {*expected.admissible})}"
    if expected.won != got.won:
        return f"the engine says won={expected.won}, the simulator {got.won}"
    return None
