"""Medians with their intervals, and a figure of the table: asked, seen, and whether it holds."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A median, and where it lies with 95 % confidence."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """From order statistics, which ask nothing of how the values are spread."""
        ordered, count = sorted(values), len(values)
        reach = 0.98 * math.sqrt(count)
        low = max(0, math.floor(count / 2 - reach))
        high = min(count - 1, math.ceil(count / 2 + reach))
        return cls(statistics.median(ordered), ordered[low], ordered[high])

    @classmethod
    def of_ratio(cls, blocks: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Interval:
        """The first's median over the second's; whole blocks are drawn again, as they ran together.

        Args:
            blocks: The values of both in each block.
        """

        def ratio(drawn: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
            tops, bottoms = ([one for pair in drawn for one in pair[i]] for i in (0, 1))
            return statistics.median(tops) / statistics.median(bottoms)

        chance = random.Random(1)
        drawn = sorted(ratio(chance.choices(blocks, k=len(blocks))) for _ in range(_RESAMPLES))
        tail = round(0.025 * _RESAMPLES)
        return cls(ratio(blocks), drawn[tail], drawn[-1 - tail])

    def times(self, factor: float) -> Interval:
        """In another unit."""
        return Interval(self.median * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        case: What was run.
        what: What is counted, with its unit.
        seen: What came out.
        least: It must not be less; with `beyond_interval`, not even at the interval's upper end.
        most: It must not be more.
        predicted: What the simulator said before, in ms.
        measured: What it is to be compared with, in ms.
        note: What else there is to say.
    """

    case: str
    what: str
    seen: Interval
    least: float | None = None
    most: float | None = None
    beyond_interval: bool = False
    predicted: float | None = None
    measured: float | None = None
    note: str = ""

    def asked(self) -> str:
        """As a word of the table."""
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in (("≥", self.least), ("≤", self.most))
            if bound is not None
        ]
        return ", ".join(bounds)

    def holds(self) -> bool | None:
        """Whether it is as asked; None where nothing is."""
        if self.least is None and self.most is None:
            return None
        seen = self.seen.high if self.beyond_interval else self.seen.median
        return (self.least is None or seen >= self.least) and (
            self.most is None or self.seen.median <= self.most
        )


_WIDTHS = (26, 34, 8, 17, 11, 4, 9, 9, 6)
_HEAD = ("case", "what", "seen", "95 %", "asked", "", "predicted", "measured", "p/m")


def head() -> str:
    """The first line of the table."""
    return _line(_HEAD)


def line(figure: Figure) -> str:
    """A figure as a line of the table."""
    seen, holds = figure.seen, figure.holds()
    cells = [
        figure.case,
        figure.what,
        _short(seen.median),
        f"{_short(seen.low)}-{_short(seen.high)}",
        figure.asked(),
        "" if holds is None else ("in" if holds else "OUT"),
    ]
    if figure.predicted is not None and figure.measured is not None:
        ratio = figure.predicted / figure.measured
        cells += [f"{figure.predicted:.1f}", f"{figure.measured:.1f}", f"{ratio:.3f}"]
    return _line(cells) + (f"  {figure.note}" if figure.note else "")


def accuracy(figures: Sequence[Figure]) -> list[Figure]:
    """How far predictions are off: the worst, and the geometric mean of max(p/m, m/p)."""
    off = [
        max(one.predicted / one.measured, one.measured / one.predicted)
        for one in figures
        if one.predicted and one.measured
    ]
    if not off:
        return []
    worst, mean = max(off), math.exp(statistics.fmean(map(math.log, off)))
    same = [Interval(value, value, value) for value in (worst, mean)]
    return [
        Figure("all predictions", "worst max(p/m, m/p)", same[0], most=1.10),
        Figure("all predictions", "geometric mean of max(p/m, m/p)", same[1], most=1.05),
    ]


def _short(value: float) -> str:
    return f"{value:.4g}"


def _line(cells: Sequence[str]) -> str:
    padded = [
        f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}"
        for i, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=False))
    ]
    return " ".join(padded).rstrip()
