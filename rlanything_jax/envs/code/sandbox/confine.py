"""From a fresh fork to a process that can harm nobody: one-way steps, each one taken before any foreign code runs."""

from __future__ import annotations

import math
import os
import resource
import signal
from typing import NamedTuple

from . import landlock, seccomp, syscalls, view
from .protocol import Program


class Host(NamedTuple):
    """What the server knows before any run.

    proc: an open folder, the host's /proc, which the view does not have.
    privileged: whether the server makes namespaces as root; each run then gets a uid of its own. Otherwise each run
        gets a user namespace of its own.
    landlock: its ABI, 0 without. seccomp: the filter.
    """

    proc: int
    privileged: bool
    landlock: int
    seccomp: bytes

    @property
    def namespaces(self) -> int:
        """What each run gets for itself.

        Network, IPC and host name are the server's own, empty and shared by all runs: making them takes longer
        than all the rest, and the system-call filter leaves a program nothing to use them with.
        """
        own_user = 0 if self.privileged else syscalls.CLONE_NEWUSER
        return syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | own_user


def map_own_ids(uid: int, gid: int, proc: int) -> None:
    """Makes a fresh user namespace show this process's ids as what they are outside."""
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        write(f"self/{file}", text, proc)


def write(path: str, text: str, folder: int) -> None:
    """Writes a file below an open folder."""
    file = os.open(path, os.O_WRONLY, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def confine(program: Program, uid: int, gid: int, host: Host) -> None:
    """Called as the first process of new namespaces (see Host). `uid` and `gid` are whom it becomes,
    or in a user namespace remains: until its map is written, the process itself sees other numbers.

    Afterwards: an empty work folder of limited size, limits, no capability and no way to gain one, Landlock, the
    system-call filter.
    """
    # Where the whole machine runs out of memory, the program goes first.
    write("self/oom_score_adj", "1000", host.proc)
    if not host.privileged:
        map_own_ids(uid, gid, host.proc)
    size = f"size={program.disk_mb}m,nr_inodes={program.files},mode=0700,uid={uid},gid={gid}"
    syscalls.mount("none", view.WORK, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, size)
    os.chdir(view.WORK)
    os.setsid()
    _limit(program)
    if host.privileged:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if host.landlock:
        landlock.restrict(host.landlock, writable=view.WORK, devices="/dev")
    seccomp.install(host.seccomp)


def _limit(program: Program) -> None:
    cpu = math.ceil(program.timeout_s) + 1  # only a second line: the watcher's clock comes first
    for kind, value in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_AS, program.memory_mb << 20),
        (resource.RLIMIT_NPROC, program.processes),
        (resource.RLIMIT_FSIZE, program.disk_mb << 20),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
