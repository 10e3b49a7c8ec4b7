"""Runs Python code as if a new interpreter ran it as its script, without the time that one takes to start."""

from __future__ import annotations

import atexit
import builtins
import io
import linecache
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import NoReturn

NAME = "program.py"  # in tracebacks


def execute(code: str) -> NoReturn:
    """Runs `code` on file descriptors 0, 1 and 2 and ends the process with the exit code that Python would give."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "sandbox"]:
        del sys.modules[name]
    sys.argv = [NAME]
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1, "surrogateescape", line_buffering=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", line_buffering=True)  # type: ignore[misc]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__=NAME)
    sys.modules["__main__"] = main
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)

    # Else the program would inherit this file's __future__ import.
    exit_code = _guarded(lambda: exec(compile(code, NAME, "exec", dont_inherit=True), main.__dict__))
    # What Python does between the last line of a script and its end.
    for last in (threading._shutdown, atexit._run_exitfuncs, _flush):  # type: ignore[attr-defined]
        exit_code = _guarded(last) or exit_code
    os._exit(exit_code)


def _writer(descriptor: int, errors: str, *, line_buffering: bool) -> io.TextIOWrapper:
    file = open(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(file, encoding="utf-8", errors=errors, line_buffering=line_buffering)


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()


def _guarded(action: Callable[[], object]) -> int:
    """Calls `action`; the exit code after what it raised, which is reported as Python does."""
    try:
        action()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        os.write(2, f"{error.code}\n".encode("utf-8", "backslashreplace"))
        return 1
    except BaseException as error:
        try:
            frames = error.__traceback__
            for _ in range(2):  # ours: this function, and `action`
                frames = frames and frames.tb_next
            error.with_traceback(frames)
            if sys.excepthook is sys.__excepthook__:  # which would look for the program's lines on disk
                traceback.print_exception(error)
            else:
                sys.excepthook(type(error), error, frames)
            _flush()
        except BaseException:  # no memory left for the report, or the program broke the means of reporting
            os.write(2, type(error).__name__.encode("utf-8", "backslashreplace") + b"\n")
        return 1
    return 0
