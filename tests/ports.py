"""A port for a server that this test starts later."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_LOWEST = 10_000


def free_port() -> int:
    """Return a free port of loopback that the kernel gives nobody who asks for any.

    Of its own range, a connection of a test beside might have it before it is used.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first = max(int(given[0]), _LOWEST + 1000)
    while True:
        port = random.SystemRandom().randrange(_LOWEST, first)
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port
