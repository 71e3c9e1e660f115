"""What the simulator is told of the testbed: one file, made before any row is run.

Rates come from the shapers. What else it takes comes from one micro-benchmark on four idle workers:

| figure | how it is measured |
|---|---|
| efficiency | what TCP carries of a cable of 1 Gb/s, in a ring of four |
| latency | half of the quickest round trip of one byte |
| sleep | by how much a sleep of a few milliseconds is too long |
| compute | seconds a byte of filling a gradient and stepping with it, beside the sleeps |
| gloo, native | seconds of an all-reduce of one element: what each operation costs at least |

Nothing of it is fitted to a step.
"""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from job import GIGABIT, WORKERS, Worker, run_on

from allrail._core import Memory
from testbed import Network
from testbed.emulated import MODELS, EmulatedModel

_PORT = 7001


@dataclass(frozen=True)
class Fabric:
    """See the module; times are in seconds."""

    efficiency: float
    latency: float
    sleep: float
    compute: float
    gloo: float
    native: float

    def dimension(self, size: int, network: Network) -> dict[str, Any]:
        """A dimension of a scenario's fabric.

        Args:
            size: How many workers it joins.
            network: Which network carries it.
        """
        return {
            "kind": "switch",
            "size": size,
            "bandwidth": f"{round((network.rate or 0) * self.efficiency)} b/s",
            "latency": f"{round((self.latency + network.delay) * 1e9)} ns",
        }


def measured(folder: Path) -> Fabric:
    """Run the micro-benchmark, write the file, and return what is in it."""
    found = run_on([Network(GIGABIT)], _measure)
    middle = {name: statistics.median(one[name] for one in found) for name in found[0]}
    fabric = Fabric(**middle)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fabric.json").write_text(json.dumps(asdict(fabric), indent=2) + "\n")
    return fabric


def _measure(worker: Worker) -> dict[str, float]:
    element = torch.zeros(1)
    node = worker.node([{"size": WORKERS, **worker.dimension(0)}])

    def native() -> None:
        ticket = node.call("all_reduce", Memory.of_tensor(element), "float32")
        node.wait_call(ticket, 60.0)

    found = {
        "efficiency": _received(worker) * 8 / GIGABIT,
        "latency": _round_trip(worker) / 2,
        "sleep": _oversleep(),
        "compute": _compute(),
        "gloo": min(_times(lambda: dist.all_reduce(element), 100)),
        "native": min(_times(native, 100)),
    }
    dist.barrier()
    node.close()
    return found


def _times(action: Callable[[], Any], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return times


def _oversleep() -> float:
    return statistics.median(_times(lambda: time.sleep(0.005), 40)) - 0.005


def _compute() -> float:
    """A step without sleeps and without others, by byte of parameters."""
    model = EmulatedModel(MODELS["vgg16"](), scale=16, seconds=0.0, rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.zeros(1, requires_grad=True)).backward()
        optimizer.step()

    step()
    return statistics.median(_times(step, 15)) / sum(each.nbytes for each in model.parameters())


def _received(worker: Worker, seconds: float = 1.5) -> float:
    """Bytes a second from the worker before this one, while all send to the next."""
    server = socket.create_server((worker.address(0), _PORT))
    dist.barrier()
    to = socket.create_connection((worker.address(0, worker.next), _PORT), timeout=10)
    peer, _ = server.accept()

    def send() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            to.sendall(bytes(1 << 16))
        to.close()

    sender = threading.Thread(target=send)
    sender.start()
    begun, count, buffer = time.monotonic(), 0, bytearray(1 << 20)
    while got := peer.recv_into(buffer):
        count += got
    took = time.monotonic() - begun
    sender.join()
    peer.close()
    server.close()
    dist.barrier()
    return count / took


def _round_trip(worker: Worker) -> float:
    """Of a byte, between this worker and the next."""
    server = socket.create_server((worker.address(0), _PORT))
    dist.barrier()
    to = socket.create_connection((worker.address(0, worker.next), _PORT), timeout=10)
    peer, _ = server.accept()
    for one in (to, peer):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def echo() -> None:
        while word := peer.recv(1):
            peer.send(word)

    other = threading.Thread(target=echo)
    other.start()
    trips = []
    for _ in range(200):
        begun = time.perf_counter()
        to.send(b"x")
        to.recv(1)
        trips.append(time.perf_counter() - begun)
    to.close()
    other.join()
    peer.close()
    server.close()
    dist.barrier()
    return min(trips)
