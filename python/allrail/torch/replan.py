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

Then the planner that has made the plans makes them again, with nodes made anew as `tune.py` does
it; but nothing is tried. With one dimension there is nothing to plan around, and nothing is looked
at. A policy that asks no bandwidth plans the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allrail.torch.scheduled import Scheduled
from allrail.torch.speeds import LOOKS, Speeds, slowest_groups
from allrail.torch.switch import Maker, Switch
from allrail.torch.ways import Way

LOOK = 50
"""Steps from one look to the next: some seconds of a job that has use for it."""


class Replan(Switch):
    """Schedules a model again when a dimension's speed has changed for good.

    Args:
        way: How gradients are exchanged; it stays.
        sizes: Of the dimensions, the innermost first; two or more.
        fabric: What the fabric says of each, Gb/s.
        plan_with: Has nodes that are made from now on plan with these bandwidths, Gb/s.
        maker: As of `Switch`.
    """

    def __init__(
        self,
        way: Way,
        sizes: Sequence[int],
        fabric: Sequence[float],
        plan_with: Callable[[Sequence[float]], None],
        maker: Maker,
    ) -> None:
        super().__init__(maker)
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
        found, self._since = self._now.speeds(len(self._sizes), self._since)
        changed = self._speeds.look(slowest_groups(found, self._sizes))
        if not changed:
            return None
        self._before += self._rounds
        self._rounds = 0
        self._plan_with(self._speeds.planned)
        self._say(_said(changed, self._before))
        return self._begin(self._way)


def _said(changed: dict[int, tuple[float, float]], step: int) -> str:
    each = ", ".join(
        f"dimension {dimension} gives {now:.3f} Gb/s and was planned with {before:.3f}"
        for dimension, (now, before) in sorted(changed.items())
    )
    return f"planned anew after step {step}: {each} (at their best in {LOOK} steps, {LOOKS} times)"
