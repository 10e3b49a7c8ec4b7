"""What goes into the sandbox and what comes out."""

from __future__ import annotations

import dataclasses
import json

STATUSES = ("ok", "error", "signal", "timeout", "memory", "output")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program and its bounds: Python `code`, or, where `argv` is given, that command.

    `memory_mb` bounds the address space of each process, and the memory of all of them together as sampled
    every 50 ms; `disk_mb` and `files` bound the work folder, which lives in memory and comes on top. So a run
    takes memory_mb + disk_mb, and between two samples at most processes * memory_mb + disk_mb.
    `timeout_s` is wall-clock time. `processes` counts threads too. `output_kb` is for stdout and stderr together.
    """

    code: str = ""
    stdin: str | bytes = ""
    argv: tuple[str, ...] = ()
    timeout_s: float = 5.0
    memory_mb: int = 512
    processes: int = 16
    disk_mb: int = 64
    files: int = 4096
    output_kb: int = 1024

    def __post_init__(self) -> None:
        for name in ("timeout_s", "memory_mb", "processes", "disk_mb", "files", "output_kb"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Program.{name} must be positive, got {getattr(self, name)!r}")
        if self.code and self.argv:
            raise ValueError("Program takes code or argv, not both")
        if any("\0" in word for word in self.argv):
            raise ValueError(f"Program.argv holds a null character, which no command can: {self.argv!r}")


@dataclasses.dataclass(frozen=True)
class Result:
    """How a run ended.

    status: 'ok' (exit code 0), 'error' (another exit code), 'signal' (a crash), 'timeout', 'memory' (over a
        limit, or an uncaught MemoryError) or 'output' (cut: more was written than output_kb).
    stdout, stderr: what was written until then, decoded as UTF-8 with replacement characters.
    seconds: wall-clock time of the program, without the making of the sandbox.
    exit_code: of the program, or minus the signal that ended it.
    """

    status: str
    stdout: str
    stderr: str
    seconds: float
    exit_code: int


def encoded(text: str | bytes) -> bytes:
    """UTF-8; a lone surrogate, which a model can emit, becomes a question mark."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")


def to_json(program: Program) -> bytes:
    """All but the stdin, for the process that becomes the program."""
    return json.dumps(dataclasses.asdict(dataclasses.replace(program, stdin=""))).encode()


def from_json(text: bytes) -> Program:
    """The other end of to_json."""
    fields = json.loads(text)
    return Program(**{**fields, "argv": tuple(fields["argv"])})
