"""How much of a step the engine's decisions take, and how quick reductions are in the cache."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from fabric import Fabric
from figures import Figure, Interval
from job import Worker, run_on
from steps import CASES, ours
from ways import Scheduled, model_of

_ROOT = Path(__file__).parents[2]
_HEADER = 72
"""Bytes of a frame's header, as in `crates/runtime/src/frame.rs`."""


def run(fabric: Fabric, *, steps: int) -> list[Figure]:
    """Nanoseconds of an event, as the engine's own bench has it, times events of a step.

    Events are counted from the traffic: what was sent beyond the payload is headers, one a frame.
    A frame is an event where it leaves and one where it arrives; a tensor is one when it is
    submitted.

    Args:
        fabric: For the predicted step.
        steps: Of which events are counted.
    """
    case = CASES["vgg16"]

    def work(worker: Worker) -> tuple[int, int, int]:
        model = model_of(case.model, case.scale, 0.0, worker.rank)
        way = Scheduled(model, worker, partition=f"{case.partition} KiB")
        way.run(1)
        before = way.transport.report()["dimensions"][0]["sent"]
        way.run(steps)
        sent = way.transport.report()["dimensions"][0]["sent"] - before
        tensors = [each.nbytes for each in model.parameters()]
        way.close()
        # The count of users, one int32 a parameter, is exchanged with them.
        return sent, sum(tensors) + 4 * len(tensors), len(tensors) + 1

    sent, nbytes, tensors = run_on([case.network], work)[0]
    payload = 2 * 3 / 4 * nbytes * steps
    frames = max(0.0, sent - payload) / _HEADER / steps
    events = 2 * frames + tensors
    each = _nanoseconds()
    share = 100 * events * each.median * 1e-6 / ours(case, fabric)
    note = f"{events:.0f} events a step of {case.name}"
    return [
        Figure("engine", "an event, ns", each, most=1000.0),
        Figure("engine", "share of a step, %", Interval(share, share, share), most=1.0, note=note),
    ]


def _nanoseconds() -> Interval:
    """Of an event, where ranks need no common order: what gradients take."""
    command = ["cargo", "run", "--release", "--locked", "--quiet", "-p", "allrail-engine"]
    found = []
    for _ in range(5):
        done = subprocess.run(
            [*command, "--example", "engine_speed"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [line.split() for line in done.stdout.splitlines()]
        found.append(next(float(one[4]) for one in lines if one[:3] == ["tagged", "4", "1"]))
        time.sleep(0.1)
    return Interval.of(found)
