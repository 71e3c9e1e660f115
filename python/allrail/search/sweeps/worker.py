"""A worker of `pool.py`, as a process: `python -m allrail.search.sweeps.worker PIPE`.

No module imports it: it is a program of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from allrail.search.sweeps.tasks import carry_out
from allrail.simulation.plugins import load_text

TOLD_S = 0.3
"""Between two times that a worker says how far it is."""


def _now_and_then(send: Callable[[float], None]) -> Callable[[float], None]:
    """Pass on a number, `TOLD_S` after the last one at the earliest."""
    last = time.monotonic()

    def told(done: float) -> None:
        nonlocal last
        if time.monotonic() - last > TOLD_S:
            last = time.monotonic()
            send(done)

    return told


def _work(pipe: Connection[Any, Any]) -> None:
    """Be a worker."""
    try:
        base, plugins = pipe.recv()
        for source, text in plugins.items():
            load_text(source, text)
        while True:
            pipe.send(carry_out(base, pipe.recv(), _now_and_then(pipe.send)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # nobody waits for more


if __name__ == "__main__":
    _work(Connection(int(sys.argv[1])))
