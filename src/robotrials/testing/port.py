"""Ports for servers of tests and benchmarks that are started, ended and started again."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

FIRST, EPHEMERAL = 20_000, 32_768
RANGE_FILE = Path('/proc/sys/net/ipv4/ip_local_port_range')


def free_port() -> int:
    """A port of this machine that nobody has, and that the kernel gives to nobody who does not ask for it by number.

    Those that it gives out itself become the near end of any connection, even of one to a server on that very port
    that is down for a moment: it then connects to itself, and the server cannot come back.
    """
    with contextlib.suppress(OSError):
        last = min(EPHEMERAL, int(RANGE_FILE.read_text().split()[0]))
        for port in random.SystemRandom().sample(range(FIRST, last), k=min(100, max(0, last - FIRST))):
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind(('127.0.0.1', port))
                return port
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])
