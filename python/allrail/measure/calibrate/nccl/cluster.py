"""What NCCL sees of a fabric: machines of GPUs, links within them, interfaces between them.

A fabric's first dimension is within a machine; all others are the network between machines. Which
generation of GPUs a machine has follows from their name, where a table gives one, else from the
rate of their links: NVLink carries 150, 300, 450 and 900 GB/s a GPU and direction from Volta to
Blackwell (NVIDIA's datasheets). A first dimension of 64 GB/s and less is PCIe. Where every two GPUs
have links of their own (`fully_connected`), some of a machine's GPUs have some of its links. A
fabric of one dimension is one machine, unless as many machines as ranks are told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allrail.measure.calibrate.nccl.constants import (
    AMPERE,
    BLACKWELL,
    GENERATIONS,
    HOP_US,
    HOPPER,
    VOLTA,
    Generation,
)
from allrail.scenario.dimensions import aggregate, within
from allrail.scenario.fields import parse_quantity

_PCIE = 64.0
"""GB/s: one direction of PCIe 5.0 x16."""
_PCIE_SHARE = 12 / 16
"""Of PCIe's rate, what NCCL counts (`topo.h`: 12 GB/s of the third version, 16 lanes)."""
_NVLINK = ((700.0, BLACKWELL), (400.0, HOPPER), (200.0, AMPERE), (0.0, VOLTA))
"""GB/s a GPU and direction, from which on it is of a generation."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The part of a fabric that a collective runs on.

    Attributes:
        ranks: How many take part.
        nodes: On how many machines.
        generation: Of the GPUs.
        link: What all links of a GPU within its machine carry, GB/s a direction, nominal.
        interfaces: Of a machine, those of the GPUs that take part; 0 on one machine.
        interface: What one of them carries, GB/s a direction, nominal.
        sums: Whether the switches of a machine sum (NVLS).
        summed: The bus bandwidth of an all-reduce that they sum, GB/s, as the fabric gives it; None
            for NCCL's.
        measured: Whether rates are those that collectives reach, not nominal ones.
        slower_inside_us: What a step within a machine takes beyond NCCL's own figure.
        slower_between_us: The same between machines.
    """

    ranks: int
    nodes: int
    generation: Generation
    link: float
    interfaces: int = 0
    interface: float = 0.0
    sums: bool = False
    summed: float | None = None
    measured: bool = False
    slower_inside_us: float = 0.0
    slower_between_us: float = 0.0

    @property
    def each(self) -> int:
        """Ranks of a machine."""
        return self.ranks // self.nodes

    @property
    def pcie(self) -> bool:
        """Whether no NVLink joins its GPUs."""
        return self.link <= _PCIE

    @property
    def inside(self) -> float:
        """GB/s of a GPU's links, as NCCL counts them."""
        if self.measured:
            return self.link
        return self.link * (_PCIE_SHARE if self.pcie else self.generation.link)


def cluster_of(
    dimensions: Sequence[Mapping[str, Any]],
    ranks: int,
    *,
    hosts: int | None = None,
    device: str = "",
    calibrated: bool = False,
) -> Cluster:
    """Return what NCCL sees of so many neighbouring NPUs of a fabric.

    Args:
        dimensions: Of the fabric, the innermost first.
        ranks: How many.
        hosts: On how many machines; None fills one after the other.
        device: What the driver calls the GPUs; empty where nothing says.
        calibrated: Whether the fabric's rates were measured.

    Raises:
        InputError: They fill no part of the fabric.
    """
    whole = [dict(one) for one in dimensions]
    part = within(whole, ranks, hosts)
    inner = whole[0]
    first = part[0]
    # Ranks that share no machine are on no part of the first dimension.
    apart = hosts == ranks or {**first, "size": 0} != {**inner, "size": 0}
    each = 1 if apart else int(first["size"])
    outer = part if apart else part[1:]
    link = aggregate(inner) / 1e9
    carried = link
    if inner["kind"] == "fully_connected" and 1 < each < int(inner["size"]):
        carried *= (each - 1) / (int(inner["size"]) - 1)
    generation = next(
        (found for words, found in GENERATIONS if device and re.search(words, device)),
        next(found for least, found in _NVLINK if link >= least),
    )
    interfaces, interface = 0, 0.0
    if outer:
        found, inside = [], each
        for one in outer:
            found.append(inside * aggregate(one) / 1e9)
            inside *= int(one["size"])
        interfaces = each * int(outer[0].get("links", 1))
        interface = min(found) / interfaces
    kind = "pcie" if link <= _PCIE else "nvlink"
    sums = bool(inner.get("in_network_reduction")) and each > 1 and generation.nvls > 0
    rate = inner.get("reduction_bandwidth")
    return Cluster(
        ranks=ranks,
        nodes=ranks // each,
        generation=generation,
        link=carried,
        interfaces=interfaces,
        interface=interface,
        sums=sums,
        summed=_summed(parse_quantity("bandwidth", str(rate)) / 1e9, each)
        if sums and rate is not None
        else None,
        measured=calibrated,
        slower_inside_us=_slower(inner, HOP_US[kind]["ring"][2]),
        slower_between_us=max(
            (_slower(one, HOP_US["network"]["ring"][2]) for one in outer), default=0.0
        ),
    )


def _summed(rate: float, each: int) -> float:
    """Bus bandwidth of a rate at which a machine's GPUs have their sum."""
    return rate * 2 * (each - 1) / each


def _slower(dimension: Mapping[str, Any], usual: float) -> float:
    """What a fabric's latency has beyond NCCL's of a ring's step in Simple, µs."""
    told = parse_quantity("time", str(dimension.get("latency", "0 us"))) / 1e6
    return max(0.0, told - usual)
