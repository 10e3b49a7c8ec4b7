"""Runs programs that nobody trusts: no network, no files of the host, bounds on everything, nothing left behind.

The names come with their first use: the server is part of this package, and every module that it does not load
makes its forks cheaper.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import BACKENDS, Sandbox, as_program, run, run_all, run_command
    from .protocol import STATUSES, Program, Result

__all__ = [
    "BACKENDS",
    "STATUSES",
    "Program",
    "Result",
    "Sandbox",
    "as_program",
    "run",
    "run_all",
    "run_command",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "protocol" if name in ("STATUSES", "Program", "Result") else "client"
    return getattr(importlib.import_module(f".{module}", __name__), name)
