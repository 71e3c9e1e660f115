"""How long NCCL's algorithms take, as NCCL's own tuner counts: a fixed time and a rate for each.

    t(S) = latency + S / rate

For every algorithm (ring, tree, NVLS: switches that sum, NVLS tree: these within machines and a
tree between) and protocol (LL, LL128, Simple) the latency is a base and the steps of the algorithm
times what a step takes, and the rate follows from channels: how many there are, how fast each may
be (`constants.py`). NCCL runs whatever takes least, and so does `fastest`. What it leaves out: what
the host takes to launch, other traffic, and that middle sizes are pipelined less well than the
formula has it. Fabrics whose rates were measured keep them: no nominal rate is discounted.

NCCL's tuner has no figure of all-to-alls and of messages: here they are as long as their bytes take
on the slower of links and interfaces, and a step in Simple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from allrail.base.errors import InputError, did_you_mean
from allrail.measure.calibrate.nccl import constants as nccl
from allrail.measure.calibrate.nccl.cluster import Cluster
from allrail.measure.calibrate.table import AROUND

COLLECTIVES = tuple(AROUND)
_NO_LINKS = 1e6
"""GB/s: a machine of one GPU is not slowed by links."""
_POINT = ("all_to_all", "sendrecv")


@dataclass(frozen=True, slots=True)
class Way:
    """An algorithm in a protocol.

    Attributes:
        algorithm: `ring`, `tree`, `nvls`, `nvls_tree`, or `direct` of messages.
        protocol: `LL`, `LL128` or `Simple`.
        latency_us: What it takes beside its bytes.
        rate: Bytes of the collective's size over time, GB/s.
        plateau: From how many bytes on its latency is `PLATEAU` times as long; None if never.
    """

    algorithm: str
    protocol: str
    latency_us: float
    rate: float
    plateau: float | None = None

    @property
    def name(self) -> str:
        """Both, as a table shows them."""
        return f"{self.algorithm}_{self.protocol}"

    def time_us(self, size: int) -> float:
        """Return how long a size takes, µs.

        Args:
            size: Bytes, as nccl-tests count them.
        """
        rate, latency = self.rate, self.latency_us
        if self.algorithm == nccl.TREE:
            rate *= _tree_share(nccl.PROTOCOLS.index(self.protocol), size)
        if self.plateau is not None and size >= self.plateau:
            latency *= nccl.PLATEAU
        return latency + size / rate / 1e3


def ways(cluster: Cluster, collective: str) -> list[Way]:
    """Return every algorithm and protocol that NCCL has for a collective there.

    Args:
        cluster: Where.
        collective: As of `AROUND`.

    Raises:
        InputError: The collective is not known.
    """
    if collective not in AROUND:
        raise InputError(
            "nobody measures such a collective",
            field="collective",
            value=collective,
            hint=did_you_mean(collective, COLLECTIVES),
        )
    if collective in _POINT:
        return [_messages(cluster, collective)]
    return [one for one in _all(cluster, collective) if one.rate > 0]


def fastest(found: Sequence[Way], size: int) -> tuple[float, Way]:
    """Return how long the quickest of several takes, µs, and which it is.

    Args:
        found: The choice.
        size: Bytes.
    """
    return min(((one.time_us(size), one) for one in found), key=lambda each: each[0])


def _all(cluster: Cluster, collective: str) -> Iterator[Way]:
    algorithms = ["ring"]
    if collective == "all_reduce":
        algorithms.append("tree")
        if cluster.sums:
            algorithms.append("nvls" if cluster.nodes == 1 else "nvls_tree")
    elif cluster.sums and cluster.nodes == 1 and collective in ("all_gather", "reduce_scatter"):
        algorithms.append("nvls")
    for algorithm in algorithms:
        for place, protocol in enumerate(nccl.PROTOCOLS):
            if algorithm.startswith("nvls") and protocol != "Simple":
                continue
            if protocol == "LL128" and cluster.pcie:
                continue
            busbw = _busbw(cluster, collective, algorithm, place)
            # A tree sends all of the buffer up and down, on however many ranks.
            around = 2.0 if algorithm == nccl.TREE else AROUND[collective](cluster.ranks)
            yield Way(
                algorithm,
                protocol,
                _latency(cluster, collective, algorithm, place),
                busbw / around,
                _plateau(cluster, collective, algorithm, protocol),
            )


def _busbw(cluster: Cluster, collective: str, algorithm: str, place: int) -> float:
    """Bus bandwidth, GB/s."""
    made = cluster.generation
    many = min(cluster.nodes, 3) - 1
    if algorithm.startswith("nvls"):
        return _summing(cluster, collective)
    count, speed, within = _channels(cluster, tree=algorithm == nccl.TREE)
    plain = count * (within if cluster.nodes == 2 and algorithm == nccl.TREE else speed)
    capped = not cluster.measured
    if algorithm == nccl.RING:
        if place == 0:
            return min(plain * nccl.LL_WIRE, made.ll_most[many])
        if place == 1:
            return min(plain * nccl.RING_LL128_WIRE, count * made.ring_ll128)
        return plain
    rate = plain * nccl.TREE_WIRE
    if capped:
        rate = min(rate, count * made.tree[many])
    if place == 0:
        return min(rate * nccl.TREE_LL_WIRE, made.ll_most[many])
    if place == 1:
        share = nccl.TREE_LL128_INSIDE if cluster.nodes == 1 else nccl.LL128_WIRE
        return min(rate * share, count * made.tree_ll128[many])
    return rate


def _channels(cluster: Cluster, *, tree: bool) -> tuple[int, float, float]:
    """How many channels, how fast each is, and how fast within a machine of two."""
    made, ranks = cluster.generation, cluster.each
    # What starts at an interface need not come back to it: a tree has more of the links.
    room = cluster.inside * (ranks / (ranks - 1) if tree and ranks > 1 and cluster.nodes > 1 else 1)
    if cluster.nodes == 1:
        if cluster.measured or cluster.pcie:
            return 2, cluster.inside / 2, cluster.inside / 2
        speed = next((one for one in made.channel_inside if one <= room), room)
        count = int(room // speed)
        if speed >= (50 if made in (nccl.HOPPER, nccl.BLACKWELL) and count > 4 else 25):
            return 2 * count, speed / 2, speed / 2
        return count, speed, speed
    if ranks == 1:
        room = _NO_LINKS
    if cluster.measured:
        total = min(cluster.interfaces * cluster.interface, room)
        # What a tree over two machines gains is in what was measured.
        return cluster.interfaces, total / cluster.interfaces, total / cluster.interfaces
    speeds = [one for one in made.channel_between if one <= cluster.interface] or [
        cluster.interface
    ]
    if cluster.pcie:
        # One ring visits the GPUs of a machine over what each of them has.
        speed = min(speeds[0] * cluster.interfaces, room) / cluster.interfaces
        return cluster.interfaces, speed, min(2 * speed, room / cluster.interfaces)
    found = [(min(cluster.interfaces, int(room // one)), one) for one in speeds]
    count, speed = max(found, key=lambda each: (each[0] * each[1], each[1]))
    within = max(
        (one for one in made.channel_between if one <= 2 * speed and count * one <= room),
        default=speed,
    )
    return count, speed, max(speed, within)


def _summing(cluster: Cluster, collective: str) -> float:
    """Bus bandwidth where switches sum."""
    made, ranks = cluster.generation, cluster.each
    heads = min(ranks, nccl.MAX_HEADS)
    if heads < 2:
        return 0.0
    # Each head sends to all and, once more, to itself.
    room = cluster.inside / (heads + 1)
    speeds = made.channel_inside if cluster.nodes == 1 else made.channel_between
    speed = next((one for one in speeds if one <= room), room)
    inside = speed * made.nvls * (heads - 1) / heads
    inside *= 2 if collective == "all_reduce" else (ranks - 1) / ranks
    if cluster.summed is not None and collective == "all_reduce":
        inside = cluster.summed / heads
    if cluster.nodes == 1:
        return heads * inside
    # As many interfaces as heads: a head has its own.
    channel = cluster.interface * cluster.interfaces / heads
    between = next((one for one in made.channel_between if one <= channel), channel)
    between *= 2 if cluster.nodes == 2 else 1
    most = made.nvls_tree[min(cluster.nodes, 3) - 1]
    return heads * min(inside, between, most)


def _latency(cluster: Cluster, collective: str, algorithm: str, place: int) -> float:
    kind = "pcie" if cluster.pcie else "nvlink"
    nodes, ranks = cluster.nodes, cluster.ranks
    base = nccl.BASE_US[algorithm][place]
    inside = nccl.HOP_US[kind][algorithm][place] + cluster.slower_inside_us
    # One GPU a machine: nothing hides the network.
    alike = nccl.TREE if cluster.each == 1 and algorithm in (nccl.RING, nccl.TREE) else algorithm
    between = nccl.HOP_US["network"][alike][place] + cluster.slower_between_us
    if algorithm == "nvls":
        return base + inside
    if algorithm == "nvls_tree":
        return base + inside + 2 * int(log2(nodes)) * between
    if algorithm == nccl.TREE:
        return base + 2 * ((cluster.each - 1) * inside + int(log2(nodes)) * between)
    if collective in ("broadcast", "reduce"):
        return base + (inside if nodes == 1 else between)
    rounds = 2 if collective == "all_reduce" else 1
    steps, outer = rounds * (ranks - 1), rounds * (nodes - 1)
    if nodes > 1:
        overhead = nccl.NET_OVERHEAD_US * (3 if place == 2 else 1)
        inside = max(inside, overhead)
    return base + (steps - outer) * inside + outer * between


def _plateau(cluster: Cluster, collective: str, algorithm: str, protocol: str) -> float | None:
    if algorithm != nccl.RING or protocol != "Simple" or collective != "all_reduce":
        return None
    if cluster.nodes == 1:
        return None
    count, _, _ = _channels(cluster, tree=False)
    return 64.0 * count * cluster.ranks


def _messages(cluster: Cluster, collective: str) -> Way:
    """All-to-alls and messages to a neighbour."""
    kind = "pcie" if cluster.pcie else "nvlink"
    latency = nccl.BASE_US["ring"][2] + nccl.HOP_US[kind]["ring"][2] + cluster.slower_inside_us
    times = []
    apart = collective == "sendrecv"
    inner = 1.0 if apart else (cluster.each - 1) / cluster.ranks
    if cluster.each > 1:
        times.append(inner / cluster.inside)
    if cluster.nodes > 1:
        latency = nccl.BASE_US["ring"][2] + nccl.HOP_US["network"]["ring"][2]
        latency += cluster.slower_between_us
        speeds = cluster.generation.channel_between
        one = cluster.interface
        if not cluster.measured:
            one = next((speed for speed in speeds if speed <= one), one)
        mine = one * cluster.interfaces / cluster.each
        outer = 1.0 if apart else (cluster.ranks - cluster.each) / cluster.ranks
        times.append(outer / mine)
    return Way("direct", "Simple", latency, 1 / max(times))


def _tree_share(place: int, size: int) -> float:
    power = (size >> 6).bit_length() - 1
    shares = nccl.TREE_SHARE[place]
    return shares[power] if 0 <= power < len(shares) else 1.0


def switches(found: Sequence[Way], sizes: Sequence[int]) -> list[tuple[int, str]]:
    """Return from which of several sizes on which way is the quickest.

    Args:
        found: The choice.
        sizes: Bytes, the least first.
    """
    names = [(size, fastest(found, size)[1].name) for size in sizes]
    return names[:1] + [after for before, after in pairwise(names) if before[1] != after[1]]
