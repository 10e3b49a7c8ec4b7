"""Runs in the sandbox, never imported: calls a program's function and writes what it returned as JSON.

Reads {"code", "setup", "calls"} from stdin. What the program itself prints goes to stderr, so that only the
answer is left on stdout. Values become plain JSON; what JSON lacks is tagged with its type, and of an object
that is not plain only its truth is told. A program may well write an answer itself: that is worth what a
returned value is worth.
"""

import json
import linecache
import os
import sys
import traceback
import types


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


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    answer = os.dup(1)
    os.dup2(2, 1)
    sys.excepthook = traceback.print_exception  # knows linecache, and so can quote the program
    module = sys.modules["solution"] = types.ModuleType("solution")
    for name, code in (("solution.py", job["code"]), ("setup.py", job["setup"])):
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        exec(compile(code, name, "exec"), module.__dict__)
    values = [encoded(eval(call, module.__dict__)) for call in job["calls"]]
    with os.fdopen(answer, "w", encoding="utf-8") as file:
        json.dump(values, file)


if __name__ == "__main__":
    main()
