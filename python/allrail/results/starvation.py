"""When a dimension starves: it sends nothing, and the chunks that still need it are elsewhere.

Of every dimension, from the timeline of a result:

    starved = alive - present

`alive` is from the begin of each collective to the begin of the last of its stages here: after that
nothing is left to send. `present` is where a chunk is here: it came when its stage before was over,
or its collective began; it waits, is sent, and is on its way until its last byte has arrived. So
a dimension that idles beside a chunk (a queue that keeps to a plan, a limit on stages at once, the
latency of a step) does not starve. Themis (ISCA'22) calls starved what the baseline does to the
dimensions behind its narrowest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

Span = tuple[float, float]
"""From when to when, µs."""


class Sent(Protocol):
    """A stage of a timeline (`results.result.Stage`)."""

    @property
    def collective(self) -> int:
        """Its collective, by number."""

    @property
    def chunk(self) -> int:
        """Its chunk."""

    @property
    def stage(self) -> int:
        """Its place among the chunk's stages."""

    @property
    def dimension(self) -> int:
        """Where it is sent."""

    @property
    def start_us(self) -> float:
        """When its first byte leaves, µs."""

    @property
    def finish_us(self) -> float:
        """When its last byte has arrived, µs."""


def starved(timeline: Sequence[Sent], begins: Sequence[float]) -> dict[int, list[Span]]:
    """Return when each dimension starves, in order; without one that never has a stage.

    Args:
        timeline: Every stage of every chunk.
        begins: When each collective begins, µs.
    """
    chunks: dict[tuple[int, int], list[Sent]] = {}
    for stage in timeline:
        chunks.setdefault((stage.collective, stage.chunk), []).append(stage)
    present: dict[int, list[Span]] = {}
    last: dict[tuple[int, int], float] = {}
    for (collective, _), stages in chunks.items():
        come = _begin(begins, collective)
        for stage in sorted(stages, key=lambda one: (one.start_us, one.stage)):
            here = stage.dimension
            present.setdefault(here, []).append((come, stage.finish_us))
            place = (here, collective)
            last[place] = max(last.get(place, 0.0), stage.start_us)
            come = stage.finish_us
    alive: dict[int, list[Span]] = {}
    for (here, collective), until in last.items():
        alive.setdefault(here, []).append((_begin(begins, collective), until))
    return {here: without(alive[here], present[here]) for here in sorted(alive)}


def length(spans: Iterable[Span]) -> float:
    """Return how long spans last that do not overlap, µs.

    Args:
        spans: From when to when.
    """
    return sum(until - since for since, until in spans)


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the times of some spans that are in no other, in order.

    Args:
        spans: From when to when; they may overlap.
        others: What is taken out.
    """
    left: list[Span] = []
    taken = _joined(others)
    first = 0
    for since, until in _joined(spans):
        while first < len(taken) and taken[first][1] <= since:
            first += 1
        at = since
        for low, high in taken[first:]:
            if low >= until:
                break
            if low > at:
                left.append((at, low))
            at = max(at, high)
        if at < until:
            left.append((at, until))
    return left


def _joined(spans: Iterable[Span]) -> list[Span]:
    """They, in order, those that touch as one; without empty ones."""
    joined: list[Span] = []
    for since, until in sorted(spans):
        if until <= since:
            continue
        if joined and since <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], until))
        else:
            joined.append((since, until))
    return joined


def _begin(begins: Sequence[float], collective: int) -> float:
    return begins[collective] if collective < len(begins) else 0.0
