"""The models and the testbed of ByteScheduler, as scenarios. Nothing in it is fitted.

Machines of 8 V100 on one switch of 100 Gb/s, as many servers as workers, on machines of their own.
A worker's 8 GPUs are alike and count as one NPU: what they do within a machine (sums, copies
through the host) is not modelled, and takes no time.

- MXNet's baseline pushes whole tensors first come, first served, those of a million parameters and
  more split over all servers, and has no barrier. TensorFlow's has one between iterations.
- `bytescheduler` takes the best of a grid of partitions and credits, as the paper's tuner searches;
  tensors as a whole are among them, so that it is never worse than cutting at all.
- Compute times are published throughputs of one GPU: ResNet-50 in FP32 on a V100 360 images/s;
  VGG16 in the proportion of TensorFlow's own table, 144 to 195 images/s on a P100 at batch 32
  (tensorflow/docs, `site/en/r1/guide/performance/benchmarks.md`). The Transformer's is a roofline
  at half of the peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FULL_SPEED = "100 Gb/s"
BANDWIDTHS = ("1 Gb/s", "10 Gb/s", "25 Gb/s", "40 Gb/s", "50 Gb/s", FULL_SPEED)
"""Our notes of the paper do not list its bandwidths."""

MACHINES = (1, 2, 4, 8, 16)
"""Of 8 GPUs each, which train."""

START = ("4 MiB", "16 MiB")
"""Partition and credit before tuning: one and four million parameters."""
WHOLE = ("8 GiB", "8 GiB")
"""More than any tensor."""
PARTITIONS = ("512 KiB", "2 MiB", "4 MiB")
CREDITS = ("4 MiB", "16 MiB", "64 MiB")

OVERHEAD = "20 us"
LATENCY = "10 us"
"""Of an operation: assumed, of the order of a message between two processes with RDMA."""

RESNET_IMAGES = 360.0
VGG_IMAGES = 144 / 195 * RESNET_IMAGES
"""Images/s of one V100 in FP32."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model of the paper.

    Attributes:
        label: Its name there.
        model: Our preset, or the model itself.
        batch: Samples of a GPU and iteration.
        images: Samples/s of one GPU; a roofline's if None.
    """

    label: str
    model: Any
    batch: int
    images: float | None = None

    @property
    def compute(self) -> dict[str, Any]:
        """The key `workload.compute`: a backward pass takes twice as long as a forward pass."""
        device = {"device": "v100", "efficiency": 0.5}
        if self.images is None:
            return device
        forward = round(1e12 * self.batch / self.images / 3)
        return {**device, "forward": f"{forward} ps", "backward": f"{2 * forward} ps"}

    def __hash__(self) -> int:
        """By its name."""
        return hash(self.label)


VGG16 = Case("VGG16", "vgg16", 32, VGG_IMAGES)
RESNET50 = Case("ResNet50", "resnet50", 32, RESNET_IMAGES)
TRANSFORMER = Case("Transformer", "transformer_base", 10)
"""512 tokens as 10 sentences of 50."""
CASES = (VGG16, RESNET50, TRANSFORMER)

Tensor = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Network:
    """Workers and what sums their gradients.

    Attributes:
        workers: How many machines train, 2 at least.
        bandwidth: Of every link, each way.
        barrier: Whether the baseline has one between iterations; MXNet has none.
        servers: Whether there are parameter servers; else NCCL's all-reduce, against `fusion`.
        overhead: Of an operation.
    """

    workers: int = 8
    bandwidth: str = FULL_SPEED
    barrier: bool = False
    servers: bool = True
    overhead: str = OVERHEAD

    def scenario(self, case: Case, tensor: Tensor, **workload: Any) -> dict[str, Any]:
        """Return the scenario of training `case` with a tensor scheduler.

        Args:
            case: Which model.
            tensor: The tensor scheduler and its parameters.
            workload: Further keys of the workload, or others of them.
        """
        common: dict[str, Any] = {"start_overhead": self.overhead}
        if self.servers:
            common |= {"exchange": "parameter_server", "servers": {"colocated": False}}
        return {
            "schema_version": 1,
            "fabric": machines(self.workers, self.bandwidth),
            "workload": {
                "model": case.model,
                "batch_per_replica": case.batch,
                "precision": "fp32",
                "parallelism": {"dp": self.workers},
                "compute": case.compute,
                "optimizer": "none",
                "iterations": 4,
                **workload,
            },
            "schedule": {"policy": "baseline", "chunks": 1, "tensor": {**common, **tensor}},
        }

    @property
    def baseline(self) -> Tensor:
        """What is compared with."""
        return {"policy": "fifo", "barrier": self.barrier} if self.servers else {"policy": "fusion"}

    def candidates(self) -> list[Tensor]:
        """The baseline, `bytescheduler` as it starts, and the grid of its tuner."""
        pairs = [START, WHOLE, *((p, c) for p in PARTITIONS for c in CREDITS)]
        cut = [{"policy": "bytescheduler", "partition": p, "credit": c} for p, c in pairs]
        return [self.baseline, *cut]


def machines(count: int, bandwidth: str) -> dict[str, Any]:
    """Return a fabric of machines on one switch.

    Args:
        count: How many.
        bandwidth: Of each one's link, each way.
    """
    dimension = {"kind": "switch", "size": count, "links": 1, "latency": LATENCY}
    return {"name": "machines", "dimensions": [{**dimension, "bandwidth": bandwidth}]}
