"""Compares the simulator with the TextWorld engine, on real games or on transcripts recorded from the engine.

    python -m rlanything_jax.envs.alfworld.conformance DATA [--games N] [--seed S] [--json FILE]
    python -m rlanything_jax.envs.alfworld.conformance --record FILE

The first plays N games under the folder DATA in both: 50 commands drawn from the admissible ones, 10 that
mostly do nothing and, from the start again, the walkthrough. Texts, admissible commands and wins must be
the same after every command; it prints the first difference of every game that has one, a table, and exits
with 1 if there was any. The second plays generated games in the engine and writes what it answers, for
tests on machines without it. Both need the `alfworld` extra.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlanything_jax.envs.alfworld.game import Game, find_games, load_game
from rlanything_jax.envs.alfworld.recording import record, specifications
from rlanything_jax.envs.alfworld.transcript import Player, difference_of, engine, simulated, transcript


def compare(game: Game, reference: Player, rng: random.Random) -> tuple[Counter[str], str | None]:
    """Plays a game in `reference` and here: (how often each verb was played, first difference or None)."""
    ours = simulated(game)
    played: Counter[str] = Counter()
    admissible: tuple[str, ...] = ()
    for command, answer in transcript(game, reference, rng):
        known = command is None or command.strip() in admissible
        played["reset" if command is None else command.split()[0] if known else "inadmissible"] += 1
        if difference := difference_of(answer, ours(command)):
            return played, f"after {command!r}: {difference}"
        admissible = answer.admissible
    if game.walkthrough and not answer.won:
        return played, "the walkthrough does not win"
    return played, None


def sample(paths: Iterable[str], folder: str, games: int, seed: int) -> list[str]:
    """`games` of the paths at random, as many from each subfolder of `folder` (the splits) as there are."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(Path(path).relative_to(folder).parts[0], []).append(path)
    rng = random.Random(seed)
    shuffled = [rng.sample(group, len(group)) for _, group in sorted(groups.items())]
    turns = (path for turn in itertools.zip_longest(*shuffled) for path in turn if path)
    return list(itertools.islice(turns, games))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rlanything_jax.envs.alfworld.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", nargs="?", metavar="DATA", help="a folder with ALFWorld's game files")
    parser.add_argument("--games", type=int, default=60, help="how many of them to play (60)")
    parser.add_argument("--seed", type=int, default=0, help="which of them, and which commands (0)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    parser.add_argument(
        "--record", metavar="FILE", help="write what the engine answers in generated games here"
    )
    options = parser.parse_args(arguments)
    if (options.data is None) == (options.record is None):
        parser.error("give either DATA or --record FILE")
    try:
        if options.record:
            return _record(options.record)
        return _compare_all(options.data, options.games, options.seed, options.json)
    except (ImportError, FileNotFoundError) as error:
        parser.error(str(error))


def _record(path: str) -> int:
    rows = [record(specification) for specification in specifications()]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(rows)} games, {sum(len(row['steps']) for row in rows)} commands")
    return 0


def _compare_all(folder: str, games: int, seed: int, result: str | None) -> int:
    """Compares a sample of the games under `folder`; prints and perhaps writes the result."""
    paths = sample(find_games(folder), folder, games, seed)
    table: dict[str, Counter[str]] = {}
    verbs: Counter[str] = Counter()
    differences = {}
    start = time.monotonic()
    for count, path in enumerate(paths, 1):
        game = load_game(path)
        played, difference = compare(game, engine(path), random.Random(f"{seed} {count}"))
        row = table.setdefault(game.task_type, Counter())
        row.update(games=1, commands=played.total(), different=difference is not None)
        verbs.update(played)
        if difference:
            differences[path] = difference
            print(f"DIFFERENT {path}\n  {difference}", flush=True)
        if count % 10 == 0 or count == len(paths):
            progress = f"{count}/{len(paths)} games, {len(differences)} different"
            print(f"{progress}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(f"{'task type':32}{'games':>8}{'commands':>10}{'different':>11}")
    total: Counter[str] = sum(table.values(), Counter())
    for name, row in [*sorted(table.items()), ("all", total)]:
        print(f"{name:32}{row['games']:8}{row['commands']:10}{row['different']:11}")
    print("commands: " + ", ".join(f"{verb} {count}" for verb, count in verbs.most_common()))
    if result:
        found = {"games": len(paths), "seed": seed, "by_task_type": table, "commands": verbs}
        Path(result).write_text(json.dumps({**found, "different": differences}, indent=1), encoding="utf-8")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
