"""How long communication libraries' own algorithms take over machines: one ring or tree over all.

    ring   t = around(n)·S / min(B_d) + steps · mean latency of a hop
    tree   t = share(k)·S / min(B_d)  + 2·((m − 1)·latency_0 + Σ log2(P_d)·latency_d)
    message t = max(latency_d + S / rate_d)

n ranks lie on dimensions of P_d; B_d is what leaves one group of the dimensions inside of d: its
ranks times the rate of each. A ring over all ranks crosses each dimension's links at once, so its
narrowest one counts, unlike in stages by dimension. A tree (all-reduce alone) sends the buffer up
and down: over two machines each way is one link's direction, share = 1; over more, 2; within a
machine of m ranks it is a chain (NCCL's `src/graph/tuning.cc`). NCCL takes the fastest. A ring's
steps cross the network where it leaves a machine: of n hops, as many as there are machines (there,
nInterSteps). Rates and latencies are those reached, per rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from allrail.calibrate.table import AROUND

ALGORITHMS = ("ring", "tree")
_MESSAGES = ("sendrecv",)
_DIRECT = ("all_to_all",)


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
        algorithms: Which may run; the fastest counts. Within a machine it is the ring.
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
    width = min(inside[place] * rates[place] for place in on)
    machines = 1 if between is None else math.prod(part[between:])
    found = []
    if "ring" in algorithms or collective != "all_reduce" or machines == 1:
        laps = 2 if collective == "all_reduce" else 1
        hops = [ranks // inside[place] * (1 - 1 / part[place]) for place in on]
        hop = sum(h * latencies[p] for h, p in zip(hops, on, strict=True)) / sum(hops)
        found.append(AROUND[collective](ranks) * size / width + laps * (ranks - 1) * hop)
    if "tree" in algorithms and collective == "all_reduce" and machines > 1:
        share = 1.0 if machines == 2 else 2.0
        climb = sum(
            latencies[place]
            * (part[place] - 1 if place < (between or 0) else math.ceil(math.log2(part[place])))
            for place in on
        )
        found.append(share * size / width + 2 * climb)
    return min(found)
