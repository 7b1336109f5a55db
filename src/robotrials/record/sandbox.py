"""The walls around a process that parses foreign bytes: limits of memory, time and files; no network, no writing out.

Limits hold on every POSIX system. Landlock (writing, signals) and seccomp (network, other programs) hold where the
kernel has them; `foreign.held_walls` tries each and says what does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
# LANDLOCK_ACCESS_FS_*: write a file, remove and make everything; then, by version: move between folders, truncate.
WRITING = (1 << 1) | sum(1 << bit for bit in range(4, 13))
WRITING_SINCE = {2: 1 << 13, 3: 1 << 14}
TCP = 0b11  # bind, connect; since version 4
SCOPES = 0b11  # abstract sockets, signals to others; since version 6
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_FILTER = 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EPERM
# By machine: its audit number, and the calls that a parser has no use for: sockets, other programs, other processes.
CALLS = {
    'x86_64': (0xC000003E, (41, 42, 43, 44, 46, 49, 50, 53, 59, 62, 101, 288, 310, 311, 321, 322, 424, 425, 438)),
    'aarch64': (0xC00000B7, (117, 129, 198, 199, 200, 201, 202, 203, 206, 211, 221, 242, 270, 271, 280, 281, 424, 425,
                             438)),
}  # fmt: skip
X32 = 0x40000000  # calls of another table on the same machine


def close_in(*, memory_bytes: int, cpu_s: int, file_bytes: int, scratch: Path | None) -> None:
    """Put the walls up around this process, for good; only what lies in `scratch` can be written to."""
    _limit(resource.RLIMIT_AS, _own_bytes() + memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_s, grace=5)  # first a signal that tells what it was
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    if not sys.platform.startswith('linux'):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        with contextlib.suppress(OSError):
            _landlock(libc, scratch)
        _seccomp(libc)


def _limit(what: int, value: int, *, grace: int = 0) -> None:
    _, hard = resource.getrlimit(what)
    most = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (min(value, most), most))


def _own_bytes() -> int:
    """The address space that this process has already, libraries included."""
    try:
        return int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 1 << 30


def _landlock(libc: ctypes.CDLL, scratch: Path | None) -> None:
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return
    writing = WRITING | sum(bit for since, bit in WRITING_SINCE.items() if version >= since)
    rules = struct.pack('=Q', writing)
    rules += struct.pack('=Q', TCP) if version >= 4 else b''
    rules += struct.pack('=Q', SCOPES) if version >= 6 else b''
    handle = libc.syscall(CREATE_RULESET, rules, len(rules), 0)
    if handle < 0:
        return
    try:
        if scratch is not None:
            place = os.open(scratch, os.O_PATH | os.O_CLOEXEC)
            libc.syscall(ADD_RULE, handle, 1, struct.pack('=Qi', writing, place), 0)
            os.close(place)
        libc.syscall(RESTRICT_SELF, handle, 0)
    finally:
        os.close(handle)


class _Program(ctypes.Structure):
    _fields_ = (('length', ctypes.c_ushort), ('steps', ctypes.c_char_p))


def _seccomp(libc: ctypes.CDLL) -> None:
    if platform.machine() not in CALLS:
        return
    audit, calls = CALLS[platform.machine()]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06  # of classic BPF
    steps = [(load, 0, 0, 4), (equal, 1, 0, audit), (answer, 0, 0, REFUSE), (load, 0, 0, 0)]
    # A test that holds jumps over those after it, and over ALLOW.
    steps += [(at_least, len(calls) + 1, 0, X32)]
    steps += [(equal, len(calls) - n, 0, call) for n, call in enumerate(calls)]
    steps += [(answer, 0, 0, ALLOW), (answer, 0, 0, REFUSE)]
    program = _Program(len(steps), b''.join(struct.pack('=HBBI', *step) for step in steps))
    libc.prctl(PR_SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(program), 0, 0)
