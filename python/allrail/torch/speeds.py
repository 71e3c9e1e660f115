"""What each dimension carries, measured on a running job, and when plans are to change by it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

import torch

from allrail.runtime.report import ENOUGH, merged, rate

_Span = tuple[int, int, int]
"""When a stage began and ended, ns, and what this rank sent in it, bytes."""

LOOKS = 2
"""Looks that agree before plans are made anew."""
SLOW = 0.6
"""Of what was planned with. Headers, latency and a busy host take a tenth or two of a link that is
well; at 0.6 of two alike dimensions a new plan is worth more than connecting anew costs."""
_SPANS = 4
"""Busy times that a quartile is taken of, at least."""


def measured(timeline: dict[str, Any], dimensions: int, since: int) -> list[float]:
    """Return what each dimension carries at its best, Gb/s; 0 if too little was seen.

    Args:
        timeline: Of a node.
        dimensions: How many there are.
        since: Stages that began before are left out, ns.
    """
    spans: list[list[_Span]] = [[] for _ in range(dimensions)]
    for stage in timeline["stages"]:
        if stage["end"] is not None and stage["start"] >= since:
            spans[stage["dimension"]].append((stage["start"], stage["end"], stage["bytes"]))
    return [_at_its_best(each) for each in spans]


def _at_its_best(spans: Sequence[_Span]) -> float:
    """Return the upper quartile of what busy times carry in their best stretch, Gb/s."""
    ordered = sorted(spans)
    rates, first = [], 0
    for start, end, sent in merged(ordered):
        last = first
        while last < len(ordered) and start <= ordered[last][0] <= end:
            last += 1
        if sent >= ENOUGH:
            rates.append(_best_stretch(ordered[first:last]))
        first = last
    return quantiles(rates, n=4, method="inclusive")[2] if len(rates) >= _SPANS else 0.0


def _best_stretch(ordered: Sequence[_Span]) -> float:
    """Return the most that a stretch of a busy time carries, Gb/s.

    What began and ended within a stretch was carried in it. For each end that is the shortest
    stretch with enough bytes.

    Args:
        ordered: Its spans, by their starts.
    """
    begins = [start for start, _, _ in ordered]
    best = rate(begins[0], max(end for _, end, _ in ordered), sum(sent for *_, sent in ordered))
    for _, until, _ in ordered:
        carried = 0
        for at in range(bisect_left(begins, until) - 1, -1, -1):
            start, end, sent = ordered[at]
            carried += sent if end <= until else 0
            if carried >= ENOUGH:
                best = max(best, rate(start, until, carried))
                break
    return best


def slowest_groups(table: Sequence[Sequence[float]], sizes: Sequence[int]) -> list[float | None]:
    """Return what each dimension gives: of its slowest group, by the fastest rank in it.

    Args:
        table: Of each rank, what `measured` returned.
        sizes: Of the dimensions, the innermost first.
    """
    found: list[float | None] = []
    stride = 1
    for dimension, size in enumerate(sizes):
        groups: dict[int, float] = {}
        for rank, row in enumerate(table):
            group = rank - (rank // stride % size) * stride
            groups[group] = max(groups.get(group, 0.0), row[dimension])
        slowest = min(groups.values())
        found.append(slowest or None)
        stride *= size
    return found


class Speeds:
    """What dimensions are planned with, and when that is to change; no clock, no I/O.

    Args:
        fabric: What the fabric says of each dimension, Gb/s.

    Attributes:
        planned: What plans are made with, Gb/s.
    """

    def __init__(self, fabric: Sequence[float]) -> None:
        self.planned = list(fabric)
        self._fabric = tuple(fabric)
        self._seen: list[list[float]] = [[] for _ in fabric]

    def look(self, gives: Sequence[float | None]) -> dict[int, tuple[float, float]]:
        """Take a look in; return by dimension what it gives and what it was planned with.

        Args:
            gives: Of each dimension, Gb/s; None says nothing, for or against.
        """
        changed: dict[int, tuple[float, float]] = {}
        if len(self.planned) == 1:
            return changed
        for dimension, given in enumerate(gives):
            if given is None:
                continue
            planned, seen = self.planned[dimension], self._seen[dimension]
            one = min(given, self._fabric[dimension])
            if SLOW * planned <= one <= planned / SLOW:
                seen.clear()
                continue
            if seen and (seen[-1] < planned) != (one < planned):
                seen.clear()
            seen.append(one)
            if len(seen) == LOOKS:
                changed[dimension] = median(seen), planned
        for dimension, (now, _) in changed.items():
            self.planned[dimension] = now
            self._seen[dimension].clear()
        return changed


def table_of(mine: Sequence[float], rank: int, ranks: int) -> torch.Tensor:
    """Return a buffer to gather in, with this rank's row."""
    table = torch.zeros(ranks, len(mine), dtype=torch.float64)
    table[rank] = torch.tensor(mine, dtype=torch.float64)
    return table
