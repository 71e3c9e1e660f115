"""Training steps of 4 workers on shaped links: DDP with its best bucket, and allrail, interleaved.

    python benches/runtime.py --model vgg16 --scale 16 --compute 0.42 --rate 1e9

Computing is a wait (`tests/testbed/emulated.py`), gradients and links are real. All ways run in the
same processes, block by block in turn, so that what else the machine does is shared out fairly.
Printed are medians of the step on the slowest worker, with a 95 % interval of the median.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

torch.set_num_threads(1)  # OpenMP's threads do not survive a fork

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import allrail.torch as art  # noqa: E402
from allrail.runtime.agreement import Agreement  # noqa: E402
from allrail.torch.native import Native  # noqa: E402
from allrail.torch.store import store_of_job  # noqa: E402
from testbed import Cluster, Network, why_not  # noqa: E402
from testbed.emulated import MODELS, EmulatedModel  # noqa: E402

BUCKETS_MB = (0.1, 0.25, 0.5, 1.6, 6.0, 25.0)
RATE = 0.5
PORT = 29500


def interval(times: list[float]) -> tuple[float, float]:
    """A 95 % interval of the median, from order statistics."""
    ordered, count = sorted(times), len(times)
    reach = 0.98 * math.sqrt(count)
    low = max(0, math.floor(count / 2 - reach))
    return ordered[low], ordered[min(count - 1, math.ceil(count / 2 + reach))]


class Way:
    """One way to train: a model of its own, and how a step of it goes."""

    def __init__(self, name: str, model: EmulatedModel, wrap: Callable[..., Any]) -> None:
        self.name = name
        self.model = model
        self.times: list[float] = []
        self.steps = 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        self.module: nn.Module = wrap(model, self.optimizer)

    def step(self) -> None:
        """One step, timed."""
        begun = time.perf_counter()
        self.optimizer.zero_grad()
        self.module(torch.zeros(1, requires_grad=True)).backward()
        self.optimizer.step()
        self.times.append(time.perf_counter() - begun)
        self.steps += 1

    def check(self, ranks: int) -> None:
        """Every parameter is what averaging the gradients makes it."""
        expected = self.model.expected(ranks, self.steps, RATE)
        for parameter in self.model.parameters():
            if not torch.all(parameter.detach() == expected):
                raise AssertionError(f"{self.name}: parameters are not {expected}")


def ddp(bucket: float) -> Callable[..., nn.Module]:
    """DDP with this bucket."""
    return lambda model, _: nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket)


def scheduled(cluster: Cluster, rank: int, rate: float) -> Callable[..., nn.Module]:
    """Hooks and transport of ours, over the first network."""
    dimension = {
        "size": cluster.workers,
        "interface": cluster.address(rank),
        "bandwidth": f"{rate:.0f} b/s",
        "latency": "20 us",
        "kind": "switch",
    }

    def wrap(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        store, _, ranks = store_of_job()
        agreement = Agreement(store, rank, ranks, "bench")
        native = Native(rank, ranks, agreement, {"dimensions": [dimension]})
        return art.schedule(model, optimizer, transport=native)[0]

    return wrap


def alone(model: nn.Module, _: object) -> nn.Module:
    """No communication."""
    return model


def work(options: argparse.Namespace, cluster: Cluster, rank: int) -> dict[str, list[float]]:
    """What one worker does; the times of every way."""
    os.environ.update(
        GLOO_SOCKET_IFNAME=cluster.device(0),
        RANK=str(rank),
        WORLD_SIZE=str(cluster.workers),
        LOCAL_RANK="0",
        MASTER_ADDR=cluster.address(0),
        MASTER_PORT=str(PORT),
    )
    dist.init_process_group("gloo", rank=rank, world_size=cluster.workers)
    buckets = [options.bucket] if options.bucket else BUCKETS_MB
    wraps = {"no communication": alone, "allrail": scheduled(cluster, rank, options.rate)}
    wraps |= {f"DDP, {bucket:g} MB": ddp(bucket) for bucket in buckets}
    ways = []
    for name, wrap in wraps.items():
        sizes = MODELS[options.model]()
        model = EmulatedModel(sizes, scale=options.scale, seconds=options.compute, rank=rank)
        ways.append(Way(name, model, wrap))
    for block in range(options.blocks + 1):
        for way in ways:
            dist.barrier()
            for _ in range(options.steps):
                way.step()
            if way.name == "allrail":
                art.synchronize(way.model)
        if block == 0:  # buckets are rebuilt, connections opened
            for way in ways:
                way.times.clear()
    for way in ways[1:]:
        way.check(cluster.workers)
    found = {way.name: way.times for way in ways}
    if rank == 0:
        print(f"{options.steps} steps a block, {options.blocks} blocks", file=sys.stderr)
    dist.barrier()
    dist.destroy_process_group()
    return found


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="vgg16")
    parser.add_argument("--scale", type=int, default=16, help="parameters are divided by this")
    parser.add_argument("--compute", type=float, default=0.42, help="seconds of a step")
    parser.add_argument("--rate", type=float, default=1e9, help="bits a second of each link")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="in a block")
    parser.add_argument("--bucket", type=float, help="DDP with this bucket alone, in MB")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        parser.error(reason)
    cluster = Cluster(options.workers, [Network(int(options.rate))])
    ran = cluster.run(lambda rank: work(options, cluster, rank), timeout=1800)
    each = {
        name: [max(steps) for steps in zip(*(one[name] for one in ran.results), strict=True)]
        for name in ran.results[0]
    }
    medians = {name: statistics.median(times) for name, times in each.items()}
    best = min((name for name in medians if name.startswith("DDP")), key=medians.__getitem__)
    print(f"{'way':20} {'ms':>7} {'95 %':>15} {'against best DDP':>17}")
    for name, times in each.items():
        low, high = (1e3 * bound for bound in interval(times))
        ratio = medians[best] / medians[name]
        print(f"{name:20} {1e3 * medians[name]:7.1f} {low:7.1f}-{high:<7.1f} {ratio:17.3f}")


if __name__ == "__main__":
    main()
