"""MBPP (Austin et al., 2021, arXiv 2108.07732), as published and sanitized, as problems.

The first assertion is public: it is all that tells the function's name and signature. The full version's
`challenge_test_list` is left out, as in the paper's evaluation.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from typing import Any

from rlanything_jax.envs.code.assertions import convert
from rlanything_jax.envs.code.fields import code, text, texts
from rlanything_jax.envs.code.problem import Problem, RecordError


def from_mbpp(record: Mapping[str, Any]) -> Problem:
    """Converts a record {task_id, text or prompt, code, test_list}, perhaps with test_setup_code or test_imports.

    RecordError names the field.
    """
    solution = text(record, "code")
    defined = code(solution, "code").body
    functions = {node.name for node in defined if isinstance(node, ast.FunctionDef)}
    asserted = texts(record, "test_list")
    if not asserted:
        raise RecordError("test_list", "the problem has no tests")
    assertions = code("\n".join(asserted), "test_list").body
    called = [
        node.func.id
        for assertion in assertions
        for node in ast.walk(assertion)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions
    ]
    if not called:
        raise RecordError("test_list", "calls no function that the solution defines")
    imports = "\n".join(texts(record, "test_imports")) if "test_imports" in record else ""
    # One assertion relies on what the solution imports.
    imported = [ast.unparse(node) for node in defined if isinstance(node, (ast.Import, ast.ImportFrom))]
    tests, checker = convert(
        assertions,
        name=called[0],
        entry_point=called[0],
        definitions="\n".join([imports, *imported]),
        field="test_list",
    )
    if len(tests) != len(assertions):
        raise RecordError(
            "test_list", f"{len(assertions) - len(tests)} assertions do not depend on {called[0]}"
        )
    return Problem(
        id=f"mbpp/{record['task_id']}",
        statement=text(record, "prompt" if "prompt" in record else "text"),
        kind="call",
        tests=(dataclasses.replace(tests[0], public=True), *tests[1:]),
        checker=checker,
        entry_point=called[0],
        preamble=imports,
        setup=record.get("test_setup_code", ""),
        solutions=(solution,),
        source="mbpp",
        licence="CC-BY-4.0",
    )
