"""What a fork of the server does: it reads its program, locks itself in and becomes the program."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import NoReturn

from .confine import Host, confine
from .execute import execute
from .protocol import from_json


def become_program(run: socket.socket, pipes: Sequence[int], uid: int, gid: int, host: Host) -> NoReturn:
    """Runs the program that comes over the first of `pipes`; the others are its stdin, stdout and stderr.

    Before any foreign code runs, `run` hears "ready" and the time of the monotonic clock, or the reason why the
    sandbox could not be made. Then no descriptor but the standard three is open.
    """
    source, *standard = pipes
    try:
        try:
            program = from_json(b"".join(iter(lambda: os.read(source, 1 << 20), b"")))
            confine(program, uid, gid, host)
        except BaseException as error:
            run.send(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
            os._exit(1)
        for target, pipe in enumerate(standard):
            os.dup2(pipe, target)
        run.send(f"ready {time.monotonic()}".encode())
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if not program.argv:
            execute(program.code)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a command would inherit that
        try:
            os.execvp(program.argv[0], program.argv)
        except OSError as error:
            os.write(2, f"{program.argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
            os._exit(127)
    finally:
        os._exit(1)
