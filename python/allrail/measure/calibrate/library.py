"""How long communication libraries' own algorithms take over machines: one ring or tree over all.

    ring   t = around(n)·S / min(B_d) + steps · mean latency of a hop
    tree   t = max(share·S / min(B_d), 2·S / B_0) + 2·((m − 1)·latency_0 + Σ log2(P_d)·latency_d)
    turns  t = laps·Σ (steps(P_d)·latency_d + (1 − 1/P_d)·S / B_d)
    message t = max(latency_d + S / rate_d)

n ranks lie on dimensions of P_d; B_d is what leaves one group of the dimensions inside of d: its
ranks times the rate of each. A ring over all ranks crosses each dimension's links at once, so its
narrowest one counts, unlike in stages by dimension. A tree (all-reduce alone) sends the buffer up
and down: over two machines each way is one link's direction, share = 1; over more, 2; within a
machine of m ranks it is a chain, whose links of B_0 carry both ways (NCCL's `src/graph/tuning.cc`,
which halves a tree's bandwidth). NCCL takes the fastest. A ring's steps cross the network where it
leaves a machine: of n hops, as many as there are machines (there, nInterSteps). *Turns* are
hierarchical collectives as MPI's libraries and Horovod have them: a stage of each dimension, the
next one after it, laps = 2 for an all-reduce; in rings of P_d − 1 steps or by halving in log2(P_d).
Rates and latencies are those reached, per rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from allrail.measure.calibrate.table import AROUND

ALGORITHMS = ("ring", "tree")
TURNS = ("turns_of_rings", "turns_of_halving")
_MESSAGES = ("sendrecv",)
_DIRECT = ("all_to_all",)
POINT = (*_DIRECT, *_MESSAGES)
"""Collectives that send messages to other ranks alone."""
_IN_TURNS = ("all_reduce", "all_gather", "reduce_scatter")


def time_us(
    collective: str,
    part: Sequence[int],
    rates: Sequence[float],
    latencies: Sequence[float],
    size: int,
    *,
    between: int | None,
    algorithms: Sequence[str] = ALGORITHMS,
) -> float:
    """Return the time of a collective as a library runs it.

    Args:
        collective: As of `AROUND`.
        part: How many of its ranks differ on each dimension, innermost first.
        rates: Of each dimension, bytes a microsecond of one rank.
        latencies: Of each dimension, µs a step.
        size: Bytes, as nccl-tests count them.
        between: The first dimension that joins machines; None for one machine.
        algorithms: Which may run, of `ALGORITHMS` and `TURNS`; the fastest counts. Within a machine
            the tree is the ring.
    """
    on = [place for place, one in enumerate(part) if one > 1]
    ranks = math.prod(part)
    if collective in _MESSAGES:
        return max(latencies[place] + size / rates[place] for place in on)
    inside = [math.prod(part[:place]) for place in range(len(part))]
    if collective in _DIRECT:
        # Of what a rank sends, the share for ranks of other groups crosses each dimension.
        away = [
            size * ((part[0] - 1) / ranks if place == 0 else 1 - inside[place] / ranks)
            for place in on
        ]
        sent = max(one / rates[place] for one, place in zip(away, on, strict=True))
        return sent + max(latencies[place] for place in on)
    if set(algorithms) & set(TURNS) and collective in _IN_TURNS:
        return min(
            _turns(name, collective, part, rates, latencies, size)
            for name in algorithms
            if name in TURNS
        )
    width = min(inside[place] * rates[place] for place in on)
    machines = 1 if between is None else math.prod(part[between:])
    found = []
    trees = "tree" in algorithms and collective == "all_reduce" and machines > 1
    if "ring" in algorithms or not trees:
        # Of n hops, those that leave a group of each dimension, and of none outside of it.
        leave = [ranks // inside[place] for place in on]
        hops = [one - other for one, other in zip(leave, [*leave[1:], 0], strict=True)]
        hop = sum(h * latencies[p] for h, p in zip(hops, on, strict=True)) / sum(hops)
        steps = _laps(collective) * (ranks - 1)
        found.append(AROUND[collective](ranks) * size / width + steps * hop)
    if trees:
        share = 1.0 if machines == 2 else 2.0
        climb = sum(
            latencies[place]
            * (part[place] - 1 if place < (between or 0) else math.ceil(math.log2(part[place])))
            for place in on
        )
        links = min((rates[place] for place in on if place < (between or 0)), default=math.inf)
        found.append(max(share * size / width, 2 * size / links) + 2 * climb)
    return min(found)


def _laps(collective: str) -> int:
    """How often data goes round."""
    return 2 if collective == "all_reduce" else 1


def _turns(
    name: str,
    collective: str,
    part: Sequence[int],
    rates: Sequence[float],
    latencies: Sequence[float],
    size: float,
) -> float:
    """Stages of one dimension after the other."""
    time, held = 0.0, size
    for ranks, rate, latency in zip(part, rates, latencies, strict=True):
        if ranks > 1:
            steps = ranks - 1 if name == TURNS[0] else math.ceil(math.log2(ranks))
            time += steps * latency + held * (1 - 1 / ranks) / rate
            held /= ranks
    return _laps(collective) * time
