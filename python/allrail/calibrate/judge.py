"""What a fabric should show, beside what was measured, and what may lie between.

Expected is what the simulator says of the fabric with chunks that keep all dimensions busy, and no
more bus bandwidth than one ring over all ranks has: what its narrowest dimension carries, as NCCL's
rings do. Trees and switches that reduce may be faster: then more than 100 % is measured.

A cause is named by what it does to the numbers: how much of the expected bandwidth the large sizes
reach, how many times the expected time the small ones take, and whether bandwidth grows with size.
Several causes do the same: all are named, each with what would tell it from the others, and none is
asserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from allrail.calibrate.network import OPERATIONS, run
from allrail.calibrate.table import AROUND, Table
from allrail.errors import InputError, did_you_mean
from allrail.scenario.dimensions import within

_HEALTHY = 0.7
"""Of a nominal bandwidth: NCCL's rings reach 0.78 to 0.92 of the line on healthy machines."""
_CHUNKS = 16
_SMALL = 1 << 16
_SLOW_START = 6.0
_DROP = 0.75
_LARGE = 4
"""Of the largest size, sizes from one such part on are large."""
_SOCKETS = 13.0
"""GB/s: what TCP over 100 Gb/s carries at most."""
_FLAT = 0.1
_EARLY = 4 << 20
"""Bytes: a healthy network still gains bandwidth here."""
_PCIE = 32.0
"""GB/s: one direction of PCIe 4.0 x16."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A size.

    Attributes:
        bytes: Of the buffer.
        expected_us: What the fabric should show.
        expected_busbw: The same as bus bandwidth, GB/s.
        measured_us: None where nothing was measured.
        measured_busbw: None likewise.
    """

    bytes: int
    expected_us: float
    expected_busbw: float
    measured_us: float | None = None
    measured_busbw: float | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """What may be the matter.

    Attributes:
        what: In words.
        why: What in the numbers points to it.
        test: What would tell it from the others.
    """

    what: str
    why: str
    test: str


def expect(
    dimensions: Sequence[dict[str, Any]],
    *,
    collective: str,
    ranks: int,
    sizes: Sequence[int],
    table: Table | None = None,
) -> list[Expected]:
    """Return what a fabric should show of a collective.

    Args:
        dimensions: Of the fabric.
        collective: As of `AROUND`.
        ranks: How many take part.
        sizes: Bytes.
        table: What was measured, if anything was.

    Raises:
        InputError: The collective is not known, or the ranks are no part of the fabric.
    """
    if collective not in OPERATIONS:
        known = "it has: " + ", ".join(f"`{one}`" for one in OPERATIONS)
        raise InputError(
            "the simulator has no such collective",
            field="collective",
            value=collective,
            # What nccl-tests measure is no slip of the pen.
            hint=known if collective in AROUND else did_you_mean(collective, OPERATIONS),
        )
    if ranks < 2:
        raise InputError(
            "one rank has nobody to send to",
            field="ranks",
            value=str(ranks),
            hint="give a table of two ranks or more",
        )
    part = within(dimensions, ranks, None if table is None else table.hosts)
    around, ring = AROUND[collective](ranks), _ring(part)
    measured = {} if table is None else {row.bytes: row.time_us for row in table.rows}
    found = []
    for size in sizes:
        time = max(
            run(collective, part, size, chunks=min(size, _CHUNKS)), around * size / ring / 1e3
        )
        seen = measured.get(size)
        found.append(
            Expected(
                size,
                time,
                around * size / time / 1e3,
                seen,
                None if seen is None else around * size / seen / 1e3,
            )
        )
    return found


def _ring(dimensions: Sequence[dict[str, Any]]) -> float:
    """GB/s of a ring over all ranks: what all links that leave the narrowest part carry."""
    from allrail.scenario.dimensions import aggregate

    found, inside = [], 1
    for one in dimensions:
        found.append(inside * aggregate(one) / 1e9)
        inside *= int(one["size"])
    return min(found)


def judge(
    rows: Sequence[Expected], *, several: bool | None, nic: float | None = None
) -> list[Cause]:
    """Return what may be the matter; nothing where the large sizes are as expected.

    Args:
        rows: By size, measured.
        several: Whether ranks are on several machines; None where nothing says, for both.
        nic: What one network interface carries, GB/s, where that is known.
    """
    seen = [row for row in rows if row.measured_busbw is not None and row.measured_us is not None]
    if not seen:
        return []
    # People leave rows out: the last three may be anything.
    top = [row for row in seen[-3:] if row.bytes * _LARGE >= seen[-1].bytes]
    share = median((row.measured_busbw or 0) / row.expected_busbw for row in top)
    reached = median(row.measured_busbw or 0 for row in top)
    best = max(row.measured_busbw or 0 for row in seen)
    causes = _erratic(seen)
    if share < _HEALTHY:
        told = f"large sizes reach {reached:.3g} GB/s, {100 * share:.0f} % of what is expected"
        if several is not True:
            causes += _inside(reached, told)
        if several is not False:
            causes += _between(share, reached, told, nic)
        causes.append(
            Cause(
                "few channels, small buffers, or an algorithm that is forced",
                told,
                "unset NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS, NCCL_BUFFSIZE, NCCL_ALGO, and any tuner",
            )
        )
        if best > 1.6 * reached:
            causes.append(
                Cause(
                    "a protocol for small messages (LL, LL128) is forced",
                    f"{best:.3g} GB/s at a middle size, {reached:.3g} at the largest",
                    "unset NCCL_PROTO and NCCL_ALGO, and any tuner",
                )
            )
        elif _flat(seen, share):
            causes.append(
                Cause(
                    "a protocol for small messages (LL, LL128) is forced",
                    f"{seen[0].bytes:,} bytes are as fast as {seen[-1].bytes:,}: no size gains",
                    "unset NCCL_PROTO and NCCL_ALGO, and any tuner",
                )
            )
    small = [row for row in seen if row.bytes <= _SMALL]
    if small:
        times = median((row.measured_us or 0) / row.expected_us for row in small)
        if times > _SLOW_START:
            causes.append(
                Cause(
                    "small messages take a slow way: sockets, a proxy, or hosts that share cores",
                    f"sizes up to 64 KiB take {times:.0f} times the expected time",
                    "`NCCL_DEBUG=INFO` names the transport; run with fewer processes a host",
                )
            )
    return causes


def _flat(seen: Sequence[Expected], share: float) -> bool:
    """Whether a small part of the bandwidth is reached early and nothing is gained after."""
    rates = [row.measured_busbw or 0 for row in seen]
    early = len(seen) >= 3 and seen[0].bytes <= _EARLY
    return early and share < _FLAT and min(rates) > (1 - _FLAT) * max(rates)


def _erratic(seen: Sequence[Expected]) -> list[Cause]:
    drops = [
        after.bytes
        for before, after in pairwise(seen)
        if after.bytes > _SMALL
        and (after.measured_busbw or 0) < _DROP * (before.measured_busbw or 0)
        and after.expected_busbw >= before.expected_busbw
    ]
    jitter = [
        row.bytes for row in seen[len(seen) // 2 :] if (row.measured_us or 0) > 3 * row.expected_us
    ]
    if not drops or len({*drops, *jitter}) < 2:
        return []
    where = ", ".join(f"{size:,}" for size in drops)
    return [
        Cause(
            "congestion (adaptive routing off, another job), or a slow rank",
            f"bandwidth falls at {where} bytes, where it should grow",
            "run it again at another hour; pairs of hosts one by one; switches' counters",
        ),
        Cause(
            "the algorithm changes at a bad size",
            f"bandwidth falls at {where} bytes, where it should grow",
            "NCCL_ALGO=Ring and NCCL_ALGO=Tree, one after the other",
        ),
    ]


def _inside(reached: float, told: str) -> list[Cause]:
    causes = [
        Cause(
            "a rank is slow, or a link of it is down",
            told,
            "`nvidia-smi nvlink -s`; leave one GPU out at a time",
        ),
        Cause(
            "GPUs with fewer or slower links than the fabric has",
            told,
            "`nvidia-smi topo -m`: NV18 is 18 links; give the fabric of that machine",
        ),
    ]
    if reached < _PCIE:
        causes += [
            Cause(
                "PCIe in place of NVLink, or no peer-to-peer (P2P) between GPUs",
                f"{reached:.3g} GB/s is what PCIe carries",
                "`nvidia-smi topo -p2p r`; NCCL_P2P_DISABLE unset; IOMMU and ACS off",
            ),
            Cause(
                "transport through sockets or shared memory, or a library that copies through the"
                " host",
                f"{reached:.3g} GB/s is what a host's memory or TCP carries",
                "`NCCL_DEBUG=INFO`: `via P2P`, `via SHM` or `NET/Socket`; MPI with UCC",
            ),
        ]
    return causes


def _between(share: float, reached: float, told: str, nic: float | None) -> list[Cause]:
    causes = []
    if share >= 0.35:
        causes.append(
            Cause(
                "half of the network interfaces are used, or one dimension runs at half its rate",
                told,
                "`NCCL_DEBUG=INFO` lists the interfaces (NCCL_IB_HCA); `ibstat` their rates",
            )
        )
    if share < 0.6:
        causes += [
            Cause(
                "no GPUDirect RDMA: data goes through the host's memory",
                told,
                "`NCCL_DEBUG=INFO` says GDRDMA; nvidia-peermem or dma-buf; ACS off",
            ),
            Cause(
                "PCIe between GPU and interface (outstanding reads, relaxed ordering, a switch)",
                told,
                "`ib_write_bw` from GPU memory, one interface at a time; MAX_ACC_OUT_READ",
            ),
        ]
    if share < 0.35 or (nic is not None and reached < 1.1 * nic):
        causes.append(
            Cause(
                "one network interface alone is used",
                told if nic is None else f"{reached:.3g} GB/s, and one carries {nic:.3g}",
                "`NCCL_DEBUG=INFO` lists the interfaces; NCCL_IB_HCA; names alike on all hosts",
            )
        )
    if reached < _SOCKETS:
        causes.append(
            Cause(
                "TCP sockets in place of RDMA",
                f"{reached:.3g} GB/s is what TCP carries",
                "`NCCL_DEBUG=INFO`: `NET/Socket` in place of `NET/IB` or a plugin",
            )
        )
    causes.append(
        Cause(
            "a slow rank or cable",
            told,
            "halve the hosts until the slow one is found",
        )
    )
    return causes
