"""Programming problems follow the policy: a rewrite counts if an independent solver confirms all of its tests."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from ml_collections import ConfigDict

from rlanything_jax import adaptation
from rlanything_jax.adaptation import adapt
from rlanything_jax.dialogue import Speaker, WordDialogue
from rlanything_jax.envs.code.problem import Problem, Test
from rlanything_jax.envs.code.world import CodeWorld
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.rollouts import Step, Trajectory
from rlanything_jax.sampler.generate import Response
from rlanything_jax.tasks import Task, TaskPool

DIALOGUE = WordDialogue(build_tokenizer(["put a mug"], []))
REWRITER = Speaker({}, ModelConfig(300, 8, 1, 1, 1, 8, 8), DIALOGUE)
CONFIG = ConfigDict(
    {
        "source": "critique",
        "low": 0.2,
        "high": 0.8,
        "max_pending": 2,
        "attempts": 2,
        "temperature": 1.0,
        "max_tokens": 8,
        "length_buckets": (128,),
    }
)
PROBLEM = Problem(
    id="double",
    statement="Return x doubled.",
    kind="call",
    tests=(Test("double(1)", "2", public=True), Test("double(3)", "6")),
    checker="equal",
    entry_point="double",
)
TASK = Task("train/double", "code", PROBLEM.statement, {"problem": PROBLEM.to_json()})
EDIT = {
    "question": "Return x doubled, or 0 where x is negative.",
    "inputs": ["double(-2)", "double(0)", "double(4)", "double(7)"],
    "solution": "def double(x):\n    return 2 * x if x > 0 else 0",
}
AGREES = "```python\ndef double(number):\n    return max(0, number) * 2\n```"
DIFFERS = "```python\ndef double(number):\n    return number * 2\n```"


def block(edit: Any) -> str:
    return f"Harder like this:\n```json\n{json.dumps(edit)}\n```"


class Desk:
    """A pool with one easy problem; the rewriter writes `edits`, the second solver `second`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = CodeWorld(style="chat")
        self.pool = TaskPool([TASK], seed=0, original_share=0.5, fingerprint=self.world.fingerprint)
        self.edits: Sequence[str] = ()
        self.second = AGREES
        self.asked: list[list[str]] = []
        self.requests: list[tuple[int, int]] = []
        monkeypatch.setattr(adaptation, "generate", self._generate)

    def _generate(
        self, speaker: Speaker, prompts: Sequence[str], samples: int, **how: Any
    ) -> list[list[Response]]:
        self.asked.append(list(prompts))
        self.requests.append((how["seed"], how.get("first_request", 0)))
        texts = self.edits if len(self.asked) == 1 else [self.second]
        return [[Response(text, True, [], []) for text in texts] for _ in prompts]

    def adapt(self) -> dict[str, int]:
        won = [
            Trajectory(TASK, j, j, DIALOGUE, steps=[Step("", "", "", 0, 0, 1)], won=True) for j in range(4)
        ]
        return adapt(
            REWRITER, self.world, lambda *_: "'double(3)' -> '6': 100% of the programs pass", self.pool, [TASK], won,
            [[[]]] * 4, CONFIG, iteration=0, seed=3,
        )  # fmt: skip

    def reason(self) -> str:
        return self.pool.events()[-1]["reason"]


@pytest.fixture
def desk(sandbox: None, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def test_a_rewrite_that_two_solvers_agree_on_is_proposed(desk: Desk) -> None:
    desk.edits = [block(EDIT)]
    assert desk.adapt()["proposed"] == 1
    (child,) = desk.pool.pending()
    problem = desk.world.problem(child)
    assert child.parent == TASK.id and problem.statement == EDIT["question"]
    assert [(test.input, test.output) for test in problem.tests] == [
        ("double(-2)", "0"),
        ("double(0)", "0"),
        ("double(4)", "8"),
        ("double(7)", "14"),
    ]
    first, second = desk.asked
    assert "100% of the programs pass" in first[0] and "harder" in first[0]
    assert (
        EDIT["question"] in second[0]
        and EDIT["solution"] not in second[0]
        and PROBLEM.statement not in second[0]
    )


def test_the_second_solver_draws_other_numbers_than_the_rewriter(desk: Desk) -> None:
    desk.edits = [block(EDIT)]
    desk.adapt()
    assert len(set(desk.requests)) == 2


@pytest.mark.parametrize(
    "second", [DIFFERS, "I do not know.", "```python\ndef double(x):\n    return 1 / 0\n```"]
)
def test_a_rewrite_that_the_second_solver_does_not_confirm_is_refused(desk: Desk, second: str) -> None:
    desk.edits, desk.second = [block(EDIT)], second
    counts = desk.adapt()
    assert (counts["proposed"], counts["refused"]) == (0, 1) and not desk.pool.pending()
    assert "double(-2)" in desk.reason() or "second" in desk.reason()


def test_what_is_no_edit_asks_nobody_for_a_second_opinion(desk: Desk) -> None:
    desk.edits = ["I would rather not.", block(EDIT | {"inputs": ["double(1)"]})]
    counts = desk.adapt()
    assert (counts["proposed"], counts["refused"]) == (0, 2) and len(desk.asked) == 1


def test_a_good_edit_behind_a_bad_one_is_found(desk: Desk) -> None:
    desk.edits = ["I would rather not.", block(EDIT)]
    counts = desk.adapt()
    assert (counts["proposed"], counts["refused"]) == (1, 1)
