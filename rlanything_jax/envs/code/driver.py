"""Runs in the sandbox, never imported: calls a program's function and writes what it returned as JSON.

Reads {"code", "setup", "tests"} from stdin, where a test is a list of calls. Writes a line for each test: its number and the
values of its calls or, as one string, the error that ended it. Each test calls a new copy of the program, so that it finds no
variable as another test left it. A call that ends the process, or never ends, leaves its test and those behind it without a line.

What the program itself prints goes to stderr, so that only answers are left on stdout. Values become plain JSON; what JSON lacks
is tagged with its type, and of an object that is not plain only its truth is told. A program may well write an answer itself:
that is worth what a returned value is worth.
"""

import json
import linecache
import os
import sys
import traceback
import types

SHOWN = 500  # characters of an error


def encoded(value: object) -> object:
    """`value` in plain JSON. Of a subclass only what its base holds is kept: a counter is a dict."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, dict):
        return {"type": "dict", "items": [encoded(item) for item in value.items()]}
    if isinstance(value, (bytes, bytearray)):
        return {"type": "bytes", "items": value.hex()}
    if isinstance(value, complex):
        return {"type": "complex", "items": [value.real, value.imag]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {"type": kind.__name__, "items": [encoded(item) for item in value]}
    return {"type": type(value).__name__, "items": [bool(value)]}


def values(job: dict, calls: list) -> list:
    """What the calls return, in a new copy of the program."""
    module = sys.modules["solution"] = types.ModuleType("solution")
    for name, code in (("solution.py", job["code"]), ("setup.py", job["setup"])):
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        exec(compile(code, name, "exec"), module.__dict__)
    return [encoded(eval(call, module.__dict__)) for call in calls]


def described(error: BaseException) -> str:
    """The error in one line; its traceback goes to stderr."""
    traceback.print_exception(error)
    message = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {message}"[:SHOWN] if message else type(error).__name__


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for test, calls in enumerate(job["tests"]):
        outcome: object
        try:
            outcome = values(job, calls)
        except BaseException as error:
            outcome = described(error)
        # On a line of its own, whatever the program wrote.
        answers.write(f"\n{test} {json.dumps(outcome)}\n")
        answers.flush()
    os._exit(0)  # a thread that goes on changes no answer


if __name__ == "__main__":
    main()
