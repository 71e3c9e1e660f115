"""What the simulator predicts for the very job that a rank has recorded.

Nothing is fitted. From the record come the tensors, their order and sizes, and what computing took
before and after each (the mean over the middle half of the steps); from the node's settings the
fabric, the policies and the partition. One layer stands for each tensor, or for small ones that
travel together, in the order of the forward pass, and one without parameters for all that is
computed outside of the model.

Ignored: what allrail itself computes on the same cores; that gradients become ready in another
order than that of the forward pass, turned round; messages that count the users of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from allrail.base.errors import InputError
from allrail.runtime.record import USERS, Record
from allrail.runtime.steps import OUTSIDE, Step, middle_half
from allrail.scenario.policies import keys_of
from allrail.simulation.api import simulate

_ITERATIONS = 4
_SAID = ("policy", "order", "programs", "algorithms", "threshold")
_CREDIT = "1 TiB"
"""A transport whose frames carry names holds nothing back."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted step.

    Attributes:
        step_ms: How long it takes.
        exposed_ms: Of it, communication during which nothing is computed.
        network_model: What has carried the bytes.
        note: What is to be known of the number.
    """

    step_ms: float
    exposed_ms: float
    network_model: str
    note: str


def predict(record: Record, steps: Sequence[Step]) -> Prediction | str:
    """Simulate the step of a record; return why not, where it cannot be.

    Args:
        record: Of one rank.
        steps: Of the record, one or more.
    """
    settings = record["settings"]
    if settings is None or not settings.get("dimensions"):
        return f"the transport `{record['transport']}` tells of no fabric"
    if not steps:
        return "no step was seen whole"
    try:
        result = simulate(scenario(record, steps))
    except InputError as error:
        return f"the simulator does not take this job: {error.why}"
    calibrated = bool(settings.get("calibrated"))
    note = "" if calibrated else "the fabric is uncalibrated"
    return Prediction(
        result.step_time_us / 1e3, result.exposed_us.data / 1e3, result.network_model, note
    )


def scenario(record: Record, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the scenario that is simulated.

    Args:
        record: Of one rank, with settings.
        steps: Of the record, one or more.
    """
    settings = record["settings"] or {}
    tensors = record["tensors"]
    steps = middle_half(steps, key=lambda step: step.computed)
    travel = [each for each, row in enumerate(tensors) if row["name"] != USERS]
    order = sorted(travel, key=lambda each: (tensors[each]["place"], -each))
    outside = _time([step.backward.get(OUTSIDE, 0) for step in steps])
    layers: list[dict[str, Any]] = [
        {"name": "outside", "parameters": 0, "flops": 0, "forward": "0 ps", "backward": outside}
    ]
    layers += [
        {
            "name": tensors[each]["name"],
            # Of 4 bytes, whatever they are: gradients travel as many bytes.
            "parameters": -(-tensors[each]["bytes"] // 4),
            "flops": 0,
            "forward": _time([step.forward.get(each, 0) for step in steps]),
            "backward": _time([step.backward.get(each, 0) for step in steps]),
        }
        for each in order
    ]
    keys = ("kind", "size", "links", "bandwidth", "latency", "fastest")
    dimensions = [
        {"kind": "switch"} | {key: each[key] for key in keys if key in each}
        for each in settings["dimensions"]
    ]
    policy = settings.get("tensor", "bytescheduler")
    reads = keys_of("tensor_policies", policy)
    tensor = {"policy": policy, "barrier": not record["crosses"]}
    held_back = settings.get("elsewhere", False)
    known = {"credit": None if held_back else _CREDIT, "partition": settings.get("partition")}
    known |= {
        key: value for key, value in settings.get("tensor_keys", {}).items() if value is not None
    }
    tensor |= {key: value for key, value in known.items() if value is not None and key in reads}
    agreed = {"coordination": settings["coordination"]} if settings.get("coordination") else {}
    return {
        "schema_version": 1,
        "fabric": {"name": "job", "dimensions": dimensions},
        "workload": {
            "model": {"layers": layers},
            "precision": "fp32",
            "batch_per_replica": 1,
            "parallelism": {"dp": record["ranks"]},
            "optimizer": "none",
            "iterations": _ITERATIONS,
        },
        "schedule": {
            **{key: settings[key] for key in _SAID if settings.get(key)},
            "chunks": _chunks(record),
            "tensor": tensor,
            **agreed,
        },
    }


def _time(times: Sequence[int]) -> str:
    return f"{round(fmean(times) * 1000)} ps"


def _chunks(record: Record) -> int:
    """Into how many chunks most bytes were cut: in a node that depends on the size."""
    timeline = record["timeline"]
    if timeline is None or not timeline["partitions"]:
        return 1
    count = [0] * len(timeline["partitions"])
    for stage in timeline["stages"]:
        count[stage["partition"]] = max(count[stage["partition"]], stage["chunk"] + 1)
    sizes = sorted(
        (chunks, partition["bytes"])
        for chunks, partition in zip(count, timeline["partitions"], strict=True)
    )
    half, seen = sum(size for _, size in sizes) / 2, 0
    for chunks, size in sizes:
        seen += size
        if seen >= half:
            return max(1, chunks)
    return 1
