"""HumanEval (Chen et al., 2021, arXiv 2107.03374) as problems.

`check(candidate)` is interpreted once: every assertion becomes a test, every loop one test with all its calls.
Three assertions of HumanEval/33 compare the function with itself; here they compare with the reference solution.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from rlanything_jax.envs.code.assertions import convert
from rlanything_jax.envs.code.fields import code, text
from rlanything_jax.envs.code.problem import Problem, RecordError


def from_humaneval(record: Mapping[str, Any]) -> Problem:
    """Converts a record {task_id, prompt, entry_point, canonical_solution, test}. RecordError names the field."""
    prompt, entry_point = text(record, "prompt"), text(record, "entry_point")
    solution = prompt + text(record, "canonical_solution")
    code(solution, "canonical_solution")
    checks = [
        node
        for node in code(text(record, "test"), "test").body
        if isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1
    ]
    if not checks:
        raise RecordError("test", "defines no check(candidate)")
    tests, checker = convert(
        checks[0].body,
        name=checks[0].args.args[0].arg,
        entry_point=entry_point,
        definitions=solution,
        field="test",
    )
    return Problem(
        id=text(record, "task_id"),
        statement=prompt,
        kind="call",
        tests=tuple(tests),
        checker=checker,
        entry_point=entry_point,
        preamble=_preamble(prompt, entry_point),
        solutions=(solution,),
        source="humaneval",
        licence="MIT",
    )


def _preamble(prompt: str, entry_point: str) -> str:
    """What the prompt defines before the function: a program may do without repeating it."""
    body = code(prompt + "    pass\n", "prompt").body
    before = [node for node in body if not (isinstance(node, ast.FunctionDef) and node.name == entry_point)]
    return "\n".join(map(ast.unparse, before))
