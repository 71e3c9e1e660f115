"""Spans that overlap on one dimension, laid out side by side.

In `dims` a dimension sends for one stage at a time; in `links` several stages share it, and a trace
viewer draws overlapping slices of one track wrongly.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol


class Span(Protocol):
    """Whatever starts and ends."""

    @property
    def start_us(self) -> float:
        """When it starts, µs."""

    @property
    def end_us(self) -> float:
        """When it ends, µs."""


def assign_lanes(spans: Sequence[Span]) -> tuple[list[int], int]:
    """The lane of each span, so that no two spans of a lane overlap, and how many lanes there are.

    Args:
        spans: Of one dimension, in any order.
    """
    lanes = [0] * len(spans)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    count = 0
    for i in sorted(range(len(spans)), key=lambda i: (spans[i].start_us, spans[i].end_us, i)):
        span = spans[i]
        while busy and busy[0][0] <= span.start_us + 1e-9:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        lanes[i] = lane
        heapq.heappush(busy, (span.end_us, lane))
    return lanes, count
