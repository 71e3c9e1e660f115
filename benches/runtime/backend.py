"""The backend `allrail`: plain DDP over it against gloo; what an empty call costs, and waking."""

from __future__ import annotations

import json
import time
from typing import Any

import torch
import torch.distributed as dist
from fabric import Fabric
from figures import Figure, Interval
from job import Worker, run_on, run_on_host
from steps import CASES, ddp, slowest
from ways import Ddp, Way, model_of, take_turns

import allrail.torch.backend  # noqa: F401 - registers it

_BUCKETS_MB = (1.6, 25.0)
_CALLS = 2000


class _Idle(dist.ProcessGroup):
    """A group whose calls do nothing."""

    def __init__(self) -> None:
        super().__init__(0, 2)

    def allreduce(self, *_: Any) -> None:
        """Do nothing."""


def training(fabric: Fabric, *, blocks: int, steps: int) -> list[Figure]:
    """DDP on the backend against DDP on gloo, VGG-16.

    Args:
        fabric: For predictions.
        blocks: How many count.
        steps: Of each way in a block.
    """
    case = CASES["vgg16"]

    def work(worker: Worker) -> dict[str, tuple[list[list[float]], list[list[float]]]]:
        worker.use_job_file()
        group = dist.new_group(backend="allrail")
        ways: list[Way] = []
        for bucket in _BUCKETS_MB:
            for where in (None, group):
                model = model_of(case.model, case.scale, case.compute, worker.rank)
                ways.append(Ddp(model, bucket, where))
        take_turns(ways, blocks=blocks, steps=steps, ranks=worker.ranks)
        return {way.name: (way.times, way.cpu) for way in ways}

    found = slowest(run_on([case.network], work))
    figures = []
    for bucket in _BUCKETS_MB:
        theirs, ours = (found[f"DDP {bucket:g} MB{where}"] for where in ("", " on allrail"))
        pairs = [(one[0], other[0]) for one, other in zip(theirs, ours, strict=True)]
        seen = Interval.of([step for block in ours for step in block[0]]).times(1e3)
        name = f"DDP {bucket:g} MB"
        figures += [
            Figure(
                "backend",
                f"{name}: step, ms",
                seen,
                predicted=ddp(case, fabric, bucket),
                measured=seen.median,
            ),
            Figure(
                "backend",
                f"{name}: gloo over allrail",
                Interval.of_ratio(pairs),
                least=1.0,
                beyond_interval=True,
            ),
        ]
    return figures


def calls(*, blocks: int) -> list[Figure]:
    """An empty `all_reduce` on the backend, and how soon a waiter wakes.

    An empty one is of no element: it costs what torch and the backend cost, with no exchange. What
    torch costs alone is the same call of a group that does nothing. A
    waiter is woken by an exchange of one element between two ranks. What waking costs is the time
    from the end of the exchange, as the node has recorded it, to the caller's next line; beside it
    stands the whole way, from the last rank's call to the first's return: two threads and a
    message before the waiter is woken.

    Args:
        blocks: How many count.
    """

    def work(worker: Worker) -> dict[str, list[list[float]]]:
        group, idle = dist.new_group(backend="allrail"), _Idle()
        nothing, element = torch.empty(0), torch.zeros(1)
        found: dict[str, list[list[float]]] = {"torch": [], "empty": [], "way": [], "woken": []}
        for _ in range(blocks + 1):
            for name, asked in (("torch", idle), ("empty", group)):
                dist.barrier()
                begun = time.perf_counter()
                for _ in range(_CALLS):
                    dist.all_reduce(nothing, group=asked)
                found[name].append([(time.perf_counter() - begun) / _CALLS])
            way, woken = [], []
            for _ in range(100):
                dist.barrier()
                if worker.rank:
                    time.sleep(0.002)  # by then the other sleeps in its wait
                begun = time.monotonic()
                dist.all_reduce(element, group=group)
                ended = time.monotonic()
                way.append(begun if worker.rank else ended)
                woken.append(ended - over(group))
            found["way"].append(way)
            found["woken"].append(woken)
        dist.barrier()
        return {name: blocks_of[1:] for name, blocks_of in found.items()}

    def over(group: Any) -> float:
        """When the group's last operation was over, by its node's records."""
        return float(json.loads(group._calls._node.timeline())["exchanges"][-1]["done"]) / 1e9

    results = run_on_host(work, workers=2)
    alone, empty, woken = (
        Interval.of([one for block in results[0][name] for one in block]).times(1e6)
        for name in ("torch", "empty", "woken")
    )
    ways = [
        ended - begun
        for mine, theirs in zip(results[0]["way"], results[1]["way"], strict=True)
        for ended, begun in zip(mine, theirs, strict=True)
    ]
    way = Interval.of(ways).times(1e6)
    return [
        Figure("backend", "an empty all_reduce, torch's part, us", alone),
        Figure("backend", "an empty all_reduce, us", empty, most=5.0),
        Figure("backend", "waking an idle waiter, us", woken, most=50.0),
        Figure("backend", "one element, call to return, us", way),
    ]
