"""What a small message over TCP costs its sender and its receiver, as Gloo's transport sends them.

    python benches/horovod_requests/sockets.py

One process writes to a connection over the loopback interface and reads at its other end, where the
bytes are there already, so nothing waits. Printed: medians of the calls, in microseconds, less what
a call of nothing takes from Python. A write over loopback also does the kernel's work of receiving,
so it is an upper bound of a sender's.
"""

from __future__ import annotations

import os
import socket
import statistics
import time

ROUNDS = 20_000
BYTES = 164
"""Of a request of Horovod's."""


def main() -> None:
    """Measure, and print."""
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname())
    there, _ = listener.accept()
    for one in (here, there):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message = bytes(BYTES)
    calls: dict[str, list[int]] = {"nothing": [], "send": [], "receive": []}
    for _ in range(ROUNDS):
        times = [time.perf_counter_ns()]
        os.getpid()
        times.append(time.perf_counter_ns())
        os.write(here.fileno(), message)
        times.append(time.perf_counter_ns())
        os.read(there.fileno(), BYTES)
        times.append(time.perf_counter_ns())
        for name, begin, end in zip(calls, times, times[1:], strict=False):
            calls[name].append(end - begin)
    medians = {name: statistics.median(spans) for name, spans in calls.items()}
    for name in ("send", "receive"):
        print(f"{name:<8} {(medians[name] - medians['nothing']) / 1e3:.2f} us")


if __name__ == "__main__":
    main()
