"""The words around the game: what policy, judge and rewriter read and write in the household world.

The policy reads the engine's own text, followed by a reminder of the task, of where it is and of what it holds: at a
fixed distance before every action, they are what a model of less than a million parameters learns to use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rlanything_jax.envs.alfworld.game import Game, Object, Receptacle
from rlanything_jax.envs.base import Observation
from rlanything_jax.tasks.critique import NO_CRITIQUE
from rlanything_jax.tasks.task import Task

_BANNER = "-= Welcome to TextWorld, ALFRED! =-\n\n"

# Strings that are one token of a word tokenizer: the fixed parts of the engine's grammar and of ours.
PHRASES = (
    "You are in the middle of a room. Looking quickly around you, you see ",
    "You arrive at ",
    "You open the ",
    "You close the ",
    "You pick up the ",
    "You move the ",
    "You heat the ",
    "You clean the ",
    "You cool the ",
    "You turn on the ",
    " using the ",
    " from the ",
    " to the ",
    ". On the ",
    ". The ",
    " is closed.",
    " is open. In it, you see ",
    "On the ",
    ", you see ",
    "nothing",
    ", and a ",
    ", and an ",
    ", a ",
    ", an ",
    "a ",
    "an ",
    "Nothing happens.",
    "\nTask: ",
    " At ",
    "the middle",
    " Holding ",
    ".\n> ",
    "go to ",
    "take ",
    "move ",
    "open ",
    "close ",
    "use ",
    "heat ",
    "clean ",
    "cool ",
    "examine ",
    " with ",
    " from ",
    " to ",
    "put a ",
    "put two ",
    " in ",
    "look at ",
    " under the ",
    "There's nothing special about ",
    "This is a ",
    "The ",
    "Room: ",
    " is closed: ",
    ": ",
    ", ",
    "; ",
    " ; ",
    "\nCritique: ",
    "\nMake it ",
    "\n> ",
    "hint on",
    "hint off",
    "object ",
    "receptacle ",
    "move target to ",
    "add distractor in ",
    "remove distractors",
    " Verdict: ",
    "+1",
    "-1",
)

# What a judge may say about a step, by what it saw happen.
RATIONALES = {
    "nothing": "nothing happened",
    "progress": "brings the goal closer",
    "search": "looks in a new place",
    "again": "was there before",
    "away": "does not help",
}


SYSTEM = QUESTION = ""  # the models of these words are trained on them, not told


def engine_text(observation: Observation, first: bool) -> str:
    """What the engine says, without its banner and its own words for the task."""
    text = observation.text.removeprefix(_BANNER) if first else observation.text
    return text.partition("\n\nYour task is to:")[0].strip()


def render(observation: Observation, task: Task, first: bool) -> str:
    """What the policy reads before it acts: the engine's text, the task, and what it holds."""
    text = engine_text(observation, first)
    at = observation.info.get("at") or "the middle"
    holding = observation.info.get("holding") or "nothing"
    return f"{text}\nTask: {task.instruction} At {at} Holding {holding}.\n> "


def action(response: str, observation: Observation) -> str:
    """The action that a response means: itself."""
    return response


def edit(response: str) -> str:
    """The edit that a rewriter's response means: itself."""
    return response


def rewrite_prompt(game: Game, direction: str, critique: str) -> str:
    """What the rewriter reads: the task, what went wrong with it, which way to change it, and what the room holds."""
    name = {r.id: r.name for r in game.receptacles}
    things: dict[str, list[str]] = {r.name: [] for r in game.receptacles}
    for thing in game.objects:
        if thing.receptacle in name:
            things[name[thing.receptacle]].append(thing.name)
    closed = {r.name for r in game.receptacles if r.openable and not r.opened}
    places = "; ".join(
        f"{place}{' is closed' if place in closed else ''}: {', '.join(found) or 'nothing'}"
        for place, found in things.items()
    )
    return f"Room: {places}\nTask: {game.instruction}\nCritique: {critique}\nMake it {direction}\n> "


def corpus(games: Iterable[Game]) -> list[str]:
    """Texts that hold every word of a world: names numbered up to the most that any of its rooms has, phrases, rationales."""
    most: Counter[str] = Counter()
    texts = set()
    for game in games:
        texts.add(game.instruction)
        things: list[Receptacle | Object] = [*game.receptacles, *game.objects]
        for thing in things:
            kind, _, count = thing.name.rpartition(" ")
            if count.isdigit():
                most[kind] = max(most[kind], int(count) + 1)  # an edit may add one
            if thing.type:  # with a blank before it, and without
                texts.add(f"put a {thing.type.lower()} {thing.type.lower()}")
    names = [f"{kind} {i}" for kind, count in sorted(most.items()) for i in range(1, count + 1)]
    return [*PHRASES, *RATIONALES.values(), *sorted(texts), *names, *_WORDS]


# What the phrases leave out of the engine's rarer sayings and of ours; a word with a blank before it is another piece.
_WORDS: Sequence[str] = (
    *("help", "look", "inventory", "harder", "easier", NO_CRITIQUE, ". ? 0 1 2 3 4 5 6 7 8 9"),
    *(f"This is a {state} {state} and" for state in ("normal", "hot", "cold", "cool", "clean", "sliced")),
    "You are carrying: a not carrying anything.",
    "You are facing the. Next to it, you see. In it, you see",
    "The sliced slice with with the is on.",
)
