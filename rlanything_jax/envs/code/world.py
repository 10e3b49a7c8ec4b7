"""The coding world: programming problems of prepared data sets, or generated ones, as tasks."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import random
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlanything_jax.envs import stored
from rlanything_jax.envs.base import Observation, Refused
from rlanything_jax.envs.code import chat, rewriting
from rlanything_jax.envs.code.env import CodeEnv
from rlanything_jax.envs.code.grading import Job, grade, grade_all
from rlanything_jax.envs.code.problem import Problem, Test, WrittenTest, cut
from rlanything_jax.tasks.task import Task

if TYPE_CHECKING:
    from rlanything_jax.envs.code.functions.teacher import CodeTeacher

_STYLES = ("words", "chat")
_INSTRUCTION = 500  # characters of a statement that name a task in logs


@dataclasses.dataclass
class CodeWorld:
    """Tasks from prepared data sets where `sources` names one for each split, as 'mbpp:train[:200]', else generated functions.

    `data` is the folder of `python -m rlanything_jax.data prepare`. Most data sets mark no test as public: then the first one
    is, if there are others, and the rest is hidden.

    Generated ones: `problems` says how many there are of each split; each draws one of `kinds`, mappings of `generate.Knobs`
    fields that override `knobs`, in proportion to its 'weight' (1 where it has none). They differ from one `seed` to the next.

    `max_steps` programs may be tried in an episode; 1 means no repair. `style` is that of the texts: 'words' for word-level
    models, which know generated functions only, 'chat' for chat models.
    """

    data: str | None = None
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    problems: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"train": 256, "valid_seen": 64, "valid_unseen": 64}
    )
    knobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    kinds: Sequence[Mapping[str, Any]] = ()
    seed: int = 0
    max_steps: int = 1
    labels: bool = True
    style: str = "words"
    name: str = "code"
    phrases: Sequence[str] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.style not in _STYLES:
            raise ValueError(f"style={self.style!r} is unknown: choose one of {', '.join(_STYLES)}")
        if self.sources and self.style == "words":
            raise ValueError(
                f"world.sources={dict(self.sources)} needs chat models: set config.checkpoint, or leave it out"
            )
        self.phrases = self._texts.PHRASES

    @property
    def system(self) -> str:
        """What a chat model is told before all else."""
        return self._texts.SYSTEM

    @property
    def question(self) -> str:
        """Empty: tests, not verdicts, judge a program."""
        return self._texts.QUESTION

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split in a fixed order. Raises what `stored.find` finds wrong with `sources`."""
        stored.check_split(split)
        if not self.sources:
            return [self.generated(split, i) for i in range(self.problems.get(split, 0))]
        return [
            Task(
                f"{split}/{problem.id}", self.name, cut(problem.statement, _INSTRUCTION), {"stored": [*place]}
            )
            for place, problem in stored.find(self.sources, split, self.data, Problem)
        ]

    def generated(self, split: str, index: int) -> Task:
        """The task number `index` of those that are generated for a split."""
        knobs = dict(self.knobs)
        if self.kinds:
            rng = random.Random(f"{split} {self.seed} {index}")
            (kind,) = rng.choices(self.kinds, [kind.get("weight", 1) for kind in self.kinds])
            knobs.update({key: value for key, value in kind.items() if key != "weight"})
        seed = self.seed * 1_000_000 + index
        spec = {"generate": {"seed": seed, "split": split, **knobs}}
        return Task(f"{split}/function-{seed}", self.name, _problem(None, _text(spec)).statement, spec)

    def problem(self, task: Task) -> Problem:
        """The problem of `task`; recently used ones are kept."""
        return _problem(self.data, _text(task.spec))

    def environment(self, task: Task) -> CodeEnv:
        """The environment that tries programs on `task`."""
        return CodeEnv(self.problem(task), self.max_steps, self.labels)

    def fingerprint(self, task: Task) -> str:
        """Equal for two tasks if and only if they are the same problem: statement, tests and how a program is run.

        Generated functions are the same if they do the same, however they say it.
        """
        if "generate" in task.spec:
            from rlanything_jax.envs.code.functions import fingerprint

            return fingerprint(task.spec)
        p = self.problem(task)
        tests = sorted((test.input, test.output) for test in p.tests)
        content = [
            " ".join(p.statement.split()),
            p.kind,
            p.entry_point,
            p.preamble,
            p.setup,
            p.checker,
            tests,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def passes(self, task: Task, programs: Sequence[str], tests: Sequence[Test]) -> list[list[bool]]:
        """Whether each program passes each test, [program][test]; all are run together."""
        problem = self.problem(task)
        graded = grade_all([Job(problem, program, tests) for program in programs])
        return [[verdict.passed for verdict in verdicts] for verdicts in graded]

    def rewrite(self, task: Task, edit: str, taken: Collection[str], second: str = "") -> Task:
        """Makes a task of the rewriter's edit: a change of a generated function in words, a whole new problem in a chat.

        Refused where no run confirms the outputs of the new tests: in words that of the reference program, in a chat those of
        both the rewriter's solution and the one in `second`. See `functions.edit`, `rewriting` and `World.rewrite`.
        """
        if self.style == "words":
            spec, instruction = self._edited(task, edit)
        else:
            problem = self.problem(task)
            new = rewriting.rewritten(problem, rewriting.parse_edit(problem, edit), chat.action(second))
            spec = {"problem": new.to_json(), "root": task.spec.get("root", task.spec)}
            instruction = cut(new.statement, _INSTRUCTION)
        child = Task("", self.name, instruction, spec, task.id, task.generation + 1)
        mark = self.fingerprint(child)
        if mark == self.fingerprint(task):
            raise Refused("the problem is what it was")
        if mark in taken:
            raise Refused("this problem is already in the pool")
        digest = hashlib.sha256(mark.encode()).hexdigest()
        return dataclasses.replace(child, id=f"{task.id.partition('#')[0]}#{digest[:12]}")

    def _edited(self, task: Task, edit: str) -> tuple[Mapping[str, Any], str]:
        from rlanything_jax.envs.code.functions import build
        from rlanything_jax.envs.code.functions.edit import apply

        spec = apply(task.spec, edit)
        function = build(spec)
        problem = function.problem
        for test, verdict in zip(problem.tests, grade(problem, function.program, problem.tests), strict=True):
            if not verdict.passed:
                raise Refused(f"{edit!r}: the reference program fails {test.input}: {verdict.reason}")
        return spec, problem.statement

    def render(self, observation: Observation, task: Task, first: bool) -> str:
        """What the policy reads before it writes a program; nothing once it has written the last one."""
        return "" if observation.done else self._texts.render(observation, self.problem(task), first)

    def action(self, response: str, observation: Observation) -> str:
        """The program that a response means."""
        return self._texts.action(response)

    def test_prompt(self, task: Task) -> str:
        """What the writer of tests reads."""
        return self._texts.test_prompt(self.problem(task))

    def parse_test(self, task: Task, text: str) -> WrittenTest | None:
        """The test in a response, None where there is none that can be run."""
        return self._texts.parse_test(self.problem(task), text)

    def rewrite_prompt(self, task: Task, direction: str, critique: str) -> str:
        """What the rewriter reads."""
        problem = self.problem(task)
        if "root" not in task.spec:
            return self._texts.rewrite_prompt(problem, direction, critique)
        root = _problem(self.data, _text(task.spec["root"]))
        return chat.rewrite_prompt(problem, direction, critique, root)

    def edit(self, response: str) -> str:
        """The edit that a rewriter's response means."""
        return self._texts.edit(response)

    def second_prompt(self, task: Task, edit: str) -> str:
        """What an independent solver of the rewritten problem reads; "" where the host knows the right outputs itself."""
        return self._texts.second_prompt(self.problem(task), edit)

    def corpus(self) -> list[str]:
        """Texts with every word of generated functions, for a tokenizer."""
        self._check_words()
        return self._texts.corpus()

    def teacher(self, noise: float) -> CodeTeacher:
        """Who demonstrates generated functions; a share `noise` of what it shows is wrong."""
        self._check_words()
        from rlanything_jax.envs.code.functions.teacher import CodeTeacher

        return CodeTeacher(self, noise)

    def _check_words(self) -> None:
        if self.style != "words":
            raise ValueError(f"style={self.style!r} has no warm start: set config.checkpoint")

    @property
    def _texts(self) -> Any:
        return importlib.import_module(f"rlanything_jax.envs.code.{self.style}")


def _text(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, sort_keys=True)


@functools.lru_cache(maxsize=2048)
def _problem(data: str | None, spec: str) -> Problem:
    """The problem of a task's spec, as JSON."""
    fields = json.loads(spec)
    if "stored" in fields:
        return _with_example(stored.item(data, stored.Place(*fields["stored"]), Problem))
    if "problem" in fields:
        return _with_example(Problem.from_json(fields["problem"]))
    from rlanything_jax.envs.code.functions import build

    return build(fields).problem


def _with_example(problem: Problem) -> Problem:
    """Makes the first test public where none is."""
    if len(problem.tests) < 2 or any(test.public for test in problem.tests):
        return problem
    first, *others = problem.tests
    return dataclasses.replace(problem, tests=(dataclasses.replace(first, public=True), *others))
