"""A record, step by step: how long, what was waited for, what computing took.

A step reaches from the end of one backward pass to that of the next. What of it is not waited is
computed, and is shared out: until the first module is entered it is *outside* the model, then the
forward pass of what was entered last, then the backward pass of the gradient that is ready next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from allrail.runtime.record import Mark, Record

OUTSIDE = -1
"""In place of a tensor."""

T = TypeVar("T")


@dataclass(slots=True)
class Step:
    """One step; times in ns.

    Attributes:
        start: When it began.
        end: When it was over.
        waits: By tensor, how long the caller waited for it.
        forward: By tensor, how long was computed after its module was entered.
        backward: By tensor, how long was computed until its gradient was ready.
    """

    start: int
    end: int
    waits: dict[int, int] = field(default_factory=dict)
    forward: dict[int, int] = field(default_factory=dict)
    backward: dict[int, int] = field(default_factory=dict)

    @property
    def waited(self) -> int:
        """All that was waited."""
        return sum(self.waits.values())

    @property
    def computed(self) -> int:
        """All that was not."""
        return self.end - self.start - self.waited


def steps_of(record: Record) -> list[Step]:
    """Return the steps that were seen whole, but for the first two, which set things up.

    Args:
        record: Of one rank.
    """
    marks = sorted(record["marks"], key=lambda mark: mark.end)
    ends = [mark.end for mark in marks if mark.kind == "round"][1:]
    steps = [Step(start, end) for start, end in pairwise(ends)]
    each: list[list[Mark]] = [[] for _ in steps]
    for mark in marks:
        place = bisect_left(ends, mark.end) - 1
        if 0 <= place < len(steps):
            each[place].append(mark)
    for step, seen in zip(steps, each, strict=True):
        _share_out(step, seen)
    return steps


def middle_half(found: Iterable[T], *, key: Callable[[T], float]) -> list[T]:
    """Return the middle half of what was measured, of which means are taken.

    Means add up; medians do not where now one part is held up, now another.

    Args:
        found: Measurements.
        key: What they are ordered by.
    """
    ordered = sorted(found, key=key)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut]


def _share_out(step: Step, marks: list[Mark]) -> None:
    waits = [mark for mark in marks if mark.kind == "wait"]
    for wait in waits:
        _add(step.waits, wait.tensor, wait.end - max(wait.start, step.start))
    # A module's entry begins what follows it; a gradient that is ready ends what came before.
    points = [
        (mark.end if mark.kind == "forward" else mark.start, mark)
        for mark in marks
        if mark.kind != "wait"
    ]
    points.sort(key=lambda point: point[0])
    now, running = step.start, OUTSIDE
    for at, point in points:
        passed = max(0, at - now)
        passed -= sum(max(0, min(wait.end, at) - max(wait.start, now)) for wait in waits)
        if point.kind == "submit":
            _add(step.backward, point.tensor, passed)
        elif running == OUTSIDE:
            _add(step.backward, OUTSIDE, passed)
        else:
            _add(step.forward, running, passed)
        now = max(now, at)
        running = point.tensor if point.kind == "enter" else OUTSIDE


def _add(to: dict[int, int], tensor: int, time: int) -> None:
    to[tensor] = to.get(tensor, 0) + time
