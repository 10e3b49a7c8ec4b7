"""SIGTERM: the run saves at the next safe point and exits with a status of its own; the same command continues it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

EXIT_STATUS = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong, run it again


class Preempted(Exception):
    """The machine will be taken away, and nothing has changed since the iteration began."""


class Notice:
    """Whether this host was told to stop."""

    def __init__(self) -> None:
        self.given = False


@contextlib.contextmanager
def watch_for_sigterm() -> Iterator[Notice]:
    """Takes SIGTERM as a notice; in the main thread."""
    notice = Notice()

    def take(*_: Any) -> None:
        notice.given = True

    before = signal.signal(signal.SIGTERM, take)
    try:
        yield notice
    finally:
        signal.signal(signal.SIGTERM, before)
