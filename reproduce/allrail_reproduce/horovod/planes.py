"""What sums a buffer on Summit: NCCL, MPI, or both in a hierarchy, as latency and bytes.

A node has 6 GPUs, NVLink of 50 GB/s between a GPU and its neighbours or its host, and two ports of
EDR, 25 GB/s each way together.

| plane | latency | bytes, GB/s |
|---|---|---|
| NCCL | `4.4 + 2 (5 * 1.2 + 8.5 log2(nodes))` us | `25 * 0.9 * 0.915 / 2` (tree, LL128) |
| MPI | `2 log2(ranks) * 2` us | a buffer crosses to the host and back, and as a ring over nodes |
| hierarchical | NCCL's within a node, MPI's between nodes | both, one after the other |

The first line is NCCL's own tuning table. The others add up the links' rates: `1 / sum(1 / rate)`,
a ring passing twice what it sums; 2 us are a message of MPI, both sides' work and the wire. Left
out: protocols, pipelining of copies and messages, and MPI's choice of algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

GPUS_PER_NODE = 6
NVLINK = 50.0
NODE = 25.0
"""GB/s."""
MESSAGE_US = 2.0


@dataclass(frozen=True, slots=True)
class Plane:
    """How buffers are summed.

    Attributes:
        name: For tables.
        gbytes: GB/s of a buffer, once its latency is over.
        latency_us: For a job of so many nodes and GPUs on a node.
    """

    name: str
    gbytes: float
    latency_us: Callable[[int, int], float]

    @property
    def bandwidth(self) -> str:
        """As a scenario writes it."""
        return f"{round(self.gbytes * 1e9)} B/s"

    def latency_ns(self, ranks: int) -> int:
        """What an all-reduce of few bytes takes, ns.

        Args:
            ranks: Among how many.
        """
        nodes = max(1, math.ceil(ranks / GPUS_PER_NODE))
        return round(1000 * self.latency_us(nodes, min(ranks, GPUS_PER_NODE)))


def _nccl(nodes: int, local: int) -> float:
    return 4.4 + 2 * ((local - 1) * 1.2 + math.log2(nodes) * 8.5)


def _mpi(nodes: int, local: int) -> float:
    return 2 * math.log2(nodes * local) * MESSAGE_US


def _hierarchical(nodes: int, local: int) -> float:
    return 4.4 + 2 * (local - 1) * 1.2 + 2 * math.log2(nodes) * MESSAGE_US


_INSIDE = 2 * (GPUS_PER_NODE - 1) / GPUS_PER_NODE / NVLINK
"""Seconds a GB of a reduce-scatter and an all-gather within a node."""
_BETWEEN = 2 / NODE
_COPIES = 2 / NVLINK

NCCL = Plane("NCCL", round(NODE * 0.9 * 0.915 / 2, 1), _nccl)
MPI = Plane("MPI", 1 / (_COPIES + _BETWEEN), _mpi)
HIERARCHICAL = Plane(
    "hierarchical", 1 / (_INSIDE + _BETWEEN + _COPIES / GPUS_PER_NODE), _hierarchical
)
