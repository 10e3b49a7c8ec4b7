"""The second backend: bubblewrap, an own process tree per run. Slower, but it asks less of the kernel."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time

from . import seccomp, view
from .protocol import Program, Result, encoded
from .server import FIRST_UID
from .watch import result, watch

_PYTHON = "/usr/bin/python3"
_SCRIPT = "/program.py"


class Bubblewrap:
    """Runs programs by `bwrap`; RuntimeError, with the reason, where its parts are missing.

    Differs from the fork server: always the system's Python; no limit on the number of files; a command that
    a signal ends shows the same exit code as one that exits with 128 + signal.
    """

    name = "bubblewrap"

    def __init__(self) -> None:
        needed = ["bwrap", "prlimit", *(["setpriv"] if os.geteuid() == 0 else [])]
        missing = [name for name in needed if shutil.which(name) is None]
        if missing or not os.path.exists(_PYTHON):
            raise RuntimeError(f"not installed: {', '.join(missing or [_PYTHON])}")
        try:
            self._filter = seccomp.filter_program()
        except OSError as error:
            raise RuntimeError(str(error)) from error

    def run(self, program: Program, slot: int) -> Result:
        """Runs one program. Two runs at a time must not share a slot. Thread-safe."""
        started = time.monotonic()
        command = program.argv or (_PYTHON, "-s", "-B", _SCRIPT)
        script, rules = _in_memory(encoded(program.code)), _in_memory(self._filter)
        try:
            process = subprocess.Popen(
                [*_drop(slot), *_walls(program, script, rules), *_limits(program), *command],
                pass_fds=[script, rules],
                env={"PATH": os.environ.get("PATH", os.defpath)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        finally:
            os.close(script)
            os.close(rules)
        assert process.stdin and process.stdout and process.stderr
        handle = os.pidfd_open(process.pid)
        with process.stdin, process.stdout, process.stderr:
            pipes = process.stdin, process.stdout, process.stderr
            watched = watch(program, process.pid, handle, pipes, started=started)
        os.close(handle)
        _, waited, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(waited)
        if code > 128:  # how bwrap passes on a signal
            code = 128 - code
        return result(watched, code, usage.ru_utime + usage.ru_stime, program, killed="signal")

    def close(self) -> None:
        """Nothing runs between two runs."""


def _in_memory(content: bytes) -> int:
    """A descriptor to read `content` from."""
    file = os.memfd_create("sandbox")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _drop(slot: int) -> list[str]:
    # The kernel does not limit the processes of root.
    uid = FIRST_UID - 1 - slot
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if os.geteuid() == 0 else []


def _limits(program: Program) -> list[str]:
    # Inside the walls, where the kernel counts the processes of one run alone: bwrap's own is the one more.
    return [
        "prlimit",
        f"--cpu={math.ceil(program.timeout_s) + 1}",
        f"--as={program.memory_mb << 20}",
        f"--nproc={program.processes + 1}",
        f"--fsize={program.disk_mb << 20}",
        "--nofile=256",
        "--core=0",
        "--",
    ]


def _walls(program: Program, script: int, rules: int) -> list[str]:
    words = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    words += ["--cap-drop", "ALL", "--clearenv", "--seccomp", str(rules)]
    for name, value in view.ENVIRONMENT.items():
        words += ["--setenv", name, value]
    for path in filter(os.path.lexists, view.SYSTEM):
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    for path in view.DEVICES:
        words += ["--dev-bind", path, path]
    words += ["--size", str(program.disk_mb << 20), "--tmpfs", view.WORK, "--symlink", view.WORK, "/dev/shm"]
    return [*words, "--ro-bind-data", str(script), _SCRIPT, "--remount-ro", "/", "--chdir", view.WORK, "--"]
