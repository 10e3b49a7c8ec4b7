"""The fork server: a small Python process, free of threads and of everything but the standard library.

The client starts it as a new program, since a process that holds JAX must not be forked. It enters the view of
the file system that programs get, then forks a child for each run that the client asks for.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import socket

from . import landlock, seccomp, syscalls, view
from .child import become_program
from .confine import Host, map_own_ids

FIRST_UID, SLOTS = 20000, 128  # each server that is root claims a block of SLOTS user ids
_BLOCKS = 256
_CAP_SYS_ADMIN = 21
# Imported once here instead of in each run.
_IMPORTED = (
    "bisect collections.abc copy dataclasses datetime functools heapq itertools math operator random re string "
    "traceback typing"
)


def main(descriptor: int) -> None:
    """Serves the socket `descriptor` until the client closes it.

    Says first, as JSON, {"landlock": ABI} or {"error": reason}. Each later message asks for a run: a slot number
    with five descriptors, the run's own socket and the ends of four pipes (see child). The run's socket answers with
    the process id and a pidfd and, in the end, with the wait status and the processor time as JSON.

    Programs and outputs pass the server by: what it never reads, no later fork of it can find in its memory.
    """
    control = socket.socket(fileno=descriptor)
    for name in _IMPORTED.split():
        importlib.import_module(name)
    try:
        claim, first_uid = _claim_uids()
        host = _prepare(first_uid)
    except OSError as error:
        control.send(json.dumps({"error": str(error)}).encode())
        return
    control.send(json.dumps({"landlock": host.landlock}).encode())
    running: dict[int, tuple[int, socket.socket]] = {}  # pidfd -> process id, the run's socket
    poll = select.poll()
    poll.register(control, select.POLLIN)
    gc.collect()
    gc.freeze()
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                poll.unregister(ready)
                os.close(ready)
                _report(*running.pop(ready))
                continue
            message, received, _, _ = socket.recv_fds(control, 64, 5)
            if not message:
                return  # and every program dies with its parent
            run, pipes = socket.socket(fileno=received[0]), received[1:]
            slot_uid = first_uid + int(message)
            uid, gid = (slot_uid, slot_uid) if host.privileged else (os.getuid(), os.getgid())
            try:
                pid = syscalls.fork_into(host.namespaces)
            except OSError as error:
                pid = -1
                _tell(run, str(error).encode())
            if pid == 0:
                become_program(run, pipes, uid, gid, host)
            for pipe in pipes:
                os.close(pipe)
            if pid < 0:
                run.close()
                continue
            process = os.pidfd_open(pid)
            _tell(run, str(pid).encode(), process)
            running[process] = pid, run
            poll.register(process, select.POLLIN)


def _tell(run: socket.socket, message: bytes, *handles: int) -> None:
    try:
        socket.send_fds(run, [message], handles)
    except OSError:  # nobody waits any more
        pass


def _report(pid: int, run: socket.socket) -> None:
    _, status, usage = os.wait4(pid, 0)
    with run:
        _tell(run, json.dumps([status, usage.ru_utime + usage.ru_stime]).encode())


def _claim_uids() -> tuple[socket.socket, int]:
    """The first of SLOTS user ids that no other server on this machine uses; they are ours while the socket is open.

    The kernel counts processes by user, so two runs must not share one.
    """
    claim = socket.socket(socket.AF_UNIX)
    for first in range(FIRST_UID, FIRST_UID + SLOTS * _BLOCKS, SLOTS):
        try:
            claim.bind(f"\0rlanything-sandbox-{first}")
        except OSError:
            continue
        return claim, first
    raise OSError(f"{_BLOCKS} sandbox servers are running already: close some")


def _prepare(first_uid: int) -> Host:
    """Moves the server into the view; OSError, naming the call, where the machine does not allow it."""
    os.umask(0o022)
    filter_program, version = seccomp.filter_program(), landlock.abi()
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    privileged = os.geteuid() == 0 and _may_administer()
    spaces = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
    if privileged:
        syscalls.unshare(spaces)
    else:
        if os.geteuid() == 0:  # as in many containers; the kernel would not limit root's processes
            os.setgroups([])
            os.setresgid(first_uid, first_uid, first_uid)
            os.setresuid(first_uid, first_uid, first_uid)
            syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # or /proc/self would still belong to root
        uid, gid = os.getuid(), os.getgid()
        syscalls.unshare(spaces | syscalls.CLONE_NEWUSER)
        map_own_ids(uid, gid, proc)
    view.enter()
    return Host(proc, privileged, version, filter_program)


def _may_administer() -> bool:
    with open("/proc/self/status", encoding="ascii") as file:
        effective = next(line for line in file if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
