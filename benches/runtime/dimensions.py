"""Two dimensions of two: the best plan over the usual order of dimensions, on 16 MB."""

from __future__ import annotations

import time

import predict
import torch
import torch.distributed as dist
from fabric import Fabric
from figures import Figure, Interval
from job import Worker, run_on

from allrail._core import Memory
from testbed import Network

SIZE = 16 << 20
CHUNKS = 64
CASES = {"2x2-500-500": (500, 500, 1.27), "2x2-200-800": (200, 800, 1.9)}
"""By the name of the row: Mb/s of the inner dimension and of the outer one, and what is asked."""


def run(name: str, fabric: Fabric, *, blocks: int, rounds: int) -> list[Figure]:
    """Run a case, and say what came of it.

    Args:
        name: Of the row.
        fabric: For predictions.
        blocks: How many count.
        rounds: All-reduces of each policy in a block.
    """
    inner, outer, asked = CASES[name]
    networks = [Network(inner * 10**6), Network(outer * 10**6)]
    pairs = [(2, network) for network in networks]
    predicted = {
        policy: predict.all_reduce(fabric, pairs, SIZE, policy, CHUNKS)
        for policy in ("baseline", "themis")
    }

    def work(worker: Worker) -> dict[str, list[list[float]]]:
        buffer = torch.ones(SIZE // 4)
        dimensions = [{"size": 2, **worker.dimension(n)} for n in range(2)]
        nodes = {
            policy: worker.node(dimensions, policy=policy, chunks=CHUNKS, smallest_chunk="64 KiB")
            for policy in ("baseline", "themis")
        }
        found: dict[str, list[list[float]]] = {policy: [] for policy in nodes}
        for block in range(blocks + 1):
            for policy, node in nodes.items():
                if block:
                    found[policy].append([])
                for _ in range(rounds):
                    buffer.fill_(1.0)
                    dist.barrier()
                    begun = time.perf_counter()
                    ticket = node.call("all_reduce", Memory.of_tensor(buffer), "float32")
                    node.wait_call(ticket, 600.0)
                    if block:
                        found[policy][-1].append(time.perf_counter() - begun)
                    if not torch.all(buffer == worker.ranks):
                        raise AssertionError(f"{policy}: a wrong sum")
        dist.barrier()
        for node in nodes.values():
            node.close()
        return found

    results = run_on(networks, work)
    slowest = {
        policy: [
            [max(each) for each in zip(*(one[policy][block] for one in results), strict=True)]
            for block in range(blocks)
        ]
        for policy in predicted
    }
    figures = []
    for policy, (time_ms, _) in predicted.items():
        seen = Interval.of([each for block in slowest[policy] for each in block]).times(1e3)
        what = f"{policy}: 16 MiB, ms"
        figures.append(Figure(name, what, seen, predicted=time_ms, measured=seen.median))
    best = figures[-1].seen
    ratio = Interval.of_ratio(list(zip(slowest["baseline"], slowest["themis"], strict=True)))
    bound = predicted["themis"][1]
    return [
        *figures,
        Figure(name, "best plan over usual order", ratio, least=asked),
        Figure(name, "best plan over bandwidth bound", best.times(1 / bound), most=1.08),
    ]
