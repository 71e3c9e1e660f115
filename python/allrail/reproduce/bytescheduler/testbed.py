"""The models and the testbed of ByteScheduler, as scenarios.

16 machines: 8 workers and 8 servers, machines of their own (as BytePS' guide has it), each with one
link up and down. A worker's 8 GPUs are alike and count as one NPU. Before a push and after a pull
gradients cross PCI Express, 4 GPUs on a switch (BytePS' performance notes), each with a copy of its
own.

Links serve what comes first. The authors say so of every stack below their scheduler
(bytescheduler/docs/scheduling.md in bytedance/byteps): priorities count where it hands over, not
in the network; and in ps-lite's transports (rdma_van.h there; pull request 151 of dmlc/ps-lite) all
messages to a server share one connection, the requests of pulls and the answers to pushes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FITTED_AT = "100 Gb/s"
BANDWIDTHS = ("1 Gb/s", "10 Gb/s", "25 Gb/s", "40 Gb/s", "50 Gb/s")
"""Predicted. Our notes of the paper say that it goes from 1 to 100 Gb/s, not at which it stops."""

PARTITIONS = ("256 KiB", "512 KiB", "1 MiB", "2 MiB", "4 MiB")
CREDITS = ("4 MiB", "8 MiB", "16 MiB", "32 MiB", "64 MiB")
"""The best pair is taken, as the paper's tuner searches for it: credits of 1 to 16 million
parameters for servers, partitions up to its start, a million."""

HOST = "3 GB/s"
"""About 12 GB/s of a PCI Express 3.0 x16 slot, for the copies of the 4 GPUs behind it: the paper's
code makes MXNet's key-value store `dist_sync`, which sums the gradients of all GPUs in the host."""

SUM = "12.5 GB/s"
"""Of a server: 100 Gb/s, what its authors say BytePS' reaches (issue 230 of bytedance/byteps); its
servers were MXNet's before. MXNet's update as well, 2 MB in 780 us as an author of BytePS measured
(issue 14485 of apache/mxnet): 16 MB of 8 workers take 2.06 ms then instead of 1.28, 8 GB/s."""

OVERHEAD = "20 us"
LATENCY = "10 us"
"""Of an operation: assumed, of the order of a message between two processes with RDMA."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model of the paper.

    Attributes:
        label: Its name there.
        model: Our preset.
        batch: Samples of a GPU and iteration.
        fitted: The published range at 100 Gb/s, per cent.
        predicted: The published range over the bandwidths, per cent.
        images: Published images per second of the baseline on 64 GPUs; None where there are none.
    """

    label: str
    model: str
    batch: int
    fitted: tuple[float, float]
    predicted: tuple[float, float]
    images: float | None = None


CASES = (
    Case("VGG16", "vgg16", 32, (97.0, 125.0), (79.0, 132.0), 2777.0),
    Case("ResNet50", "resnet50", 32, (9.0, 15.0), (10.0, 64.0), 14780.0),
    Case("Transformer", "transformer_base", 10, (70.0, 171.0), (67.0, 70.0)),
)
"""Batch: 32 images, and 512 tokens as 10 sentences of 50. Ranges: see `_NOTES`; images per second:
pull request 151 of dmlc/ps-lite, by the same authors, on machines as here."""

Tensor = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Network:
    """Workers and servers.

    Attributes:
        workers: How many machines train.
        bandwidth: Of every link, each way.
        colocated: Whether the servers run on the workers' machines.
        host: What a worker brings between its GPUs and its network; None for no limit.
        sum: What a server sums; None for no limit.
        in_order: Whether links serve what comes first, and requests and answers wait there too.
        overhead: Of an operation.
        barrier: Whether `fifo` has a barrier between iterations; MXNet has none.
    """

    workers: int = 8
    bandwidth: str = FITTED_AT
    colocated: bool = False
    host: str | None = HOST
    sum: str | None = SUM
    in_order: bool = True
    overhead: str = OVERHEAD
    barrier: bool = False

    def scenario(self, case: Case, *, compute_ms: float, tensor: Tensor) -> dict[str, Any]:
        """Return the scenario of training `case` with a tensor scheduler.

        Args:
            case: Which model.
            compute_ms: Of an iteration, a third of it forward.
            tensor: The tensor scheduler and its parameters.
        """
        common = {
            "exchange": "parameter_server",
            "servers": self.servers(),
            "start_overhead": self.overhead,
        }
        return {
            "schema_version": 1,
            "fabric": machines(self.workers, self.bandwidth),
            "workload": {
                "model": case.model,
                "batch_per_replica": case.batch,
                "precision": "fp32",
                "parallelism": {"dp": self.workers},
                "compute": {"device": "v100", **passes(compute_ms)},
                "optimizer": "none",
                "iterations": 4,
            },
            "schedule": {"policy": "baseline", "chunks": 1, "tensor": {**common, **tensor}},
        }

    def servers(self) -> dict[str, Any]:
        """Return the servers of a scenario."""
        rates = {"host": self.host, "sum": self.sum}
        told = {key: rate for key, rate in rates.items() if rate is not None}
        return {"colocated": self.colocated, "in_order": self.in_order, **told}

    def candidates(self) -> list[Tensor]:
        """The tensor schedulers that are compared; the first is the baseline."""
        pairs = [(partition, credit) for partition in PARTITIONS for credit in CREDITS]
        cut = [{"policy": "bytescheduler", "partition": p, "credit": c} for p, c in pairs]
        return [{"policy": "fifo", "barrier": self.barrier}, *cut]


def machines(count: int, bandwidth: str) -> dict[str, Any]:
    """Return a fabric of machines on one switch.

    Args:
        count: How many.
        bandwidth: Of each one's link, each way.
    """
    dimension = {"kind": "switch", "size": count, "links": 1, "latency": LATENCY}
    return {"name": "machines", "dimensions": [{**dimension, "bandwidth": bandwidth}]}


def passes(compute_ms: float) -> dict[str, str]:
    """Return the times of the passes: the backward pass takes twice as long as the forward pass.

    Args:
        compute_ms: Of both together.
    """
    picoseconds = round(compute_ms * 1e9 / 3)
    return {"forward": f"{picoseconds} ps", "backward": f"{2 * picoseconds} ps"}
