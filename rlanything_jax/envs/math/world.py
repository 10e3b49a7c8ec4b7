r"""The mathematics world: questions of prepared data sets as tasks, for chat models."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from rlanything_jax.envs import stored
from rlanything_jax.envs.base import Observation, Refused
from rlanything_jax.envs.math.env import MathEnv
from rlanything_jax.envs.math.question import Question
from rlanything_jax.tasks.task import Task

SYSTEM = "You solve problems of mathematics step by step."
QUESTION = (
    "Now judge the last response only. It is good if its reasoning is sound and leads to the right answer, or if its program "
    "computes what the answer needs. It is bad if it holds a mistake, or brings the answer no closer. Think briefly, then give "
    "your verdict: \\boxed{1} for good, \\boxed{-1} for bad."
)
_ANSWER = "Think step by step, then give the answer alone in \\boxed{}."
_TOOL = (
    "If a computation would help, end your response with a ```python block instead, which prints what you want to know; you "
    "will be shown its output."
)
_NO_REWRITE = "math tasks are not rewritten"


@dataclasses.dataclass
class MathWorld:
    """Questions of the data set that `sources` names for each split, as 'gsm8k:test[:50]', in the prepared folder `data`.

    An episode has at most `max_steps` responses; with `tool` all but the answer may be programs to run, see `MathEnv`. Tasks are
    not rewritten: config.adapt_tasks must be False.
    """

    data: str | None = None
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_steps: int = 1
    tool: bool = False
    labels: bool = True
    style: str = "chat"
    name: str = "math"
    phrases: Sequence[str] = ()
    system: str = dataclasses.field(default=SYSTEM, init=False)
    question: str = dataclasses.field(default=QUESTION, init=False)

    def __post_init__(self) -> None:
        if self.style != "chat":
            self._no_warm_start()

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split in a fixed order. Raises what `stored.find` finds wrong with `sources`."""
        return [
            Task(f"{split}/{question.id}", self.name, question.statement, {"stored": [*place]})
            for place, question in stored.find(self.sources, split, self.data, Question)
        ]

    def environment(self, task: Task) -> MathEnv:
        """The environment that asks the question of `task`."""
        return MathEnv(_asked(self.data, *task.spec["stored"]), self.max_steps, self.labels, self.tool)

    def fingerprint(self, task: Task) -> str:
        """Equal for two tasks if and only if they are the same item of a data set."""
        return json.dumps(task.spec, sort_keys=True)

    def render(self, observation: Observation, task: Task, first: bool) -> str:
        """What the policy reads before it responds: the question, or what followed its last response."""
        tool = f" {_TOOL}" if self.tool and self.max_steps > 1 else ""
        return f"{observation.text}\n\n{_ANSWER}{tool}" if first else f"{observation.text}\n{_ANSWER}"

    def action(self, response: str, observation: Observation) -> str:
        """What a response says once it has thought."""
        return response.rpartition("</think>")[2]

    def rewrite(self, task: Task, edit: str, taken: Collection[str], second: str = "") -> NoReturn:
        """Raises Refused."""
        raise Refused(_NO_REWRITE)

    def rewrite_prompt(self, task: Task, direction: str, critique: str) -> NoReturn:
        """Raises ValueError: a run that asks would refuse every answer."""
        raise ValueError(f"{_NO_REWRITE}: set config.adapt_tasks=False")

    def edit(self, response: str) -> str:
        """No edit."""
        return ""

    def second_prompt(self, task: Task, edit: str) -> str:
        """No second opinion."""
        return ""

    def corpus(self) -> NoReturn:
        """Raises ValueError, as `teacher` does: there is no warm start."""
        self._no_warm_start()

    def teacher(self, noise: float) -> NoReturn:
        """Raises ValueError: there is no warm start."""
        self._no_warm_start()

    def _no_warm_start(self) -> NoReturn:
        raise ValueError("math has no warm start: set config.checkpoint")


@functools.lru_cache(maxsize=2048)
def _asked(data: str | None, *place: str | int) -> Question:
    return stored.item(data, stored.Place(*place), Question)  # type: ignore[arg-type]
