"""The shape of a measured table beside the expected one: ranges of sizes, peaks and dips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from allrail.measure.calibrate.expected import Expected

HEALTHY = (22, 25, 0.86, 1.12)
"""Of healthy posted tables, how many of how many reach between two shares of the expected bandwidth
at large sizes: `allrail reproduce verdicts` on 40 posted outputs. The three others reach 0.42 to
0.59: 1,440 GB200s, a bridge of two GPUs, an all-to-all over PCIe."""
AS_EXPECTED = 0.85
"""Of the expected bandwidth. Chosen with half of the posted tables in view: of these, healthy ones
reach 0.86 (TCP offload between machines) to 1.06 at large sizes."""
MUCH_LESS = 0.7
SMALL = 1 << 16
"""Bytes: up to here the fixed time is all that a table shows."""
LARGE = 4
"""Of the largest size, sizes from one such part on are large."""
_FALL = 0.92
"""Of the best bandwidth so far: less is a fall. Repeated runs of posted tables differ by 5 %."""


@dataclass(frozen=True, slots=True)
class Range:
    """Neighbouring sizes with the same verdict.

    Attributes:
        first: Smallest size, bytes.
        last: Largest size, bytes.
        least: Smallest share of the expected bandwidth among them.
        most: Largest share.
        verdict: `as expected`, `more`, `less` or `much less`.
    """

    first: int
    last: int
    least: float
    most: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Fall:
    """Sizes whose bandwidth is below that of smaller ones, where it should grow.

    Attributes:
        peak: Size of the peak before them, bytes.
        peak_busbw: Bus bandwidth there, GB/s.
        first: First size of the fall, bytes.
        last: Last size, bytes.
        least_busbw: Lowest bus bandwidth among them, GB/s.
        recovers: Whether a larger size is as fast as the peak again.
    """

    peak: int
    peak_busbw: float
    first: int
    last: int
    least_busbw: float
    recovers: bool

    @property
    def depth(self) -> float:
        """The part of the peak's bandwidth that is lost."""
        return 1 - self.least_busbw / self.peak_busbw

    @property
    def told(self) -> str:
        """It in words."""
        where = size_text(self.first)
        if self.last != self.first:
            where += f" to {size_text(self.last)}"
        end = ", and recovers after" if self.recovers else ", and does not recover"
        kind = "dip" if self.recovers else "hump"
        return (
            f"{kind}: bandwidth peaks at {size_text(self.peak)} ({self.peak_busbw:.4g} GB/s),"
            f" falls to {self.least_busbw:.4g} at {where}{end}"
        )


def seen(rows: Sequence[Expected]) -> list[Expected]:
    """Return the rows that were measured.

    Args:
        rows: By size.
    """
    return [row for row in rows if row.measured_us is not None]


def ranges(rows: Sequence[Expected]) -> list[Range]:
    """Return the verdict of every range of sizes.

    A single size that differs from its neighbours is noise: the median of three counts.

    Args:
        rows: By size, measured.
    """
    measured = seen(rows)
    shares = [row.share or 0.0 for row in measured]
    found: list[tuple[str, list[int]]] = []
    for place in range(len(measured)):
        around = shares[max(0, place - 1) : place + 2]
        smooth = median(around) if len(around) == 3 else shares[place]
        word = verdict(smooth)
        if found and found[-1][0] == word:
            found[-1][1].append(place)
        else:
            found.append((word, [place]))
    return [
        Range(
            measured[places[0]].bytes,
            measured[places[-1]].bytes,
            min(shares[one] for one in places),
            max(shares[one] for one in places),
            word,
        )
        for word, places in found
    ]


def verdict(share: float) -> str:
    """Return what a share of the expected bandwidth is called.

    Args:
        share: Measured over expected.
    """
    if share > 1 / AS_EXPECTED:
        return "more"
    if share >= AS_EXPECTED:
        return "as expected"
    return "less" if share >= MUCH_LESS else "much less"


def large_share(rows: Sequence[Expected], *, start: int | None = None) -> float | None:
    """Return the median share of the large sizes: at most three, from a quarter of the largest on.

    Args:
        rows: By size.
        start: Take every size from so many bytes on instead, and the least of their shares.
    """
    measured = seen(rows)
    if start is not None:
        return min((row.share or 0.0 for row in measured if row.bytes >= start), default=None)
    if not measured:
        return None
    # People leave rows out: the last three may be anything.
    top = [row for row in measured[-3:] if row.bytes * LARGE >= measured[-1].bytes]
    return median(row.share or 0.0 for row in top)


def falls(rows: Sequence[Expected]) -> list[Fall]:
    """Return where bandwidth falls although it should grow.

    Args:
        rows: By size, measured.
    """
    measured = [row for row in seen(rows) if row.bytes > SMALL]
    found: list[Fall] = []
    peak: Expected | None = None
    below: list[Expected] = []

    def close(*, recovers: bool) -> None:
        if peak is not None and below:
            least = min(row.measured_busbw or 0.0 for row in below)
            found.append(
                Fall(
                    peak.bytes,
                    peak.measured_busbw or 0.0,
                    below[0].bytes,
                    below[-1].bytes,
                    least,
                    recovers,
                )
            )
        below.clear()

    for row in measured:
        rate = row.measured_busbw or 0.0
        if (
            peak is not None
            and rate < _FALL * (peak.measured_busbw or 0.0)
            and (row.expected_busbw >= _FALL * peak.expected_busbw)
        ):
            below.append(row)
            continue
        if below:
            close(recovers=True)
        if peak is None or rate >= (peak.measured_busbw or 0.0):
            peak = row
    close(recovers=False)
    return found


def size_text(count: int) -> str:
    """Return bytes as people say them.

    Args:
        count: Bytes.
    """
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} B"
