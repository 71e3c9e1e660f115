"""From a table to times of every size: pieces of a fixed time and a rate.

    time(bytes) = fixed_k + bytes / rate_k,   between the sizes at which the algorithm switches

NCCL's protocols and algorithms each have such a line, and it takes another one at certain sizes.
The pieces and where they end minimise the sum of squared relative distances and a price for each
piece (the Bayesian information criterion); a piece has three sizes at least and no negative number.
A row that is far off its neighbours' line (a busy machine) is left out and said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

from allrail.measure.calibrate.table import Row

_FEWEST = 3
_MOST_PIECES = 4
_FAR = 0.3
"""A row is left out whose time is further from the line through its neighbours than this."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A line.

    Attributes:
        first: The smallest size that was measured on it, bytes.
        last: The largest.
        fixed_us: The time beside the bytes, µs.
        us_per_byte: The time of a byte, µs.
    """

    first: int
    last: int
    fixed_us: float
    us_per_byte: float

    def time_us(self, size: float) -> float:
        """Return the time of a size.

        Args:
            size: Bytes.
        """
        return self.fixed_us + self.us_per_byte * size


@dataclass(frozen=True, slots=True)
class Fit:
    """Times of all sizes.

    Attributes:
        pieces: By size.
        left_out: Sizes whose rows were far off.
        error: The median relative distance of all rows, those that were left out too.
        unknown: What the rows cannot tell.
    """

    pieces: tuple[Piece, ...]
    left_out: tuple[int, ...]
    error: float
    unknown: tuple[str, ...]

    def time_us(self, size: float) -> float:
        """Return the time of a size: on its piece, between two on the line that joins them.

        Args:
            size: Bytes.
        """
        for one, following in pairwise(self.pieces):
            if size <= one.last:
                break
            if size < following.first:
                low, high = math.log(one.last), math.log(following.first)
                share = (math.log(size) - low) / (high - low)
                return math.exp(
                    (1 - share) * math.log(one.time_us(one.last))
                    + share * math.log(following.time_us(following.first))
                )
        else:
            one = self.pieces[-1]
        return one.time_us(size)

    @property
    def switches(self) -> tuple[int, ...]:
        """Sizes at which another piece begins, bytes."""
        return tuple(piece.first for piece in self.pieces[1:])


def fit(rows: Sequence[Row]) -> Fit:
    """Fit the rows of a table.

    Args:
        rows: By size, one or more.
    """
    points: dict[int, list[float]] = {}
    for row in rows:
        # In place and out of place are two measurements of one thing; jitter lengthens.
        best = row.time_us if row.in_place_us is None else min(row.time_us, row.in_place_us)
        points.setdefault(row.bytes, []).append(best)
    every = [(size, median(times)) for size, times in sorted(points.items())]
    kept, left_out = _without_outliers(every)
    pieces = _pieces(tuple(kept))
    unknown = []
    if len(kept) == 1:
        unknown.append("the fixed time: one size was measured, all of its time is taken as bytes'")
    elif pieces[0].us_per_byte * kept[0][0] > pieces[0].fixed_us * 10:
        unknown.append(f"the fixed time: sizes below {kept[0][0]:,} bytes were not measured")
    if len(kept) > 1 and pieces[-1].fixed_us > pieces[-1].us_per_byte * kept[-1][0]:
        unknown.append(f"the rate: at {kept[-1][0]:,} bytes the fixed time is the larger part")
    made = Fit(pieces, tuple(left_out), 0.0, tuple(unknown))
    off = median(abs(made.time_us(size) / time - 1) for size, time in every)
    return Fit(pieces, tuple(left_out), off, tuple(unknown))


_Points = list[tuple[int, float]]


def _without_outliers(points: _Points) -> tuple[_Points, list[int]]:
    """Without those that are far above what both neighbours say; the ends have one and stay."""
    kept, out = [], []
    for place, (size, time) in enumerate(points):
        if 0 < place < len(points) - 1:
            (low, before), (high, after) = points[place - 1], points[place + 1]
            share = (math.log(size) - math.log(low)) / (math.log(high) - math.log(low))
            between = math.exp((1 - share) * math.log(before) + share * math.log(after))
            # Larger than the next one's: no line has that.
            if time > (1 + _FAR) * between and time > after:
                out.append(size)
                continue
        kept.append((size, time))
    return kept, out


def _pieces(points: tuple[tuple[int, float], ...]) -> tuple[Piece, ...]:
    count = len(points)

    @cache
    def line(start: int, end: int) -> tuple[Piece, float]:
        part = points[start:end]
        fixed, each = _line(part)
        loss = sum(((fixed + each * size) / time - 1) ** 2 for size, time in part)
        return Piece(part[0][0], part[-1][0], fixed, each), loss

    @cache
    def best(end: int, pieces: int) -> tuple[float, tuple[int, ...]]:
        """The least loss of the first `end` points in so many pieces, and where these begin."""
        if pieces == 1:
            return line(0, end)[1], (0,)
        found = [
            (before + line(start, end)[1], (*starts, start))
            for start in range(_FEWEST * (pieces - 1), end - _FEWEST + 1)
            for before, starts in [best(start, pieces - 1)]
        ]
        return min(found, default=(math.inf, (0,)))

    def price(pieces: int) -> float:
        loss = best(count, pieces)[0]
        # A distance of a percent is noise: better than that is not asked for.
        return count * math.log(loss / count + 1e-4) + 3 * pieces * math.log(count)

    most = max(1, min(_MOST_PIECES, count // _FEWEST))
    chosen = min(range(1, most + 1), key=price)
    starts = [*best(count, chosen)[1], count]
    return tuple(line(*pair)[0] for pair in pairwise(starts))


def _line(part: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Least squares of relative distances, neither number negative."""
    if len(part) == 1:
        [(size, time)] = part
        return 0.0, time / size
    # Of 1 = fixed / time + each * size / time.
    a = sum(1 / time**2 for _, time in part)
    b = sum(size / time**2 for size, time in part)
    c = sum((size / time) ** 2 for size, time in part)
    d = sum(1 / time for _, time in part)
    e = sum(size / time for size, time in part)
    whole = a * c - b * b
    if whole > 0:
        fixed, each = (d * c - b * e) / whole, (a * e - b * d) / whole
        if fixed >= 0 and each >= 0:
            return fixed, each
    alone = (d / a, 0.0), (0.0, e / c)
    return min(alone, key=lambda one: sum(((one[0] + one[1] * s) / t - 1) ** 2 for s, t in part))
