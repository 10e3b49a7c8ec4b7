"""The client's end of the fork server: starts it and hands it one socket per run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from . import view
from .protocol import Program, Result, to_json
from .watch import kill, result, watch

# The server imports only its own files and the standard library, so any Python 3.11 or later can run it.
_START = """
import sys
sys.path[0] = sys.argv[1]
from sandbox import server
del sys.path[0]
server.main(int(sys.argv[2]))
"""
_ANSWER_S = 60.0  # how long the server may take where it should answer at once
_MESSAGE = 1 << 16


def interpreters() -> list[str]:
    """Interpreters to run programs with, best first: the one that runs us, outside its venv; the system's."""
    found = []
    prefix = Path(sys.base_prefix).resolve()
    if not Path.home().resolve().is_relative_to(prefix):  # programs see the prefix: it must not hold a home
        found.append(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    return list(dict.fromkeys([*found, *filter(os.path.exists, [os.path.realpath("/usr/bin/python3")])]))


class ForkServer:
    """A running server; RuntimeError, with the reason, if this machine does not allow one."""

    name = "forkserver"

    def __init__(self, interpreter: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = str(Path(__file__).resolve().parent.parent)
        with theirs:
            self._process = subprocess.Popen(
                [interpreter, "-s", "-B", "-c", _START, folder, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=view.ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        self._control.settimeout(_ANSWER_S)
        try:
            answer = self._control.recv(_MESSAGE)
        except OSError as error:
            answer = json.dumps({"error": f"{interpreter} gave no answer: {error}"}).encode()
        self._control.settimeout(None)
        if not answer or "error" in json.loads(answer):
            self._process.kill()
            complaint = self._process.communicate()[1].decode("utf-8", "replace").strip()
            self._control.close()
            raise RuntimeError(
                json.loads(answer)["error"] if answer else complaint or f"{interpreter} failed"
            )
        assert self._process.stderr is not None
        self._process.stderr.close()

    def run(self, program: Program, slot: int) -> Result:
        """Runs one program. Two runs at a time must not share a slot. Thread-safe."""
        try:
            return self._run(program, slot)
        except (OSError, EOFError) as error:
            state = "is running" if self._process.poll() is None else "has died"
            raise RuntimeError(
                f"no answer from the sandbox ({error}); its server, process {self._process.pid}, {state}. "
                "If the machine ran out of memory, use fewer slots or a smaller memory_mb."
            ) from error

    def _run(self, program: Program, slot: int) -> Result:
        with ExitStack() as stack:
            run, theirs = (stack.enter_context(end) for end in socket.socketpair(type=socket.SOCK_SEQPACKET))
            run.settimeout(_ANSWER_S)
            code, stdin, stdout, stderr = (os.pipe() for _ in range(4))
            inner = theirs.fileno(), code[0], stdin[0], stdout[1], stderr[1]
            source, to_program = (
                stack.enter_context(open(pipe[1], "wb", buffering=0)) for pipe in (code, stdin)
            )
            outputs = [stack.enter_context(open(pipe[0], "rb", buffering=0)) for pipe in (stdout, stderr)]
            try:
                socket.send_fds(self._control, [str(slot).encode()], inner)
            finally:
                theirs.close()
                for end in inner[1:]:
                    os.close(end)
            with suppress(BrokenPipeError), source:  # then the reason comes below
                source.write(to_json(program))
            pid, process, started = _started(run)
            stack.callback(os.close, process)
            stack.callback(kill, process)  # a fault on our side must not leave it running
            watched = watch(program, pid, process, (to_program, *outputs), started=started)
            ending = run.recv(_MESSAGE)
            if not ending:
                raise EOFError("the server closed the connection")
            waited, cpu_s = json.loads(ending)
        exit_code = os.waitstatus_to_exitcode(waited)
        return result(watched, exit_code, cpu_s, program, killed="memory")

    def close(self) -> None:
        """Ends the server."""
        self._control.close()
        self._process.wait()


def _started(run: socket.socket) -> tuple[int, int, float]:
    """Process id, pidfd and start of a run, once its sandbox is whole. The child's word may overtake the server's."""
    pid, process, words = 0, -1, [""]
    while not words[0] or (words[0] == "ready" and process < 0):
        message, handles, _, _ = socket.recv_fds(run, _MESSAGE, 1)
        if not message:
            raise EOFError("the server closed the connection")
        if handles:
            pid, process = int(message), handles[0]
        else:
            words = message.decode("utf-8", "replace").split(" ")
    if words[0] != "ready":
        if process >= 0:
            os.close(process)
        raise RuntimeError(f"the sandbox could not be made: {' '.join(words)}")
    return pid, process, float(words[1])
