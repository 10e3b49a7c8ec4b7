"""The system calls that a program in the sandbox may not make, as a classic BPF filter.

Namespaces, mounts and Landlock decide what a program can reach. The filter takes away what they leave open:
sockets of families that no namespace confines (vsock reaches the host of a virtual machine), new namespaces
with their kernel surface, memory outside the work folder (memfd, System V, message queues), and the order to
outlive the parent.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import syscalls

# name -> its number on (x86_64, aarch64)
_DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "swapon": (167, 224),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
    "socket": (41, 198),
}
_CLONE, _PRCTL, _CLONE3 = (56, 220), (157, 167), 435
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the table, AUDIT_ARCH
_X32 = 0x40000000  # the bit that selects the other ABI of x86_64, whose numbers the table does not know

_NEW_NAMESPACES = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWCGROUP
)

# Instructions of linux/bpf_common.h and offsets into struct seccomp_data
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_SECCOMP_MODE_FILTER = 2


def filter_program() -> bytes:
    """The filter as an array of sock_filter; OSError on a machine whose call numbers are not known."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no system-call numbers for {machine}; known: {', '.join(_MACHINES)}")
    column, arch = _MACHINES[machine]

    def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    def refuse(error: int) -> bytes:
        return instruction(_RETURN, _ERRNO | error)

    def when_argument(number: int, test: int, value: int) -> list[bytes]:
        return [
            instruction(_IF_EQUAL, number, 0, 4),
            instruction(_LOAD, _FIRST_ARGUMENT),
            instruction(test, value, 0, 1),
            refuse(errno.EPERM),
            instruction(_LOAD, _NUMBER),
        ]

    program = [
        instruction(_LOAD, _ARCH),
        instruction(_IF_EQUAL, arch, 1, 0),
        instruction(_RETURN, _KILL),
        instruction(_LOAD, _NUMBER),
        instruction(_IF_AT_LEAST, _X32, 0, 1),
        refuse(errno.ENOSYS),
    ]
    for numbers in _DENIED.values():
        program += [instruction(_IF_EQUAL, numbers[column], 0, 1), refuse(errno.EPERM)]
    # The flags of clone3 lie behind a pointer, where a filter cannot look: the C library falls back to clone.
    program += [instruction(_IF_EQUAL, _CLONE3, 0, 1), refuse(errno.ENOSYS)]
    program += when_argument(_CLONE[column], _IF_ANY_BIT, _NEW_NAMESPACES)
    program += when_argument(_PRCTL[column], _IF_EQUAL, syscalls.PR_SET_PDEATHSIG)
    program += [instruction(_RETURN, _ALLOW)]
    return b"".join(program)


def install(program: bytes) -> None:
    """Puts this process and all its children under the filter; needs no_new_privs."""
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(instructions))
    pointer = ctypes.create_string_buffer(header, len(header))
    done = syscalls.libc.prctl(syscalls.PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer, 0, 0)
    syscalls.check(done, "seccomp")
