"""Programs, calls and values as models write them: read, never evaluated."""

from __future__ import annotations

import ast

from rlanything_jax.envs.code.fields import code
from rlanything_jax.envs.code.problem import Problem, calls

_UNREADABLE = (ValueError, TypeError, RecursionError, MemoryError)


def fault(program: str) -> str:
    """Why `program` is not a Python program, '' where it is one."""
    if not program.strip():
        return "it is empty"
    try:
        code(program, "program")
    except (ValueError, RecursionError, MemoryError) as error:
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"
    return ""


def called(problem: Problem) -> str:
    """What the tests of a call problem call: a function or, in some data sets, a method such as `Solution().f`."""
    first = ast.parse(calls(problem.tests[0].input)[0], mode="eval").body
    return ast.unparse(first.func) if isinstance(first, ast.Call) else problem.entry_point


def literal_call(problem: Problem, text: str) -> str | None:
    """`text` in one line, if it is one call of what the problem's tests call, with literals for arguments."""
    try:
        match code(text.strip(), "call").body:
            case [ast.Expr(ast.Call(function, arguments, keywords) as call)]:
                for argument in (*arguments, *(keyword.value for keyword in keywords)):
                    ast.literal_eval(argument)
                fits = ast.unparse(function) == called(problem) and all(k.arg for k in keywords)
                return ast.unparse(call) if fits else None
    except _UNREADABLE:
        pass
    return None


def literal(text: str) -> str | None:
    """`text` in one line, if it is a Python literal."""
    try:
        match code(text.strip(), "value").body:
            case [ast.Expr(value)]:
                ast.literal_eval(value)
                return ast.unparse(value)
    except _UNREADABLE:
        pass
    return None
