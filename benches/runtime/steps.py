"""Rows of training steps on shaped links with emulated compute: allrail, DDP's best, sharding.

The *simulated ideal* is the simulator's step with pieces of 64 KiB, the most urgent of all that
wait first, no credit and no cost of an operation. A credit would be no ideal: what it holds back
leaves links idle between the hops of what is under way. One of a single piece is dearer on most
rows, cheaper on none, and costs more the longer the delay is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import predict
from fabric import Fabric
from figures import Figure, Interval
from job import GIGABIT, Worker, run_on
from ways import BUCKETS_MB, Alone, Ddp, Scheduled, Sharded, Way, model_of, take_turns

from testbed import Network


@dataclass(frozen=True)
class Case:
    """A model on a network.

    Attributes:
        model: Its name.
        scale: Its parameters are divided by this.
        compute: Seconds of computing in a step.
        asked: The least speed-up over DDP's best bucket.
        delay: Seconds, one way.
        partition: In KiB: into pieces of which size tensors are cut. It is what `partition: auto`
            takes for each of these models at this rate; with a long delay twice that.
        ideal: How much longer than the simulated ideal a step may take.
    """

    model: str
    scale: int
    compute: float
    asked: float
    delay: float = 0.0
    partition: int = 512
    ideal: float | None = None

    @property
    def name(self) -> str:
        """In tables."""
        delay = f", {self.delay * 1e3:g} ms" if self.delay else ""
        return f"{self.model}/{self.scale}{delay}"

    @property
    def network(self) -> Network:
        """What it runs on."""
        return Network(GIGABIT, self.delay)


CASES = {
    "vgg16": Case("vgg16", 16, 0.42, 1.32, ideal=1.06),
    "resnet50": Case("resnet50", 4, 0.35, 1.2),
    "bert": Case("bert_base", 16, 0.35, 1.02),
    "vgg16-0.5ms": Case("vgg16", 16, 0.42, 1.28, delay=0.0005),
    "vgg16-5ms": Case("vgg16", 16, 0.42, 1.28, delay=0.005, partition=1024),
}
"""By the name of the row."""

_SHARD_MB = 1.6

Blocks = dict[str, list[tuple[list[float], list[float]]]]
"""By way, of each block: times and CPU of its steps, of the slowest and of the busiest worker."""


def run(case: Case, fabric: Fabric, *, blocks: int, steps: int) -> list[Figure]:
    """Run a case, and say what came of it.

    Args:
        case: Which.
        fabric: For predictions.
        blocks: How many count.
        steps: Of each way in a block.
    """
    predicted = {"allrail": ours(case, fabric)}
    predicted |= {f"DDP {one:g} MB": ddp(case, fabric, one) for one in BUCKETS_MB}
    ideal = predict.step(
        fabric,
        case.network,
        case.model,
        scale=case.scale,
        seconds=case.compute,
        tensor={"policy": "bytescheduler", "partition": "64 KiB"},
        overhead=0.0,
    )

    def work(worker: Worker) -> dict[str, tuple[list[list[float]], list[list[float]]]]:
        def model() -> Any:
            return model_of(case.model, case.scale, case.compute, worker.rank)

        ways: list[Way] = [
            Alone(model()),
            Scheduled(model(), worker, partition=f"{case.partition} KiB"),
            Sharded(model(), worker, _SHARD_MB),
            *(Ddp(model(), bucket) for bucket in BUCKETS_MB),
        ]
        take_turns(ways, blocks=blocks, steps=steps, ranks=worker.ranks)
        for way in ways:
            way.close()
        return {way.name: (way.times, way.cpu) for way in ways}

    return figures(case, slowest(run_on([case.network], work)), predicted, ideal)


def ours(case: Case, fabric: Fabric) -> float:
    """Milliseconds that a step of ours is predicted to take."""
    return predict.step(
        fabric,
        case.network,
        case.model,
        scale=case.scale,
        seconds=case.compute,
        tensor={"policy": "bytescheduler", "partition": f"{case.partition} KiB"},
        overhead=0.0,
    )


def ddp(case: Case, fabric: Fabric, bucket: float) -> float:
    """Milliseconds that a step of DDP is predicted to take."""
    mebibytes = round(bucket * (1 << 20))
    first = min(mebibytes, 1 << 20)
    return predict.step(
        fabric,
        case.network,
        case.model,
        scale=case.scale,
        seconds=case.compute,
        tensor={"policy": "ddp", "bucket": f"{mebibytes} B", "first_bucket": f"{first} B"},
        overhead=fabric.gloo,
    )


def slowest(results: Sequence[dict[str, Any]]) -> Blocks:
    """Put what workers have measured together, step by step."""
    found: Blocks = {}
    for way in results[0]:
        workers = [one[way] for one in results]
        count = len(workers[0][0])
        found[way] = [
            tuple(
                [max(step) for step in zip(*(one[kind][block] for one in workers), strict=True)]
                for kind in (0, 1)
            )
            for block in range(count)
        ]
    return found


def figures(case: Case, blocks: Blocks, predicted: dict[str, float], ideal: float) -> list[Figure]:
    """What the table shows of a case."""

    def times(way: str) -> Interval:
        steps = [step for block in blocks[way] for step in block[0]]
        return Interval.of(steps).times(1e3)

    def ratio(way: str, kind: int = 0) -> Interval:
        both = zip(blocks[way], blocks["allrail"], strict=True)
        return Interval.of_ratio([(one[kind], other[kind]) for one, other in both])

    best = min((way for way in blocks if way.startswith("DDP")), key=lambda way: times(way).median)
    mine, name = times("allrail"), case.name
    found = [
        Figure(name, f"{way}: step, ms", times(way))
        for way in blocks
        if way not in {"allrail", best}
    ]
    found += [
        Figure(
            name,
            f"{way}: step, ms",
            times(way),
            predicted=predicted[way],
            measured=times(way).median,
        )
        for way in (best, "allrail")
    ]
    found.append(Figure(name, f"speed-up over {best}", ratio(best), least=case.asked))
    found.append(
        Figure(name, f"never slower than {best}", ratio(best), least=1.0, beyond_interval=True)
    )
    sharded = ratio(Sharded.name)
    found.append(Figure(name, "over sharding", sharded, least=1.0, beyond_interval=True))
    over = mine.times(1 / ideal)
    found.append(Figure(name, "step over simulated ideal", over, most=case.ideal))
    cpu = ratio(best, kind=1)
    spent = [
        1e3
        * sum(step for block in blocks[way] for step in block[1])
        / sum(len(block[1]) for block in blocks[way])
        for way in ("allrail", best)
    ]
    note = f"{spent[0]:.0f} against {spent[1]:.0f} ms"
    found.append(Figure(name, f"CPU of {best} over ours", cpu, least=1.0, note=note))
    return found
