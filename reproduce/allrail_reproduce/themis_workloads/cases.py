"""The workloads of Themis' Fig. 12 on its six platforms, as scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from allrail_reproduce.grid import BASELINE, CHUNKS, SCHEDULES

IDEAL = "ideal"
"""Every collective keeps all dimensions of its group busy from its first byte to its last."""

ONE_BUCKET = "1 TB"
"""More than any gradient: all of them are one bucket."""

ITERATIONS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A workload of Fig. 12.

    Attributes:
        name: As in the paper.
        model: A preset, or the model itself.
        batch: Samples per NPU.
        speedup: Published mean, its maximum, and the ideal network's mean.
        parallelism: Degrees, where it is not data-parallel alone.
        model_parallel: Over how many NPUs one replica lies, innermost dimensions first.
        picked: What of it was chosen with the speed-ups in view.
        ideal_largest: The ideal network's largest speed-up as published; None where it is not.
    """

    name: str
    model: Any
    batch: int
    speedup: tuple[float, float, float]
    parallelism: Mapping[str, Any] = field(default_factory=dict)
    model_parallel: int = 1
    picked: tuple[str, ...] = ()
    ideal_largest: float | None = None


TRANSFORMER_1T = {
    "transformer": {
        "layers": 128,
        "hidden": 25600,
        "heads": 128,
        "vocabulary": 51200,
        "positions": 2048,
        "sequence_length": 2048,
        "tied": True,
    }
}
"""The preset's sizes but for its 160 heads, which 128 NPUs do not divide."""

DLRM = {
    "dlrm": {
        "tables": 1000,
        "rows": 100_000_000,
        "width": 93,
        "bottom": [13, *[3375] * 9, 93],
        "top": [*[3375] * 10, 1],
    }
}
"""A production model: 20 layers of 3,375 on average, about a thousand tables of 93 (Mudigere et
al., ISCA'22, model A, as we know it). The benchmark's (the preset `dlrm`) has 2.4 M parameters,
whose all-reduce is nothing but latency: it gains 1.11 at most."""

CASES = (
    Case("ResNet-152", "resnet152", 32, (1.49, 2.25, 1.54), ideal_largest=2.34),
    Case("GNMT", "gnmt", 128, (1.30, 1.78, 1.32), ideal_largest=1.81),
    Case("DLRM", DLRM, 512, (1.30, 1.77, 1.33), picked=("which DLRM",)),
    Case(
        "Transformer-1T",
        TRANSFORMER_1T,
        16,
        (1.25, 1.53, 1.26),
        {"zero": 2},
        128,
        ideal_largest=1.54,
    ),
)

RECOMPUTED = replace(
    CASES[-1],
    name="Transformer-1T, recomputed",
    parallelism={"zero": 2, "recompute": "full"},
    picked=("`recompute: full`",),
)
"""Every layer's forward pass, with what it exchanges, again in the backward pass. Our copy of the
paper does not say whether it does; a model of this size needs it."""

SIZES: Mapping[str, tuple[int, ...]] = {
    "2D-SW_SW": (16, 64),
    "3D-SW_SW_SW_homo": (16, 8, 8),
    "3D-SW_SW_SW_hetero": (16, 8, 8),
    "3D-FC_Ring_SW": (8, 16, 8),
    "4D-Ring_SW_SW_SW": (4, 4, 8, 8),
    "4D-Ring_FC_Ring_SW": (4, 8, 4, 8),
}
NPUS = 1024


def layout(case: Case, platform: str) -> dict[str, Any]:
    """The key `parallelism`: one replica on the innermost dimensions, or a factor of one.

    Args:
        case: The workload.
        platform: One of the six.
    """
    if case.model_parallel == 1:
        return {**case.parallelism, "dp": NPUS}
    inner: list[int | str] = []
    outer: list[int | str] = []
    left = case.model_parallel
    for dimension, size in enumerate(SIZES[platform]):
        if left == 1:
            outer.append(dimension)
        elif left >= size:
            inner.append(dimension)
            left //= size
        else:
            inner.append(f"{dimension}[0:{left}]")
            outer.append(f"{dimension}[{left}:]")
            left = 1
    return {
        **case.parallelism,
        "tp": case.model_parallel,
        "dp": NPUS // case.model_parallel,
        "map": {"tp": inner, "dp": outer},
    }


Compute = Mapping[str, Any]
"""How long compute takes, as a scenario says it."""

A100: Compute = {"device": "a100", "efficiency": 0.5}
H100: Compute = {"device": "h100", "efficiency": 0.5}
"""A roofline at half of the peak, the default."""

PEAK: Compute = {"device": "a100", "efficiency": 1.0, "memory_bandwidth": "1 PB/s"}
"""An A100 that reaches its peak of 312 TFLOP/s in every layer, whatever its memory."""


def scaled(scale: float) -> Compute:
    """The A100's roofline, all times multiplied.

    Args:
        scale: By what.
    """
    return {**A100, "scale": scale}


def scenario(case: Case, platform: str, *, schedule: str, compute: Compute) -> dict[str, Any]:
    """A workload on a platform.

    Args:
        case: The workload.
        platform: One of the six.
        schedule: `BASELINE`, `SCF` or `IDEAL`.
        compute: How long compute takes.
    """
    tree: dict[str, Any] = {
        "schema_version": 1,
        "fabric": platform,
        "workload": {
            "model": case.model,
            "batch_per_replica": case.batch,
            "precision": "fp16",
            "parallelism": layout(case, platform),
            "compute": dict(compute),
            "iterations": ITERATIONS,
        },
        "schedule": {
            **SCHEDULES[BASELINE if schedule == IDEAL else schedule],
            "chunks": CHUNKS,
            "tensor": {"policy": "ddp", "bucket": ONE_BUCKET, "first_bucket": ONE_BUCKET},
        },
        "network_model": "dims",
    }
    if schedule == IDEAL:
        tree["what_if"] = "ideal_schedule"
    return tree
