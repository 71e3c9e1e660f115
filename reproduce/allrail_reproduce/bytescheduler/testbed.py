"""The models and the testbed of ByteScheduler, as scenarios. Nothing in it is fitted.

Machines of 8 V100 on one switch of 100 Gb/s, as many servers as workers, on machines of their own.

- **Machines on PCI Express** (`PCIE`), those of the paper's authors: 8 V100 without NVLink
  (dmlc/ps-lite, pull request 151), four behind each of two PCIe switches (bytedance/byteps,
  `docs/performance.md`). Their kvstore is `dist_sync` (bytedance/byteps,
  `bytescheduler/README.md`): every GPU copies its gradient to host memory, where they are summed,
  and the result back. MXNet's own measurement of that saturates the x16 link that GPUs share, of
  which 13 GB/s are reached (apache/mxnet, `tools/bandwidth/README.md`); so the sum counts as hidden
  behind the copies. A server takes 780 us for 2 MB of a push (apache/mxnet, issue 14485, by one of
  the authors), and copies what is pulled in the same thread
  (`src/kvstore/kvstore_dist_server.h`), as fast as one thread of a Xeon
  copies: 6.0 GB/s (apache/arrow, pull request 580).
- **Machines with NVLink** (`NVLINK`), those of BERT-large: 6 links of 25 GB/s a V100 (NVIDIA V100
  datasheet); GPUs sum among themselves.
- With NCCL, a machine's 8 GPUs are alike and count as one NPU.
- MXNet's baseline pushes whole tensors first come, first served, those of a million parameters and
  more split over all servers, and has no barrier. TensorFlow's has one between iterations.
- `bytescheduler` takes the best of a grid of partitions and credits, as the paper's tuner searches;
  tensors as a whole are among them, so that it is never worse than cutting at all.
- With NCCL the baseline is Horovod's fusion, tuned too: the best of a grid of thresholds and cycles
  within the ranges that Horovod's own tuner searches, 0 to 64 MB and 1 to 100 ms
  (horovod/horovod, `horovod/common/parameter_manager.cc`), and of its defaults, 128 MiB and 1 ms
  (`docs/tensor-fusion.rst`; 64 MiB before 0.21).
- Compute times are published throughputs of one GPU: ResNet-50 in FP32 on a V100 360 images/s;
  VGG16 in the proportion of TensorFlow's own table, 144 to 195 images/s on a P100 at batch 32
  (tensorflow/docs, `site/en/r1/guide/performance/benchmarks.md`). The Transformer's is a roofline
  at half of the peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

FUSED = (("64 MiB", "1 ms"), ("128 MiB", "1 ms"))
"""Threshold and cycle of Horovod before tuning: the scenarios' defaults, and Horovod's own."""
THRESHOLDS = ("1 MiB", "4 MiB", "8 MiB", "16 MiB", "32 MiB")
CYCLES = ("1 ms", "2.5 ms", "5 ms", "10 ms")

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

GPUS = 8
"""Of a machine."""

PCIE_LINK = 13
"""GB/s of an x16 link of PCI Express 3.0, as MXNet's tool reaches it."""
UPDATE = 2_000_000 / 780e-6
"""Bytes of a push that a server of MXNet takes in, a second."""
COPY = 6
"""GB/s that one thread of a Xeon copies."""
WITHIN = "1 us"
"""Latency of a step among GPUs of a machine: assumed, of the order of a signal over NVLink."""


KVSTORE = {"colocated": False, "big_array": "4 MB"}
"""MXNet splits what has a million parameters: a partition of ByteScheduler's, too."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What joins the GPUs of a machine.

    Attributes:
        bandwidth: Of a GPU to the others, each way.
        servers: Keys of `schedule.tensor.servers` that say what a machine and a server do.
    """

    bandwidth: str
    servers: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        """By its bandwidth."""
        return hash(self.bandwidth)


PCIE = Machine(
    f"{PCIE_LINK} GB/s",
    {
        "local": "host",
        "host": f"{2 * PCIE_LINK} GB/s",
        "sum": f"{UPDATE / 1e6:.0f} MB/s",
        "copy": f"{COPY} GB/s",
    },
)
NVLINK = Machine("150 GB/s")


@dataclass(frozen=True, slots=True)
class Network:
    """Workers and what sums their gradients.

    Attributes:
        workers: How many machines train, 2 at least.
        bandwidth: Of every link, each way.
        barrier: Whether the baseline has one between iterations; MXNet has none.
        servers: Whether there are parameter servers; else NCCL's all-reduce, against `fusion`.
        overhead: Of an operation.
        machine: What joins the GPUs of a worker; one NPU without.
    """

    workers: int = 8
    bandwidth: str = FULL_SPEED
    barrier: bool = False
    servers: bool = True
    overhead: str = OVERHEAD
    machine: Machine | None = PCIE

    @property
    def gpus(self) -> int:
        """Number of NPUs of a machine in scenarios."""
        return GPUS if self.servers and self.machine is not None else 1

    def scenario(self, case: Case, tensor: Tensor, **workload: Any) -> dict[str, Any]:
        """Return the scenario of training `case` with a tensor scheduler.

        Args:
            case: Which model.
            tensor: The tensor scheduler and its parameters.
            workload: Further keys of the workload, or others of them.
        """
        common: dict[str, Any] = {"start_overhead": self.overhead}
        fabric = machines(self.workers, self.bandwidth)
        if self.servers:
            own = self.machine.servers if self.machine is not None else {}
            common |= {"exchange": "parameter_server", "servers": {**KVSTORE, **own}}
            if self.machine is not None:
                fabric = machines(self.workers, self.bandwidth, self.machine)
        return {
            "schema_version": 1,
            "fabric": fabric,
            "workload": {
                "model": case.model,
                "batch_per_replica": case.batch,
                "precision": "fp32",
                "parallelism": {"dp": self.workers * self.gpus},
                "compute": case.compute,
                "optimizer": "none",
                "iterations": 4,
                **workload,
            },
            "schedule": {"policy": "baseline", "chunks": 1, "tensor": {**common, **tensor}},
        }

    @property
    def baseline(self) -> Tensor:
        """What is compared with, untuned."""
        return self.baselines()[0]

    def baselines(self) -> list[Tensor]:
        """What is compared with: the best of these; the first is untuned."""
        if self.servers:
            return [{"policy": "fifo", "barrier": self.barrier}]
        pairs = [*FUSED, *((t, c) for t in (*THRESHOLDS, "64 MiB") for c in CYCLES)]
        return [
            {"policy": "fusion", "threshold": threshold, "cycle": cycle}
            for threshold, cycle in dict.fromkeys(pairs)
        ]

    def cuts(self) -> list[Tensor]:
        """`bytescheduler` as it starts, and the grid of its tuner."""
        pairs = [START, WHOLE, *((p, c) for p in PARTITIONS for c in CREDITS)]
        return [{"policy": "bytescheduler", "partition": p, "credit": c} for p, c in pairs]

    def candidates(self) -> list[Tensor]:
        """All that is simulated."""
        return [*self.baselines(), *self.cuts()]


def machines(count: int, bandwidth: str, machine: Machine | None = None) -> dict[str, Any]:
    """Return a fabric of machines on one switch.

    Args:
        count: How many.
        bandwidth: Of each one's link, each way; in Gb/s where there is a machine.
        machine: What joins the GPUs of each; one NPU without.
    """
    between = {"kind": "switch", "size": count, "links": 1, "latency": LATENCY}
    if machine is None:
        return {"name": "machines", "dimensions": [{**between, "bandwidth": bandwidth}]}
    # A machine's link is its GPUs' together.
    share = f"{float(bandwidth.removesuffix(' Gb/s')) * 1e3 / GPUS:g} Mb/s"
    within = {"kind": "switch", "size": GPUS, "links": 1, "latency": WITHIN}
    return {
        "name": "machines",
        "dimensions": [
            {**within, "bandwidth": machine.bandwidth},
            {**between, "bandwidth": share},
        ],
    }
