"""What a world is: tasks, the environments that play them, and the rewriting of tasks. Knows no JAX."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rlanything_jax.tasks.task import Task


class Refused(ValueError):
    """A rewrite that cannot become a task. The message is the reason, told to the rewriter and to the log."""


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """What the policy sees after a reset or a step.

    `score` is the environment's own progress measure, `won` whether the task is solved, and `done` whether
    the episode is over (won, lost or out of steps). `info` is for measurement and rendering only and is never
    read by a model: 'label' (+1 or -1: the ground truth of the last step), 'state' (names the state; equal for two
    observations of a task exactly where the state is; without it their texts tell), 'holding', 'error' (the episode was
    lost to a fault of the environment, so its outcome means nothing), ...
    """

    text: str
    admissible: tuple[str, ...]
    score: float
    won: bool
    done: bool
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Environment(Protocol):
    """One episode at a time of one task: a plain synchronous object."""

    def reset(self) -> Observation: ...

    def step(self, action: str) -> Observation: ...

    def close(self) -> None: ...


class World(Protocol):
    """A family of tasks. Picklable, and cheap to build inside a worker process."""

    name: str
    phrases: Sequence[str]  # strings that a word tokenizer keeps whole

    @property
    def system(self) -> str:
        """What a chat model is told before all else; "" where the models are word-level ones."""
        ...

    @property
    def question(self) -> str:
        """What a chat model is asked about a step that it judges."""
        ...

    def tasks(self, split: str) -> list[Task]:
        """Returns the original tasks of 'train', 'valid_seen' or 'valid_unseen' in a fixed order."""
        ...

    def environment(self, task: Task) -> Environment:
        """Builds the environment that plays `task`."""
        ...

    def second_prompt(self, task: Task, edit: str) -> str:
        """What an independent solver of the rewritten task reads, whose answer `rewrite` needs; "" where it needs none."""
        ...

    def rewrite(self, task: Task, edit: str, taken: Collection[str], second: str = "") -> Task:
        """Applies the rewriter's `edit` to `task`.

        `taken` holds the fingerprints of the tasks in the pool, `second` is the answer to `second_prompt`. Raises
        `Refused` where the edit cannot be read or applied, changes nothing, or makes a task that cannot be
        solved, is solved at reset or is already taken.
        """
        ...

    def fingerprint(self, task: Task) -> str:
        """Equal for two tasks if and only if they are the same game: scene, goal and instruction."""
        ...

    def render(self, observation: Observation, task: Task, first: bool) -> str:
        """Returns what the policy reads before it acts; `first` at the start of an episode."""
        ...

    def action(self, response: str, observation: Observation) -> str:
        """Returns the action that the policy's `response` to `observation` means."""
        ...

    def rewrite_prompt(self, task: Task, direction: str, critique: str) -> str:
        """Returns what the rewriter reads to make `task` 'harder' or 'easier'."""
        ...

    def edit(self, response: str) -> str:
        """Returns the edit that the rewriter's `response` means."""
        ...

    def corpus(self) -> list[str]:
        """Returns texts that hold every word of the world."""
        ...

    def teacher(self, noise: float) -> Teacher:
        """Returns who demonstrates the world to a model that has not been pretrained; a share `noise` of its play is random."""
        ...


class WorldOfListedEdits(World, Protocol):
    """Of a world whose edits can be counted."""

    def edits(self, task: Task) -> list[str]:
        """Returns every edit of one change that can be written down for `task`, those included that `rewrite` refuses."""
        ...


class Demonstration(NamedTuple):
    """One turn: what the policy reads, what it writes."""

    prompt: str
    action: str


class Teacher(Protocol):
    """Plays and rewrites tasks, imperfectly but in the right words."""

    def task(self, rng: random.Random) -> Task:
        """Returns a training task that is not in the run's pool where the world can make more, else one that is."""
        ...

    def play(self, task: Task, rng: random.Random) -> list[Demonstration]:
        """Returns one noisy episode."""
        ...

    def rewrite(self, task: Task, direction: str, rng: random.Random) -> tuple[str, str] | None:
        """Returns (what the rewriter reads, the edit it writes), or None where no edit leads in the direction."""
        ...


class TeacherOfVerdicts(Teacher, Protocol):
    """Of a world whose reward model judges steps."""

    def explain(self, actions: Sequence[str], admissible: bool, verdict: int) -> str:
        """Returns a rationale for `verdict` on the last of `actions`."""
        ...


class TeacherOfTests(Teacher, Protocol):
    """Of a world whose reward model writes unit tests."""

    def test(self, task: Task, rng: random.Random) -> tuple[str, str]:
        """Returns (what the writer of tests reads, an imperfect test)."""
        ...
