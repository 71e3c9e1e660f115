"""Random networks, and what collectives take on them: by formulas of their own.

Nothing of allrail is imported here: what `calibration.py` holds calibrations against must not share
code with what is calibrated. Rates are bytes a µs of one rank, latencies µs.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence

FASTEST = 100e3
"""Bytes a µs: of a rank's network interfaces; what is faster is refused."""
Truth = Callable[[str, Sequence[int], int], float]


class Network:
    """A random fabric.

    Attributes:
        sizes: Of its dimensions, the innermost first.
        rates: Of one rank, bytes a µs.
        latencies: Of a hop, µs.
    """

    def __init__(self, draw: random.Random, dimensions: int) -> None:
        self.sizes = [draw.choice([4, 8]), draw.choice([4, 8]), draw.choice([2, 4])][:dimensions]
        self.rates = [draw.uniform(100, 900) * 1e3]
        self.latencies = [draw.uniform(1, 6)]
        for size in self.sizes[:-1]:
            # From a narrow interface to one that is wider than what reaches it.
            rate = self.rates[-1] / size * math.exp(draw.uniform(-1.5, 0.5))
            self.rates.append(min(rate, FASTEST))
            self.latencies.append(self.latencies[-1] * draw.uniform(1.2, 3))


def stages(network: Network, *, ring: bool) -> Truth:
    """Reduce-scatters outwards and all-gathers inwards, in 64 chunks."""

    def time(collective: str, part: Sequence[int], size: int) -> float:
        if collective == "all_to_all":
            return scattered(network, part, size)
        on = [place for place, one in enumerate(part) if one > 1]
        chunk = size / 64
        route: list[tuple[int, float, float]] = []
        held = chunk
        scattering = collective in ("all_reduce", "reduce_scatter")
        gathering = collective in ("all_reduce", "all_gather")
        for place in on:
            ranks = part[place]
            steps = ranks - 1 if ring else math.ceil(math.log2(ranks))
            stage = (
                place,
                held * (ranks - 1) / ranks / network.rates[place],
                steps * network.latencies[place],
            )
            route.append(stage)
            held /= ranks
        way = (route if scattering else []) + (route[::-1] if gathering else [])
        free = dict.fromkeys(on, 0.0)
        events = [(0.0, number, number, 0) for number in range(64)]
        heapq.heapify(events)
        order = itertools.count(64)
        end = 0.0
        while events:
            now, _, number, at = heapq.heappop(events)
            place, busy, latency = way[at]
            free[place] = max(now, free[place]) + busy
            done = free[place] + latency
            if at + 1 < len(way):
                heapq.heappush(events, (done, next(order), number, at + 1))
            end = max(end, done)
        return end

    return time


def in_turn(network: Network) -> Truth:
    """The stages of rings, uncut: a dimension begins when the one before it is done."""

    def time(collective: str, part: Sequence[int], size: int) -> float:
        if collective == "all_to_all":
            return scattered(network, part, size)
        end, blocks = 0.0, float(size)
        for place, ranks in enumerate(part):
            for _ in range(ranks - 1):
                end += network.latencies[place] + blocks / ranks / network.rates[place]
            blocks /= ranks
        return end * (2 if collective == "all_reduce" else 1)

    return time


def scattered(network: Network, part: Sequence[int], size: int) -> float:
    """An all-to-all: what goes to ranks of other groups shares the way out, the slowest counts."""
    ranks, here, ends = math.prod(part), 1, [0.0]
    for place, one in enumerate(part):
        if one > 1:
            # Of the ranks, those outside of this rank's group; within a machine, all in it.
            away = (ranks - here) if place else (one - 1)
            ends.append(size / ranks * away / network.rates[place])
        here *= one
    return max(ends) + max(network.latencies[p] for p, one in enumerate(part) if one > 1)


def ring(network: Network) -> Truth:
    """One ring over all ranks: blocks go from hop to hop, and each cable carries its share."""

    def time(collective: str, part: Sequence[int], size: int) -> float:
        if collective == "all_to_all":
            return scattered(network, part, size)
        ranks = math.prod(part)
        levels = []
        for rank in range(ranks):
            here, after, level = rank, (rank + 1) % ranks, 0
            for place, one in enumerate(part):
                if here % one != after % one:
                    level = place
                here, after = here // one, after // one
            levels.append(level)
        blocks = (2 if collective == "all_reduce" else 1) * (ranks - 1)
        busy = {
            # As many rings as a group has ranks leave it, each over a cable of its own.
            level: size / ranks * blocks / (network.rates[level] * math.prod(part[:level]))
            for level in set(levels)
        }
        walked = sum(network.latencies[levels[hop % ranks]] for hop in range(blocks))
        return max(busy.values()) + walked

    return time


def nccl(network: Network) -> Truth:
    """The faster of a ring and a tree over machines, whose root halves all traffic of two."""
    flat = ring(network)

    def time(collective: str, part: Sequence[int], size: int) -> float:
        found = flat(collective, part, size)
        groups = math.prod(part[1:])
        if collective != "all_reduce" or groups < 2:
            return found
        width = math.inf
        climb = (part[0] - 1) * network.latencies[0]
        inside = part[0]
        for place, one in enumerate(part[1:], 1):
            if one > 1:
                width = min(width, network.rates[place] * inside)
                climb += math.ceil(math.log2(one)) * network.latencies[place]
            inside *= one
        ways = 1 if groups == 2 else 2
        # A chain within a machine carries what goes up and what comes down.
        slowest = max(ways * size / width, 2 * size / network.rates[0])
        return min(found, 2 * climb + slowest)

    return time


TRUTHS: dict[str, Callable[[Network], Truth]] = {
    "stages of halving": lambda network: stages(network, ring=False),
    "stages of rings": lambda network: stages(network, ring=True),
    "stages in turn": in_turn,
    "one ring": ring,
    "nccl's ring and tree": nccl,
}
