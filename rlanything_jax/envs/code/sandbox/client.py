"""The sandbox as its users see it: one program or many, on the best backend that this machine allows."""

from __future__ import annotations

import atexit
import functools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from .bubblewrap import Bubblewrap
from .forkserver import ForkServer, interpreters
from .protocol import Program, Result
from .server import SLOTS

BACKENDS = ("forkserver", "bubblewrap")
_FIX = """\
To fix it: use Linux 5.14 or later on x86_64 or aarch64; allow unprivileged user namespaces
(sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, kernel.unprivileged_userns_clone=1 on Debian,
user.max_user_namespaces > 0) or run as root; in Docker add --security-opt seccomp=unconfined --cap-add SYS_ADMIN;
for the second backend, apt-get install bubblewrap."""


class Backend(Protocol):
    """Runs one program per slot at a time; called from many threads."""

    name: str

    def run(self, program: Program, slot: int) -> Result: ...

    def close(self) -> None: ...


class Sandbox:
    """Runs untrusted programs, up to `slots` at a time; a context manager.

    `backend` is 'auto' or one of BACKENDS; the attribute of that name says which one it is. RuntimeError if none
    works here: nothing is ever run without walls. Thread-safe.

    A program sees the interpreter and /usr, both read-only, and an empty work folder, /tmp, which is gone
    afterwards with every process it started. It has no network, no sockets, no /proc, no capabilities.
    """

    def __init__(self, slots: int | None = None, *, backend: str = "auto") -> None:
        slots = slots or 2 * (os.cpu_count() or 1)
        if not 1 <= slots <= SLOTS:
            raise ValueError(f"slots must be between 1 and {SLOTS}, got {slots}")
        if backend not in ("auto", *BACKENDS):
            raise ValueError(f"backend must be one of {', '.join(('auto', *BACKENDS))}; got {backend!r}")
        self._backend = _start(BACKENDS if backend == "auto" else (backend,))
        self.backend, self.slots = self._backend.name, slots
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(slots):
            self._free.put(slot)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="sandbox")

    def submit(self, program: Program) -> Future[Result]:
        """Queues a program. The future raises RuntimeError if the sandbox itself failed."""
        return self._threads.submit(self._run, program)

    def run_all(self, programs: Iterable[Program]) -> list[Result]:
        """Runs programs, as many at a time as there are slots; results in their order."""
        return [future.result() for future in [self.submit(program) for program in programs]]

    def run(self, code: str, *, language: str = "python", **settings: Any) -> Result:
        """Runs Python code or, with language 'shell', a POSIX shell script. `settings` are fields of Program."""
        return self.submit(as_program(code, language=language, **settings)).result()

    def run_command(self, argv: Sequence[str], **settings: Any) -> Result:
        """Runs a command of the host's /usr. `settings` are fields of Program. Exit code 127: no such command."""
        return self.submit(Program(argv=tuple(argv), **settings)).result()

    def close(self) -> None:
        """Waits for the programs that run, and ends the sandbox."""
        self._threads.shutdown(cancel_futures=True)
        self._backend.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, program: Program) -> Result:
        slot = self._free.get()
        try:
            return self._backend.run(program, slot)
        finally:
            self._free.put(slot)


def as_program(code: str, *, language: str = "python", **settings: Any) -> Program:
    """The Program that runs `code`. `language` is 'python' or 'shell'; `settings` are fields of Program."""
    if language == "python":
        return Program(code, **settings)
    if language == "shell":
        return Program(argv=("/bin/sh", "-c", code), **settings)
    raise ValueError(f"language must be 'python' or 'shell', got {language!r}")


def run(
    code: str, *, stdin: str | bytes = "", timeout_s: float = 5, memory_mb: int = 512, **settings: Any
) -> Result:
    """Runs one program in this process's shared sandbox, which starts with the first call. See Sandbox.run."""
    return _shared().run(code, stdin=stdin, timeout_s=timeout_s, memory_mb=memory_mb, **settings)


def run_all(programs: Iterable[Program]) -> list[Result]:
    """Runs programs in this process's shared sandbox. See Sandbox.run_all."""
    return _shared().run_all(programs)


def run_command(argv: Sequence[str], **settings: Any) -> Result:
    """Runs one command in this process's shared sandbox. See Sandbox.run_command."""
    return _shared().run_command(argv, **settings)


_lock = threading.Lock()
_sandboxes: dict[int, Sandbox] = {}  # by process id: a forked child must not use its parent's threads


def _shared() -> Sandbox:
    with _lock:
        if os.getpid() not in _sandboxes:
            sandbox = _sandboxes[os.getpid()] = Sandbox()
            atexit.register(sandbox.close)
        return _sandboxes[os.getpid()]


def _start(names: Sequence[str]) -> Backend:
    """The first backend that runs a program correctly."""
    if sys.platform != "linux":
        raise RuntimeError(f"the sandbox needs Linux (namespaces, Landlock); this is {sys.platform}")
    tried = []
    for name, start in _ways(names):
        try:
            backend = start()
        except (RuntimeError, OSError) as error:
            tried.append(f"  {name}: {error}")
            continue
        try:
            # An import, because the interpreter's files may be out of the program's reach.
            result = backend.run(Program("import colorsys; print(6 * 7)", timeout_s=30), 0)
            if result.status == "ok" and result.stdout == "42\n":
                return backend
            tried.append(f"  {name}: a first program ended with {result}")
        except RuntimeError as error:
            tried.append(f"  {name}: {error}")
        backend.close()
    raise RuntimeError(
        "\n".join(["no sandbox works here, and nothing is run without one. Tried:", *tried, _FIX])
    )


def _ways(names: Sequence[str]) -> Iterable[tuple[str, Callable[[], Backend]]]:
    if "forkserver" in names:
        for interpreter in interpreters():
            yield f"forkserver with {interpreter}", functools.partial(ForkServer, interpreter)
    if "bubblewrap" in names:
        yield "bubblewrap", Bubblewrap
