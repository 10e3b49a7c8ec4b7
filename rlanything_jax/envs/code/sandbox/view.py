"""The file system that programs see: the interpreter and /usr, read-only, a few devices, nothing else.

Built once, by the server, in its own mount namespace: each run copies that namespace and mounts a private
work folder on top. There is no /proc, no /sys, no /etc but the linker's and the links to programs.
"""

from __future__ import annotations

import os
import sys

from . import syscalls

WORK = "/tmp"  # also the current and the home folder of a program
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": WORK,
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the order of a set must not differ between two runs of a program
}
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
    *("/etc/ld.so.cache", "/etc/alternatives"),
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def visible() -> list[str]:
    """The host's paths that a program may read, among them the running interpreter's."""
    prefix = os.path.realpath(sys.base_prefix)
    paths = [path for path in (*SYSTEM, *DEVICES) if os.path.lexists(path)]
    return paths if prefix == "/usr" or prefix.startswith("/usr/") else [*paths, prefix]


def enter() -> None:
    """Leaves the host's file system for the view. Needs a mount namespace of one's own."""
    paths = visible()
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    # Any folder will do to hang the new root on: pivot_root uncovers it again.
    syscalls.mount("none", "/tmp", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=0755,size=1m")
    os.mkdir("/tmp/host")
    syscalls.pivot_root("/tmp", "/tmp/host")
    os.chdir("/")
    for path in paths:
        _show("/host" + path, path)
    os.makedirs(WORK, exist_ok=True)
    os.symlink(WORK, "/dev/shm")
    syscalls.detach("/host")
    os.rmdir("/host")
    syscalls.make_read_only("/", recursive=False)


def _show(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    syscalls.mount(source, target, flags=syscalls.MS_BIND | syscalls.MS_REC)
    # A device on a read-only mount can still be written to, only not replaced.
    syscalls.make_read_only(target, recursive=True)
