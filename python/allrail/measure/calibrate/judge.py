"""The verdict on a measured table: ranges of sizes, peaks and dips, causes.

Every range of sizes has its own verdict; a table is as expected where its large sizes are, small
ones are not three times as slow, and bandwidth grows with size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from allrail.measure.calibrate.causes import SLOW_START, Cause, causes
from allrail.measure.calibrate.expected import Expected
from allrail.measure.calibrate.nccl import Cluster
from allrail.measure.calibrate.shape import (
    AS_EXPECTED,
    SMALL,
    Fall,
    Range,
    falls,
    large_share,
    ranges,
    seen,
)

_DEEP = 0.25
"""Of the peak's bandwidth: a fall by more, at two sizes or more, is no algorithm that switches."""


@dataclass(frozen=True)
class Judgement:
    """What a table shows.

    Attributes:
        large: Share of the expected bandwidth at the large sizes; None without a measured size.
        healthy: Whether nothing calls for a cause.
        ranges: Verdict of each range of sizes.
        falls: Peaks and dips.
        causes: What may be the matter, the best explanation first.
    """

    large: float | None
    healthy: bool
    ranges: list[Range]
    falls: list[Fall]
    causes: list[Cause]


def judge(
    rows: Sequence[Expected], cluster: Cluster, collective: str, *, several: bool | None
) -> Judgement:
    """Return the verdict on a table.

    Args:
        rows: By size, measured.
        cluster: What NCCL sees of its ranks.
        collective: As of `AROUND`.
        several: Whether ranks are on several machines; None where nothing says, for both.
    """
    measured = seen(rows)
    large = large_share(rows)
    if large is None:
        return Judgement(large=None, healthy=True, ranges=[], falls=[], causes=[])
    fell = falls(rows)
    erratic = _erratic(measured, fell)
    small = [row.share or 0.0 for row in measured if row.bytes <= SMALL]
    slow = bool(small) and median(small) < SLOW_START
    healthy = large >= AS_EXPECTED and not erratic and not slow
    found = []
    if not healthy:
        found = causes(rows, cluster, collective, several=several, erratic=erratic)
        if large >= AS_EXPECTED:
            # Large sizes are as expected: nothing that a rate explains is the matter.
            names = ("small messages take", "congestion", "the algorithm changes")
            found = [one for one in found if one.what.startswith(names)]
    return Judgement(large, healthy, ranges(rows), fell, found)


def _erratic(measured: Sequence[Expected], fell: Sequence[Fall]) -> list[Fall]:
    """The deep falls, where they are of two sizes or more."""
    deep = [one for one in fell if one.depth > _DEEP]
    inside = [row for row in measured for one in deep if one.first <= row.bytes <= one.last]
    return deep if len(inside) > 1 else []
