"""What may lie between a measured table and the expected one, by how well it explains the numbers.

A cause is a change of the model: half of the interfaces, one protocol alone, no switch that sums, a
link that carries less. NCCL's times are computed again with the change, and the median distance of
the measured times from them says how well it explains the table. Where a cause leaves a rate open
(a slow cable may be slow by any factor), the rate that fits best counts, within what the cause may
do. What small sizes take beyond the expected is in every cause. Healthy tables are 10 % off the
model, too, so the distance is rounded up to steps of as much: causes that are nearer to each other
explain a table equally well, and of these the one that leaves less open comes first. Several causes
change the numbers alike: all that explain them better than no cause are returned, the best first,
each with what would tell it from the others. None is asserted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log
from statistics import median

from allrail.measure.calibrate.expected import HOST_US, Expected
from allrail.measure.calibrate.nccl import Cluster, Way, fastest, ways
from allrail.measure.calibrate.nccl.constants import RING, TREE
from allrail.measure.calibrate.shape import LARGE, SMALL, Fall, large_share, seen, size_text
from allrail.measure.calibrate.table import AROUND

_SOCKETS = 13.0
"""GB/s: what TCP over 100 Gb/s carries at most."""
_PCIE = 32.0
"""GB/s: one direction of PCIe 4.0 x16."""
SLOW_START = 1 / 3
"""Of the expected bandwidth: small sizes below it are slow. Chosen; healthy tables reach 0.4 (an
all-to-all, and TCP offload between machines) and more."""
_BETTER = 0.8
"""Of the distance without a cause: a cause explains something where it leaves less."""
_NEAR = 0.15
"""Causes that are so much further off than the best are left out."""
_MOST = 6
"""Causes that are named, at most."""
_STEPS = 32
_STEP = 0.1
"""Healthy posted tables differ by as much from the model (0.86 to 1.12 of it): what is nearer tells
no causes apart."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What may be the matter.

    Attributes:
        what: The cause in words.
        why: What in the numbers points to it.
        test: What would tell it from the others.
        off: Median distance of the measured times from those with the cause, rounded up to a step
            of 0.1: 0.1 for 10 %, 2 for three times as long or as short. Causes are sorted by it.
    """

    what: str
    why: str
    test: str
    off: float


@dataclass(frozen=True, slots=True)
class _Change:
    """A cause as a change of the model; `low` and `high` bound the bus bandwidth that it leaves."""

    what: str
    test: str
    ways: Sequence[Way]
    low: float | None = None
    high: float | None = None
    why: str = ""


def causes(
    rows: Sequence[Expected],
    cluster: Cluster,
    collective: str,
    *,
    several: bool | None,
    erratic: Sequence[Fall] = (),
) -> list[Cause]:
    """Return what may be the matter, the best explanation first.

    Args:
        rows: By size, measured.
        cluster: What NCCL sees.
        collective: As of `AROUND`.
        several: Whether ranks are on several machines; None where nothing says, for both.
        erratic: Falls of bandwidth that a network makes, not an algorithm.
    """
    measured = seen(rows)
    if not measured:
        return []
    plain = ways(cluster, collective)
    small = [row for row in measured if row.bytes <= SMALL]
    judged = [row for row in measured if row.bytes > SMALL] or measured
    nothing = median(abs(log(row.share or 1.0)) for row in judged)
    share = large_share(measured) or 0.0
    top = measured[-3:]
    reached = median(row.measured_busbw or 0.0 for row in top if row.bytes * LARGE >= top[-1].bytes)
    told = (
        f"large sizes reach {reached:.3g} GB/s, {100 * share:.0f} % of what is expected"
        if share < 1
        else f"sizes are off by {_told(nothing)} in the median"
    )
    found: list[_Scored] = []
    for change in _changes(cluster, collective, plain, several=several, reached=reached):
        off, rate = _explains(change, judged, small, AROUND[collective](cluster.ranks))
        if off > _BETTER * nothing:
            continue
        left_open = 0.0
        if change.low is not None and change.high is not None:
            left_open = 1 + log(change.high / change.low)
        at = f" with {rate:.3g} GB/s" if rate is not None else ""
        why = change.why or told
        why += f"; explains the sizes within {_told(off)}{at} (without: {_told(nothing)})"
        found.append(_scored(off, left_open, change.what, why, change.test))
    found += _of_falls(judged, small, plain, AROUND[collective](cluster.ranks), erratic)
    found += _slow_start(small, plain, judged)
    found.sort(key=lambda each: each.score)
    # Of a cause in several forms the best one counts.
    named = list({each.cause.what: each for each in reversed(found)}.values())
    named.sort(key=lambda each: each.score)
    near = [each.cause for each in named if each.cause.off <= named[0].cause.off + _NEAR]
    # None is asserted: one alone would be.
    return (near if len(near) > 1 else [each.cause for each in named[:2]])[:_MOST]


@dataclass(frozen=True, slots=True)
class _Scored:
    """A cause; `score` orders: what is printed, then what it leaves open, then its distance."""

    score: tuple[float, float, float]
    cause: Cause


def _scored(off: float, left_open: float, what: str, why: str, test: str) -> _Scored:
    rounded = _rounded(off)
    return _Scored((rounded, left_open, off), Cause(what, why, test, rounded))


def _rounded(off: float) -> float:
    """A distance of logarithms as a share, up to the next step; beyond two times to two digits."""
    share = exp(off) - 1
    if share < 1:
        return round(max(1, ceil(share / _STEP - 1e-9)) * _STEP, 2)
    return float(f"{share + 1:.2g}") - 1


def _told(off: float) -> str:
    """The same in words."""
    share = _rounded(off)
    return f"{100 * share:.0f} %" if share < 1 else f"a factor of {share + 1:.2g}"


def _explains(
    change: _Change, judged: Sequence[Expected], small: Sequence[Expected], around: float
) -> tuple[float, float | None]:
    """The median distance of measured times from those of a change, and the rate that is open."""
    if change.low is None or change.high is None:
        return _distance(change.ways, judged, small), None
    best = (float("inf"), change.high)
    for step in range(_STEPS + 1):
        rate = change.low * (change.high / change.low) ** (step / _STEPS)
        capped = [replace(one, rate=min(one.rate, rate / around)) for one in change.ways]
        best = min(best, (_distance(capped, judged, small), rate))
    return best


def _distance(found: Sequence[Way], judged: Sequence[Expected], small: Sequence[Expected]) -> float:
    if not found:
        return float("inf")
    extra = _extra(found, small)
    return median(
        abs(log((row.measured_us or 1.0) / (fastest(found, row.bytes)[0] + HOST_US + extra)))
        for row in judged
    )


def _extra(found: Sequence[Way], small: Sequence[Expected]) -> float:
    """What small sizes take beyond the expected, µs."""
    if not small:
        return 0.0
    return max(
        0.0,
        median((row.measured_us or 0.0) - fastest(found, row.bytes)[0] - HOST_US for row in small),
    )


def _changes(
    cluster: Cluster, collective: str, plain: Sequence[Way], *, several: bool | None, reached: float
) -> Iterator[_Change]:
    top = max(one.rate for one in plain) * AROUND[collective](cluster.ranks)
    if several is not True:
        yield from _inside(plain, top, reached)
    if several is not False:
        yield from _between(cluster, collective, plain, top, reached)
    yield _Change(
        "few channels, small buffers, or a tuner that chooses them",
        "unset NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS, NCCL_BUFFSIZE, and any tuner",
        plain,
        low=0.02 * top,
        high=0.95 * top,
    )
    for protocol in ("LL", "LL128"):
        yield _Change(
            f"a protocol for small messages (LL, LL128) is forced: {protocol}",
            "unset NCCL_PROTO and NCCL_ALGO, and any tuner",
            [one for one in plain if one.protocol == protocol],
        )
    # On whatever carries less, LL sends twice the bytes.
    yield _Change(
        "a protocol for small messages (LL, LL128) is forced: LL",
        "unset NCCL_PROTO and NCCL_ALGO, and any tuner",
        [one for one in plain if one.protocol == "LL"],
        low=0.0005 * top,
        high=0.5 * top,
    )
    for algorithm in (RING, TREE):
        if len({one.algorithm for one in plain}) > 1:
            yield _Change(
                f"an algorithm is forced: {algorithm}",
                "unset NCCL_ALGO, and any tuner",
                [one for one in plain if one.algorithm == algorithm],
            )
    if cluster.sums:
        yield _Change(
            "switches do not sum (NVLS is off, or the fabric manager has no multicast)",
            "`NCCL_DEBUG=INFO` says NVLS multicast support; unset NCCL_NVLS_ENABLE",
            [one for one in plain if not one.algorithm.startswith("nvls")],
        )


def _inside(plain: Sequence[Way], top: float, reached: float) -> Iterator[_Change]:
    yield _Change(
        "a rank is slow, or a link of it is down",
        "`nvidia-smi nvlink -s`; leave one GPU out at a time",
        plain,
        low=0.01 * top,
        high=0.95 * top,
    )
    yield _Change(
        "GPUs with fewer or slower links than the fabric has",
        "`nvidia-smi topo -m`: NV18 is 18 links; give the fabric of that machine",
        plain,
        low=0.1 * top,
        high=0.95 * top,
    )
    if reached < _PCIE:
        yield _Change(
            "PCIe in place of NVLink, or no peer-to-peer (P2P) between GPUs",
            "`nvidia-smi topo -p2p r`; NCCL_P2P_DISABLE unset; IOMMU and ACS off",
            plain,
            low=1.0,
            high=_PCIE,
            why=f"{reached:.3g} GB/s is what PCIe carries",
        )
        yield _Change(
            "transport through sockets or shared memory, or a library that copies through the host",
            "`NCCL_DEBUG=INFO`: `via P2P`, `via SHM` or `NET/Socket`; MPI with UCC",
            plain,
            low=0.05,
            high=_SOCKETS,
            why=f"{reached:.3g} GB/s is what a host's memory or TCP carries",
        )


def _between(
    cluster: Cluster, collective: str, plain: Sequence[Way], top: float, reached: float
) -> Iterator[_Change]:
    if cluster.nodes > 1 and cluster.interfaces > 1:
        half, one = cluster.interfaces // 2, 1
        for count, what, test, why in (
            (
                half,
                "half of the network interfaces are used, or one dimension runs at half its rate",
                "`NCCL_DEBUG=INFO` lists the interfaces (NCCL_IB_HCA); `ibstat` their rates",
                "",
            ),
            (
                one,
                "one network interface alone is used",
                "`NCCL_DEBUG=INFO` lists the interfaces; NCCL_IB_HCA; names alike on all hosts",
                f"{reached:.3g} GB/s, and one carries {cluster.interface:.3g}",
            ),
        ):
            fewer = ways(replace(cluster, interfaces=count), collective)
            # With few interfaces NCCL may have no tree to choose.
            for some in (fewer, [each for each in fewer if each.algorithm == RING]):
                yield _Change(what, test, some, why=why)
    yield _Change(
        "no GPUDirect RDMA: data goes through the host's memory",
        "`NCCL_DEBUG=INFO` says GDRDMA; nvidia-peermem or dma-buf; ACS off",
        plain,
        low=0.1 * top,
        high=0.6 * top,
    )
    yield _Change(
        "PCIe between GPU and interface (outstanding reads, relaxed ordering, a switch)",
        "`ib_write_bw` from GPU memory, one interface at a time; MAX_ACC_OUT_READ",
        plain,
        low=0.2 * top,
        high=0.9 * top,
    )
    if reached < _SOCKETS:
        yield _Change(
            "TCP sockets in place of RDMA",
            "`NCCL_DEBUG=INFO`: `NET/Socket` in place of `NET/IB` or a plugin",
            plain,
            low=0.2,
            high=_SOCKETS,
            why=f"{reached:.3g} GB/s is what TCP carries",
        )
    yield _Change(
        "a slow rank or cable",
        "halve the hosts until the slow one is found",
        plain,
        low=0.01 * top,
        high=0.95 * top,
    )


def _of_falls(
    judged: Sequence[Expected],
    small: Sequence[Expected],
    plain: Sequence[Way],
    around: float,
    falls: Sequence[Fall],
) -> list[_Scored]:
    """What explains the sizes that fell: the others need no more than a rate."""
    if not falls:
        return []
    inside = {row.bytes for row in judged for one in falls if one.first <= row.bytes <= one.last}
    rest = [row for row in judged if row.bytes not in inside]
    off, top = 0.0, max(one.rate for one in plain) * around
    if rest:
        change = _Change("", "", plain, low=0.01 * top, high=top)
        off = min(_distance(plain, rest, small), _explains(change, rest, small, around)[0])
    where = ", ".join(
        size_text(one.first) + (f" to {size_text(one.last)}" if one.last > one.first else "")
        for one in falls
    )
    why = f"bandwidth falls at {where}, where it should grow; other sizes are within {_told(off)}"
    named = (
        (
            "congestion (adaptive routing off, another job), or a slow rank",
            "run it again at another hour; pairs of hosts one by one; switches' counters",
        ),
        (
            "the algorithm changes at a bad size",
            "NCCL_ALGO=Ring and NCCL_ALGO=Tree, one after the other",
        ),
    )
    return [_scored(off, 0.0, what, why, test) for what, test in named]


def _slow_start(
    small: Sequence[Expected], plain: Sequence[Way], judged: Sequence[Expected]
) -> list[_Scored]:
    share = median(row.share or 0.0 for row in small) if small else 1.0
    if share >= SLOW_START:
        return []
    off = _distance(plain, judged, small)
    why = (
        f"sizes up to 64 KiB take {1 / share:.0f} times the expected time; with it the others are"
        f" explained within {_told(off)}"
    )
    what = "small messages take a slow way: sockets, a proxy, or hosts that share cores"
    test = "`NCCL_DEBUG=INFO` names the transport; run with fewer processes a host"
    return [_scored(off, 0.0, what, why, test)]
