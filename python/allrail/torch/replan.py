"""A dimension that has become slow is planned around, on all ranks from the same step on.

Every `LOOK` steps each rank takes from its node's timeline what every dimension carries at its
best. A stage is under way from its launch on, and so while its peer has not come yet or no thread
gets a core: what it sends over that time is never more than the link gives, and often less. So of
each busy time the best stretch counts, and of busy times the upper quartile; no stretch of a slow
link is quick. (Sockets hold a few tens of kilobytes that count as sent: little of `ENOUGH`.) Ranks
gather these numbers, and each feeds the same table to the same `Speeds`, so that all decide alike:

- A rank that computes for long makes its peers look slow, and not itself; a slow link makes all
  look slow that exchange over it. So of the ranks that a dimension joins the fastest counts, and
  of the groups of a dimension the slowest, which all wait for.
- A dimension that gives less than `SLOW` of what was planned with in `LOOKS` looks, one after the
  other, is planned with what it gave. One that gives more than planned with by as much is planned
  with that, but never with more than the fabric says. What it gives in between changes nothing: a
  new plan is made with what was measured, and so is not called into question by the same number.

Then the planner that has made the plans makes them again, with nodes made anew as `auto` does it.
With one dimension there is nothing to plan around, and nothing is looked at. A policy that asks no
bandwidth plans the same again.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import torch

from allrail.runtime.agreement import Agreement
from allrail.runtime.report import ENOUGH, merged, rate
from allrail.torch.switch import Switch, Way

if TYPE_CHECKING:
    from allrail.torch.scheduled import Scheduled

_Span = tuple[int, int, int]
"""When a stage began and ended, ns, and what this rank sent in it, bytes."""

LOOK = 50
"""Steps from one look to the next: some seconds of a job that has use for it."""
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


class Replan(Switch):
    """Schedules a model again when a dimension's speed has changed for good.

    Args:
        way: How gradients are exchanged; it stays.
        sizes: Of the dimensions, the innermost first; two or more.
        fabric: What the fabric says of each, Gb/s.
        plan_with: Has nodes that are made from now on plan with these bandwidths, Gb/s.
        make: As of `Switch`.
        agree: As of `Switch`.
        installed: As of `Switch`.
    """

    def __init__(
        self,
        way: Way,
        sizes: Sequence[int],
        fabric: Sequence[float],
        plan_with: Callable[[Sequence[float]], None],
        make: Callable[[Way, Agreement, Switch], Scheduled],
        agree: Callable[[int], Agreement],
        installed: Callable[[Scheduled], None],
    ) -> None:
        super().__init__(make, agree, installed)
        self._sizes = tuple(sizes)
        self._speeds = Speeds(fabric)
        self._plan_with = plan_with
        self._before = 0
        self._since = 0
        self._begin(way)

    def other(self) -> Scheduled | None:
        """See `Switch.other`."""
        exchange = self._now.exchange
        if exchange.partial or exchange.rounds < self._rounds + LOOK:
            return None
        self._rounds = exchange.rounds
        self._now.synchronize()
        mine, self._since = self._now.measured(len(self._sizes), self._since)
        changed = self._speeds.look(slowest_groups(self._now.gathered(mine), self._sizes))
        if not changed:
            return None
        self._before += self._rounds
        self._rounds = 0
        self._plan_with(self._speeds.planned)
        line = _said(changed, self._before)
        self.said = f"{self.said}; {line}" if self.said else line
        if self._agreement.rank == 0:
            print(f"allrail: {line}", file=sys.stderr)  # noqa: T201 - asked for by `replan`
        return self._begin(self._way)


def table_of(mine: Sequence[float], rank: int, ranks: int) -> torch.Tensor:
    """Return a buffer to gather in, with this rank's row."""
    table = torch.zeros(ranks, len(mine), dtype=torch.float64)
    table[rank] = torch.tensor(mine, dtype=torch.float64)
    return table


def _said(changed: dict[int, tuple[float, float]], step: int) -> str:
    each = ", ".join(
        f"dimension {dimension} gives {now:.3f} Gb/s and was planned with {before:.3f}"
        for dimension, (now, before) in sorted(changed.items())
    )
    return f"planned anew after step {step}: {each} (at their best in {LOOK} steps, {LOOKS} times)"
