"""The household world: real ALFWorld games from a folder, or generated ones, as tasks."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import random
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlanything_jax.envs.alfworld import chat, prompts
from rlanything_jax.envs.alfworld.demonstrations import AlfworldTeacher
from rlanything_jax.envs.alfworld.edit import TaskEdit, fingerprint, single_edits
from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game, find_games, load_game
from rlanything_jax.envs.alfworld.generate import SPLITS, generate
from rlanything_jax.envs.base import Observation, Refused
from rlanything_jax.tasks.task import Task

_CORPUS_GAMES = 600  # stored games that are read for their words
_STYLES: dict[str, Any] = {"words": prompts, "chat": chat}
_INSTRUCTION = re.compile(rb'Your task is to: (.*?)\\"')


@dataclasses.dataclass
class AlfworldWorld:
    """Tasks from `data`, a folder with a folder of game files for each split, or else generated ones.

    Generated ones: `games` says how many there are of each split; each draws one of `kinds`, mappings of
    `generate.Knobs` fields that override `knobs`, in proportion to its 'weight' (1 where it has none).
    Games differ from one `seed` to the next. `style` is that of the texts: 'words' for word-level models,
    'chat' for chat models.
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
    style: str = "words"
    name: str = "alfworld"
    phrases: Sequence[str] = prompts.PHRASES

    def __post_init__(self) -> None:
        if self.style not in _STYLES:
            raise ValueError(f"style={self.style!r} is unknown: choose one of {', '.join(_STYLES)}")

    @property
    def system(self) -> str:
        """What a chat model is told before all else."""
        return _STYLES[self.style].SYSTEM

    @property
    def question(self) -> str:
        """What a chat model is asked about a step that it judges."""
        return _STYLES[self.style].QUESTION

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split in a fixed order. FileNotFoundError where `data` has no games for it."""
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
        if not self.data:
            return [self.generated(split, i) for i in range(self.games.get(split, 0))]
        paths = find_games(os.path.join(self.data, split))
        return [self._stored(os.path.relpath(path, self.data)) for path in paths]

    def environment(self, task: Task) -> AlfworldEnv:
        """The environment that plays `task`."""
        return AlfworldEnv(self.game(task), self.max_steps, self.labels)

    def second_prompt(self, task: Task, edit: str) -> str:
        """No second opinion is needed: the simulator tells whether an edited game can be solved."""
        return ""

    def rewrite(self, task: Task, edit: str, taken: Collection[str], second: str = "") -> Task:
        """Applies the text of a `TaskEdit`; see there, and `World.rewrite`, for what is refused."""
        change = TaskEdit.parse(edit)
        game = change.apply(self.game(task), taken)
        child = Task(
            id=f"{task.id.partition('#')[0]}#{fingerprint(game)[:12]}",
            world=self.name,
            instruction=game.instruction,
            spec={**task.spec, "edits": [*task.spec.get("edits", ()), str(change)]},
            parent=task.id,
            generation=task.generation + 1,
        )
        if self.fingerprint(child) in taken:  # an edit that undoes the ones before it
            raise Refused(f"{edit!r} makes a task that is already in the pool")
        return child

    def fingerprint(self, task: Task) -> str:
        """Equal for two tasks if and only if they are the same game: scene, goal and instruction.

        An original is known by its spec, so that a pool of thousands need not be read to be compared with.
        """
        base = {key: value for key, value in task.spec.items() if key != "edits"}
        mark = hashlib.sha256(json.dumps(base, sort_keys=True).encode()).hexdigest()
        if "edits" in task.spec:
            original = self.game(dataclasses.replace(task, spec=base))
            edited = fingerprint(self.game(task))
            mark = mark if edited == fingerprint(original) else edited
        return mark

    def game(self, task: Task) -> Game:
        """The game of `task`; recently used ones are kept."""
        return _game(self.data, json.dumps(task.spec, sort_keys=True))

    def render(self, observation: Observation, task: Task, first: bool) -> str:
        """What the policy reads before it acts."""
        return _STYLES[self.style].render(observation, task, first)

    def action(self, response: str, observation: Observation) -> str:
        """The command that a response means."""
        return _STYLES[self.style].action(response, observation)

    def rewrite_prompt(self, task: Task, direction: str, critique: str) -> str:
        """What the rewriter reads."""
        return _STYLES[self.style].rewrite_prompt(self.game(task), direction, critique)

    def edit(self, response: str) -> str:
        """The text of the `TaskEdit` that a rewriter's response means."""
        return _STYLES[self.style].edit(response)

    def edits(self, task: Task) -> list[str]:
        """The text of every `TaskEdit` of one change, those included that are refused."""
        return single_edits(self.game(task))

    def corpus(self) -> list[str]:
        """Texts with every word of this world, for a tokenizer: of all generated games, of a sample of stored ones."""
        tasks = [task for split in SPLITS for task in self.tasks(split)]
        step = max(1, len(tasks) // _CORPUS_GAMES) if self.data else 1
        return prompts.corpus(self.game(task) for task in tasks[::step])

    def teacher(self, noise: float) -> AlfworldTeacher:
        """Who demonstrates this world; a share `noise` of the actions it shows is random."""
        return AlfworldTeacher(self, noise)

    def generated(self, split: str, index: int) -> Task:
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
