"""Turns the assertions of data sets, such as `assert f(2) == 4`, into tests: calls, and what their results must be.

This happens once, when a data set is read. Inputs that a loop draws at random are written out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from rlanything_jax.envs.code.fields import code
from rlanything_jax.envs.code.interpreter import Interpreter
from rlanything_jax.envs.code.problem import RecordError, Test


def convert(
    statements: Sequence[ast.stmt], *, name: str, entry_point: str, definitions: str, field: str
) -> tuple[list[Test], str]:
    """Returns (tests, checker): one test for each of `statements` that asserts something about calls of `name`.

    name: what the assertions call the program's function; entry_point: what the program calls it.
    definitions: code that the assertions build on, such as imports and reference functions.
    Raises RecordError for `field` where an assertion is false by itself or cannot be interpreted.
    """
    interpreter = Interpreter(recorded=name)
    found: list[tuple[list[ast.Call], list[ast.expr]]] = []
    defined = code(definitions, field).body
    try:
        interpreter.run(defined)
        for statement in statements:
            interpreter.calls, interpreter.checks = [], []
            interpreter.run([statement])
            if interpreter.checks:
                found.append((interpreter.calls, interpreter.checks))
            elif interpreter.calls:
                raise RecordError(field, f"{_line(statement)!r} calls the function and asserts nothing")
    except RecordError:
        raise
    except Exception as error:
        raise RecordError(field, f"cannot be turned into tests: {type(error).__name__}: {error}") from error
    sources = _sources([*defined, *statements])
    if all(_literal(checks) for _, checks in found):
        return [Test(_calls(calls, entry_point), _literal(checks)) for calls, checks in found], "equal"
    return [
        Test(_calls(calls, entry_point), _program(checks, sources)) for calls, checks in found
    ], "assertion"


def _calls(calls: Iterable[ast.Call], entry_point: str) -> str:
    name = ast.Name(entry_point, ast.Load())
    return "\n".join(ast.unparse(ast.Call(name, call.args, call.keywords)) for call in calls)


def _literal(checks: Sequence[ast.expr]) -> str:
    """The literal that the only result must equal, '' where that is not all that is asserted."""
    match checks:
        case [ast.Compare(ast.Subscript(ast.Name("results")), [ast.Eq()], [expected])]:
            try:
                ast.literal_eval(expected)
            except ValueError:
                return ""
            return ast.unparse(expected)
    return ""


def _sources(statements: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
    """Name -> the import or the function definition that binds it."""
    sources: dict[str, ast.stmt] = {}
    for statement in statements:
        if isinstance(statement, ast.FunctionDef):
            sources[statement.name] = statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            sources.update((alias.asname or alias.name, statement) for alias in statement.names)
    return sources


def _program(checks: Sequence[ast.expr], sources: dict[str, ast.stmt]) -> str:
    """The assertions, after the definitions that they need."""
    needed: list[ast.stmt] = []
    open_nodes: list[ast.AST] = list(checks)
    while open_nodes:
        for node in ast.walk(open_nodes.pop()):
            source = sources.get(node.id) if isinstance(node, ast.Name) else None
            if source is not None and source not in needed:
                needed.insert(0, source)
                open_nodes.append(source)
    return "\n".join(map(ast.unparse, [*needed, *[ast.Assert(check) for check in checks]]))


def _line(node: ast.stmt) -> str:
    return ast.unparse(node).partition("\n")[0]
