"""What the simulator says of a row, from the fabric file alone, before the row is run."""

from __future__ import annotations

from typing import Any

from fabric import Fabric
from job import WORKERS

import allrail
from testbed import Network
from testbed.emulated import MODELS


def step(
    fabric: Fabric,
    network: Network,
    model: str,
    *,
    scale: int,
    seconds: float,
    tensor: dict[str, Any],
    overhead: float,
) -> float:
    """Milliseconds of a step of an emulated model.

    Args:
        fabric: What was measured before.
        network: What the workers are joined by.
        model: Its name.
        scale: Its parameters are divided by this.
        seconds: What computing is told to take.
        tensor: The tensor scheduler and its parameters.
        overhead: Seconds that an operation costs at least.
    """
    tree = {
        "schema_version": 1,
        "fabric": {"name": "testbed", "dimensions": [fabric.dimension(WORKERS, network)]},
        "workload": {
            "model": {"layers": layers(fabric, model, scale, seconds)},
            "batch_per_replica": 1,
            "precision": "fp32",
            "parallelism": {"dp": WORKERS},
            "compute": {"device": "a100"},  # not asked: every layer has its times
            "optimizer": "none",
            "iterations": 4,
        },
        "schedule": {
            "policy": "baseline",
            "chunks": 1,
            "tensor": {"start_overhead": _time(overhead), **tensor},
        },
    }
    return allrail.simulate(tree).step_time_us / 1e3


def layers(fabric: Fabric, model: str, scale: int, seconds: float) -> list[dict[str, Any]]:
    """An emulated model's layers with their times, as a scenario has them.

    Args:
        fabric: Knows what sleeping and filling gradients takes beyond what is asked.
        model: Its name.
        scale: Its parameters are divided by this.
        seconds: What computing is told to take.
    """
    sizes = MODELS[model]()
    operations = sum(size.operations for size in sizes)
    found = []
    for size in sizes:
        parameters = max(1, size.parameters // scale)
        forward = seconds / 3 * size.operations / operations
        late = fabric.sleep if forward else 0.0
        backward = 2 * forward + late + 4 * parameters * fabric.compute
        found.append(
            {
                "name": size.name,
                "parameters": parameters,
                "output": 1,
                "forward": _time(forward + late),
                "backward": _time(backward),
            }
        )
    return found


def all_reduce(
    fabric: Fabric, networks: list[tuple[int, Network]], size: int, policy: str, chunks: int
) -> tuple[float, float]:
    """Milliseconds of an all-reduce over several dimensions, and of its bandwidth bound.

    Args:
        fabric: What was measured before.
        networks: The size of each dimension, and its network.
        size: Bytes.
        policy: Which dimension a chunk visits next.
        chunks: Into how many it is cut.
    """
    dimensions = [fabric.dimension(count, network) for count, network in networks]
    result = allrail.simulate(
        {
            "schema_version": 1,
            "fabric": {"name": "testbed", "dimensions": dimensions},
            "collective": {"kind": "all_reduce", "size": f"{size} B"},
            "schedule": {"policy": policy, "chunks": chunks},
        }
    )
    return result.time_us / 1e3, bound(dimensions, size)


def bound(dimensions: list[dict[str, Any]], size: int) -> float:
    """Milliseconds under which no mix of the two orders ends an all-reduce over two dimensions.

    A part that visits dimension `a` of `p` ranks first, then `b` of `q`, costs `a` 2·(p - 1)/p of
    its bytes and `b` 2·(q - 1)/(p·q), as only what `a` has reduced goes on. The best share of parts
    in one order keeps both busy to the end, or is all or nothing.

    Args:
        dimensions: Two, as a scenario has them.
        size: Bytes.
    """
    (p, q) = (one["size"] for one in dimensions)
    rates = [int(one["bandwidth"].removesuffix(" b/s")) / 8e3 for one in dimensions]
    inner_first = (2 * (p - 1) / p / rates[0], 2 * (q - 1) / (p * q) / rates[1])
    outer_first = (2 * (p - 1) / (p * q) / rates[0], 2 * (q - 1) / q / rates[1])
    shares = [0.0, 1.0]
    slope = (inner_first[0] - outer_first[0]) - (inner_first[1] - outer_first[1])
    if slope:
        shares.append(min(1.0, max(0.0, (outer_first[1] - outer_first[0]) / slope)))
    both = list(zip(inner_first, outer_first, strict=True))
    return size * min(max(s * one + (1 - s) * two for one, two in both) for s in shares)


def _time(seconds: float) -> str:
    return f"{round(max(seconds, 0.0) * 1e12)} ps"
