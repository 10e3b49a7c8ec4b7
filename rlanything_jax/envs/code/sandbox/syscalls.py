"""The few Linux calls that the standard library lacks, by ctypes: namespaces, mounts, prctl, capabilities.

Every function raises OSError, named after the call, when the kernel refuses.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_NEWCGROUP, CLONE_NEWTIME = 0x02000000, 0x00000080
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 4, 38, 22

_MOUNT_SETATTR = 442  # numbers above 423 are the same on every architecture
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CLONE = {"x86_64": 56, "aarch64": 220}
_AT_FDCWD, _AT_RECURSIVE, _MNT_DETACH = -100, 0x8000, 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2
_CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, call: str) -> int:
    """`result`, or OSError with the thread's errno if it is negative."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
    return result


def syscall(name: str, number: int, *arguments: int | bytes) -> int:
    """The system call `number`; `name` is for the error message."""
    as_c = [ctypes.c_long(a) if isinstance(a, int) else ctypes.c_char_p(a) for a in arguments]
    return check(libc.syscall(ctypes.c_long(number), *as_c), name)


def fork_into(flags: int) -> int:
    """os.fork() whose child starts in new namespaces, as the first process of a new pid namespace.

    unshare and fork would take one process more: the pid namespace begins with the next child. Only for a
    process without threads.
    """
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    # The interpreter lock must be held throughout: pythonapi's kind of library does not release it.
    clone = ctypes.PyDLL(None, use_errno=True).syscall
    words = (_CLONE[os.uname().machine], flags | signal.SIGCHLD, 0, 0, 0, 0)
    pid = clone(*map(ctypes.c_long, words))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return check(pid, "clone")


def unshare(flags: int) -> None:
    """Moves this process into new namespaces."""
    check(libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    done = libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    check(done, f"mount {source} on {target}")


def make_read_only(path: str, *, recursive: bool) -> None:
    """Makes the mount at `path` read-only and its set-user-id bits dead; needs Linux 5.12."""
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    syscall("mount_setattr", _MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, len(attributes))


def pivot_root(new: str, old: str) -> None:
    """Makes the mount `new` the root and hangs the former root under the folder `old`."""
    syscall("pivot_root", _PIVOT_ROOT[os.uname().machine], new.encode(), old.encode())


def detach(path: str) -> None:
    """Unmounts `path` and all below it, even if busy."""
    check(libc.umount2(path.encode(), _MNT_DETACH), f"umount {path}")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    done = libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(v) for v in (value, 0, 0, 0)))
    check(done, f"prctl {option}")


def drop_capabilities() -> None:
    """Gives up every capability; with no_new_privs none can come back."""
    header, empty = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    check(libc.capset(header, empty), "capset")
