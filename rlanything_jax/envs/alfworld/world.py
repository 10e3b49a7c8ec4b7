"""The household world: real ALFWorld games from a folder, or generated ones, as tasks."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlanything_jax.envs.alfworld.edit import TaskEdit, fingerprint
from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game, find_games, load_game
from rlanything_jax.envs.alfworld.generate import SPLITS, generate
from rlanything_jax.tasks.task import Task

_INSTRUCTION = re.compile(rb'Your task is to: (.*?)\\"')


@dataclasses.dataclass
class AlfworldWorld:
    """Tasks from `data`, a folder with a folder of game files for each split, or else generated ones.

    Generated ones: `games` says how many there are of each split; each draws one of `kinds`, mappings of
    `generate.Knobs` fields that override `knobs`, in proportion to its 'weight' (1 where it has none).
    Games differ from one `seed` to the next.
    """

    data: str | None = None
    games: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"train": 256, "valid_seen": 64, "valid_unseen": 64}
    )
    knobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    kinds: Sequence[Mapping[str, Any]] = ()
    seed: int = 0
    max_steps: int = 50
    labels: bool = False
    name: str = "alfworld"

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split in a fixed order. FileNotFoundError where `data` has no games for it."""
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
        if not self.data:
            return [self._generated(split, i) for i in range(self.games.get(split, 0))]
        paths = find_games(os.path.join(self.data, split))
        return [self._stored(os.path.relpath(path, self.data)) for path in paths]

    def environment(self, task: Task) -> AlfworldEnv:
        """The environment that plays `task`."""
        return AlfworldEnv(self.game(task), self.max_steps, self.labels)

    def rewrite(self, task: Task, edit: str, taken: Collection[str]) -> Task:
        """Applies the text of a `TaskEdit`; see there, and `World.rewrite`, for what is refused."""
        change = TaskEdit.parse(edit)
        game = change.apply(self.game(task), taken)
        return Task(
            id=f"{task.id.partition('#')[0]}#{fingerprint(game)[:12]}",
            world=self.name,
            instruction=game.instruction,
            spec={**task.spec, "edits": [*task.spec.get("edits", ()), str(change)]},
            parent=task.id,
            generation=task.generation + 1,
        )

    def fingerprint(self, task: Task) -> str:
        """Equal for two tasks if and only if they are the same game: scene, goal and instruction."""
        return fingerprint(self.game(task))

    def game(self, task: Task) -> Game:
        """The game of `task`; recently used ones are kept."""
        return _game(self.data, json.dumps(task.spec, sort_keys=True))

    def _generated(self, split: str, index: int) -> Task:
        knobs = dict(self.knobs)
        if self.kinds:
            rng = random.Random(f"{split} {self.seed} {index}")
            (kind,) = rng.choices(self.kinds, [kind.get("weight", 1) for kind in self.kinds])
            knobs.update({key: value for key, value in kind.items() if key != "weight"})
        seed = self.seed * 1_000_000 + index
        spec = {"generate": {"seed": seed, "split": split, **knobs}}
        game = _game(None, json.dumps(spec, sort_keys=True))
        return Task(f"{split}/{game.task_type}-{seed}", self.name, game.instruction, spec)

    def _stored(self, path: str) -> Task:
        assert self.data
        # Reading the instruction alone is a hundred times faster than reading the game.
        found = _INSTRUCTION.search(Path(self.data, path).read_bytes())
        instruction = (
            found[1].decode() if found else self.game(Task("", self.name, "", {"game": path})).instruction
        )
        return Task(os.path.dirname(path), self.name, instruction, {"game": path})


@functools.lru_cache(maxsize=2048)
def _game(data: str | None, spec: str) -> Game:
    """The game of a task's spec (as JSON), whose path is relative to `data`."""
    fields = json.loads(spec)
    edits = fields.pop("edits", [])
    if edits:
        base = _game(
            data, json.dumps({**fields, "edits": edits[:-1]} if edits[:-1] else fields, sort_keys=True)
        )
        return TaskEdit.parse(edits[-1]).apply(base)
    if "generate" in fields:
        return generate(**fields["generate"])
    if not data:
        raise ValueError(f"task {spec} is a stored game: build the world with the folder it is in as `data`")
    return load_game(os.path.join(data, fields["game"]))
