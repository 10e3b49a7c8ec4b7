"""Watches one running program from outside: feeds it, collects its output, and kills it at a limit."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from .protocol import Program, Result, encoded

_SAMPLE_S = 0.05  # how often the memory of all processes together is added up
_CHUNK = 1 << 16


class Watched(NamedTuple):
    """`limit` is the status of the limit that was hit, '' if none."""

    stdout: bytes
    stderr: bytes
    limit: str
    seconds: float


def watch(
    program: Program,
    pid: int,
    process: int,
    pipes: Sequence[IO[bytes]],
    *,
    started: float,
) -> Watched:
    """Feeds and empties the pipes of a process until it is dead.

    `process` is a pidfd of `pid`, which must take its whole family with it when it dies, as the first process of a
    pid namespace does: then no writer is left, and what remains in the pipes can be read to its end. `pipes` are
    our ends of its stdin, stdout and stderr, unbuffered. `started` is when it began, on the
    monotonic clock.
    """
    stdin, stdout, stderr = (pipe.fileno() for pipe in pipes)
    deadline, sample = started + program.timeout_s, started + _SAMPLE_S
    room, limit = program.output_kb * 1024, ""
    collected: dict[int, list[bytes]] = {stdout: [], stderr: []}
    poll = select.poll()
    for descriptor in (process, stdout, stderr):
        poll.register(descriptor, select.POLLIN)
    poll.register(stdin, select.POLLOUT)
    for pipe in (stdin, stdout, stderr):
        os.set_blocking(pipe, False)
    waiting: memoryview | None = memoryview(encoded(program.stdin))  # None once the pipe is closed

    def stop(reason: str) -> None:
        nonlocal limit
        if not limit:
            limit = reason
            kill(process)

    def feed() -> None:
        nonlocal waiting
        try:
            waiting = waiting[os.write(stdin, waiting[:_CHUNK]) :] if waiting else None
        except BrokenPipeError:
            waiting = None
        if waiting is None:
            poll.unregister(stdin)
            pipes[0].close()

    def take(pipe: int) -> bool:
        """Reads what is there; False at the end of the pipe."""
        nonlocal room
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        collected[pipe].append(chunk[:room])
        if len(chunk) > room:
            stop("output")
        room = max(room - len(chunk), 0)
        return bool(chunk)

    alive = True
    while alive:
        now = time.monotonic()
        if now >= deadline:
            stop("timeout")
        elif now >= sample:
            sample = now + _SAMPLE_S
            if family_kb(pid) > program.memory_mb * 1024:
                stop("memory")
        pause = 1.0 if limit else min(deadline, sample) - now
        for descriptor, _ in poll.poll(max(pause, 0) * 1e3 + 1):
            if descriptor == process:
                alive = False
            elif descriptor == stdin:
                feed()
            elif not take(descriptor):
                poll.unregister(descriptor)
    seconds = time.monotonic() - started
    for pipe in (stdout, stderr):
        os.set_blocking(pipe, True)
        while take(pipe):
            pass
    return Watched(b"".join(collected[stdout]), b"".join(collected[stderr]), limit, seconds)


def result(watched: Watched, exit_code: int, cpu_s: float, program: Program, *, killed: str) -> Result:
    """What to tell the caller.

    `exit_code` is minus the signal if there was one, `cpu_s` the processor time of the program, `killed` the status
    for a SIGKILL that came neither from us nor from the limit on processor time.
    """
    status = watched.limit
    if not status and exit_code == 0:
        status = "ok"
    elif not status and exit_code == -signal.SIGKILL:
        status = "timeout" if cpu_s >= program.timeout_s else killed
    elif not status and exit_code < 0:
        status = "timeout" if exit_code == -signal.SIGXCPU else "signal"
    elif not status:
        status = "memory" if watched.stderr.rstrip().endswith(b"MemoryError") else "error"
    stdout, stderr = (text.decode("utf-8", "replace") for text in (watched.stdout, watched.stderr))
    return Result(status, stdout, stderr, watched.seconds, exit_code)


def kill(process: int) -> None:
    """Ends the process behind a pidfd, if it has not ended yet."""
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def family_kb(pid: int) -> int:
    """Memory of a process and all its descendants that is not backed by a file, in kB.

    A page that a parent and its fork share counts for both.
    """
    total, family = 0, [str(pid)]
    while family:
        process = Path("/proc", family.pop())
        try:
            for line in (process / "status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1])
            for task in (process / "task").iterdir():
                family += (task / "children").read_text().split()
        except OSError:  # it ended meanwhile
            continue
    return total
