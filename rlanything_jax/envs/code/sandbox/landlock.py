"""Landlock: a process gives up every file but the ones named, TCP, and signals to others, without privileges.

The second wall behind the sandbox's own mounts. Each kernel knows some ABI version; what it does not know yet
is left to the namespaces.
"""

from __future__ import annotations

import os
import struct

from . import syscalls

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block
_TCP, _SCOPES = 3, 3  # bind and connect; abstract unix sockets and signals
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # ABI -> how many bits it knows; 16 from ABI 5


def abi() -> int:
    """The version of the running kernel; 0 if it has no Landlock."""
    try:
        return syscalls.syscall("landlock_create_ruleset", _CREATE_RULESET, 0, 0, _VERSION)
    except OSError:
        return 0


def restrict(version: int, *, writable: str, devices: str) -> None:
    """From here on: all files readable, `writable` alone writable, `devices` usable. Needs no_new_privs.

    `version` is abi(), which the caller asks once for many processes.
    """
    rights = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    attributes = struct.pack("QQQ", rights, _TCP, _SCOPES)
    known = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscalls.syscall("landlock_create_ruleset", _CREATE_RULESET, attributes[:known], known, 0)
    for path, allowed in (
        ("/", _EXECUTE | _READ_FILE | _READ_FOLDER),
        (writable, rights & ~_MAKE_DEVICES),
        (devices, _READ_FILE | _WRITE_FILE),
    ):
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", allowed, folder)
        syscalls.syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        os.close(folder)
    syscalls.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
