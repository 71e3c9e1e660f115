"""All-reduces of four ranks on one host: ours against gloo, over TCP and through shared memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from figures import Figure, Interval
from job import OVER_TCP, Worker, run_on_host

from allrail._core import Memory

LOOPBACK = {"interface": "127.0.0.1", "bandwidth": "20 Gb/s", "latency": "20 us", "kind": "switch"}
SIZES = {"64 KiB": (64 << 10, 200), "1 MiB": (1 << 20, 40), "64 MiB": (64 << 20, 2)}
"""Bytes, and how many in a block."""

CASES: dict[str, tuple[dict[str, bool], dict[str, float]]] = {
    "all-reduce-tcp": (OVER_TCP, {"64 KiB": 3.0, "1 MiB": 1.4, "64 MiB": 1.0}),
    "all-reduce-shared": (
        {"shared_memory": True},
        {"64 KiB": 4.0, "1 MiB": 2.0, "64 MiB": 1.2},
    ),
}
"""By the name of the row: settings of our node, and what is asked of each size."""


def run(name: str, *, blocks: int, quick: bool) -> list[Figure]:
    """Run a case, and say what came of it.

    Args:
        name: Of the row.
        blocks: How many count.
        quick: A tenth of the rounds.
    """
    settings, asked = CASES[name]

    def work(worker: Worker) -> dict[str, list[tuple[float, float]]]:
        node = worker.node([{"size": worker.ranks, **LOOPBACK}], **settings)
        found = {}
        for label, (size, rounds) in SIZES.items():
            buffer = torch.zeros(size // 4)

            def native(buffer: torch.Tensor = buffer) -> None:
                ticket = node.call("all_reduce", Memory.of_tensor(buffer), "float32")
                node.wait_call(ticket, 600.0)

            def gloo(buffer: torch.Tensor = buffer) -> None:
                dist.all_reduce(buffer)

            count = max(1, rounds // 10) if quick else rounds
            found[label] = [
                (_block(gloo, count), _block(native, count)) for _ in range(blocks + 1)
            ][1:]
        dist.barrier()
        node.close()
        return found

    results = run_on_host(work)
    figures = []
    for label, least in asked.items():
        pairs = [
            tuple(max(one[label][block][side] for one in results) for side in (0, 1))
            for block in range(blocks)
        ]
        theirs, ours = (Interval.of([pair[side] for pair in pairs]).times(1e6) for side in (0, 1))
        ratio = Interval.of_ratio([([pair[0]], [pair[1]]) for pair in pairs])
        note = f"{theirs.median:.0f} against {ours.median:.0f} us"
        figures.append(Figure(name, f"{label} over gloo", ratio, least=least, note=note))
    return figures


def _block(action: Callable[[], None], count: int) -> float:
    """Seconds of one of so many."""
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(count):
        action()
    return (time.perf_counter() - begun) / count
