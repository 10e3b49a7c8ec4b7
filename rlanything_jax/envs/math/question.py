"""A question with its reference answer, from GSM8K (arXiv 2110.14168) or MATH-500 (arXiv 2103.03874, 2305.20050)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from rlanything_jax.envs.code.fields import field, text
from rlanything_jax.envs.code.problem import RecordError
from rlanything_jax.envs.math.answer import final_answer

_TURN = re.compile(r"<｜User｜>(.*?)<｜Assistant｜>", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question; `solution` is a worked one that ends in `answer`."""

    id: str
    statement: str
    answer: str
    solution: str
    source: str
    licence: str

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that `json.dumps` accepts."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Question:
        """Inverse of `to_json`. TypeError where a field is missing or unknown."""
        return cls(**data)


def from_gsm8k(record: Mapping[str, Any]) -> Question:
    """Converts a record {question, answer}, whose answer ends in '#### 42'. RecordError names the field."""
    return _question(record, "gsm8k", text(record, "question"), "answer")


def from_math500(record: Mapping[str, Any]) -> Question:
    """Converts a record {idx, prompt, reference_solution}; the prompt's chat wrapping is removed."""
    prompt = text(record, "prompt")
    turn = _TURN.search(prompt)
    if not turn:
        raise RecordError("prompt", f"holds no user turn: {prompt[:80]!r}")
    return _question(record, "math500", turn[1].strip(), "reference_solution")


def _question(record: Mapping[str, Any], source: str, statement: str, name: str) -> Question:
    solution = text(record, name)
    # A reference ends in '####'; its boxes may be parts of the answer.
    _, mark, answer = solution.rpartition("\n####")
    answer = answer.strip() if mark else final_answer(solution) or ""
    if not answer:
        raise RecordError(name, "holds no final answer after '####' or in a box")
    return Question(f"{source}/{field(record, 'id')}", statement, answer, solution, source, "MIT")
