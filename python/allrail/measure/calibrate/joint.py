"""Rates and latencies of all dimensions at once, from the rows of all tables.

What is minimised is the sum over rows of a robust loss of log(predicted / measured), of a forward
model: the simulator under the default schedule, or a library's own algorithms (`library.py`). Sizes
whose time is nearly all fixed, and sizes whose time is nearly all bytes (by `fit.py`), count in
full, those between a tenth: a dimension has one latency and one rate, and no form between them.
Rows far off their neighbours do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from allrail.measure.calibrate.fit import fit
from allrail.measure.calibrate.table import AROUND, Row, Table

Forward = Callable[[Table, Sequence[int], Sequence[float], Sequence[float], int], float]
"""Of a table, its part, rates (bytes a µs), latencies (µs) and a size: µs."""

_BETWEEN = 0.1
_NEARLY_FIXED, _NEARLY_BYTES = 8.0, 25.0
"""Times the other part of its time: then a size's is nearly all fixed, or all bytes."""
_SOFT = 0.1
"""From a tenth on, a row's distance counts less than in full squares."""
_ENOUGH = 0.02
"""Loss of a row that is a hundredth or two off: so much more tells no rate from another."""
_MOST_ROWS = 14
"""Of a table; of more, every second or third row and the last ones count."""
_Ends = tuple[list[float], list[float]]
_LATENCIES = (1e-4, 1e5)
_RATES = (1e-3, 1e8)


@dataclass(frozen=True, slots=True)
class Joint:
    """What was found.

    Attributes:
        rates: Of each dimension, bytes a microsecond (MB/s).
        latencies: Of each dimension, µs a step.
        loss: Mean loss of a row.
        alike: The same where every row of a table counts as much.
        bounds: Dimensions whose rate is only known to be as large: no table is slowed by them.
        free: Dimensions whose latency no row tells.
    """

    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    loss: float
    alike: float
    bounds: tuple[int, ...]
    free: tuple[int, ...]


def weights(table: Table) -> list[float]:
    """Return how much each row of a table counts.

    Args:
        table: By size.
    """
    made = fit(table.rows)
    fixed, each = made.pieces[0].fixed_us, made.pieces[-1].us_per_byte
    found = []
    for row in table.rows:
        sent = each * row.bytes
        nearly = sent >= _NEARLY_BYTES * fixed or fixed >= _NEARLY_FIXED * sent
        found.append(0.0 if row.bytes in made.left_out else 1.0 if nearly else _BETWEEN)
    if sum(one == 1.0 for one in found[len(found) // 2 :]) < 2:
        # Of small sizes alone, the largest tell the rate as far as it can be told.
        found[-2:] = [1.0] * len(found[-2:])
    # As if every table had as many rows: a table of one row is a measurement, too.
    return [one / math.sqrt(max(1.0, sum(found))) for one in found]


def solve(
    tables: Sequence[Table],
    parts: Sequence[Sequence[int]],
    forward: Forward,
    *,
    latencies: Sequence[float],
    most: Sequence[float],
    start: Joint | None = None,
) -> Joint:
    """Return the rates and latencies whose predictions are nearest to the rows.

    Args:
        tables: With their ranks and collectives.
        parts: Of each, how many ranks differ on each dimension.
        forward: Predicts a row.
        latencies: Of each dimension, µs a step, where no row tells.
        most: Of each dimension, the largest rate that it can have, bytes a µs.
        start: What is near; None begins with what the narrowest tables carry.
    """
    problem = _Problem(tables, parts, forward)
    count = len(latencies)
    told = sorted(_tells_latency(tables, parts, count))

    def steps_of(x: Sequence[float]) -> list[float]:
        found = list(latencies)
        for place, value in zip(told, x, strict=True):
            found[place] = math.exp(value)
        return found

    def rates_of(x: Sequence[float]) -> list[float]:
        return [math.exp(value) for value in x]

    slow, fast = (math.log(one) for one in _LATENCIES)
    low = [math.log(_RATES[0])] * count + [slow] * len(told)
    high = [math.log(min(_RATES[1], one)) for one in most] + [fast] * len(told)
    begin = _begin(tables, parts, most), latencies
    if start is not None:
        begin = list(start.rates), start.latencies
    near = [math.log(rate) for rate in begin[0]]
    near += [math.log(max(_LATENCIES[0], begin[1][place])) for place in told]
    found = problem.least(
        lambda x: problem.off(rates_of(x[:count]), steps_of(x[count:])), near, (low, high)
    )
    rates, steps = rates_of(found[:count]), steps_of(found[count:])
    best = problem.loss(rates, steps)
    bounds = problem.lower(rates, steps, best)
    if told:
        # The rates stand, and what is between the small and the large sizes tells the latencies.
        again = problem.least(
            lambda x: problem.off(rates, steps_of(x), alike=True),
            list(found[count:]),
            (low[count:], high[count:]),
        )
        steps = steps_of(again)
    free = tuple(place for place in range(count) if place not in told)
    rows = len(problem.rows)
    every = problem.loss(rates, steps, alike=True) / rows
    return Joint(tuple(rates), tuple(steps), best / rows, every, tuple(bounds), free)


class _Problem:
    """Rows of tables, and how far a forward model is from them.

    Attributes:
        rows: The rows that count, each with its table, its part and its weight.
    """

    def __init__(
        self, tables: Sequence[Table], parts: Sequence[Sequence[int]], forward: Forward
    ) -> None:
        self.rows = [
            (table, part, row, weight)
            for table, part in zip(tables, parts, strict=True)
            for row, weight in _fewer(table)
            if weight > 0
        ]
        self._forward = forward
        self._scale = _SOFT / math.sqrt(max(len(table.rows) for table in tables))

    def off(
        self, rates: Sequence[float], steps: Sequence[float], *, alike: bool = False
    ) -> list[float]:
        """Of each row, its weighted distance; `alike`: every row of a table counts as much."""
        return [
            (_alike(table) if alike else weight)
            * math.log(self._forward(table, part, rates, steps, row.bytes) / row.time_us)
            for table, part, row, weight in self.rows
        ]

    def loss(self, rates: Sequence[float], steps: Sequence[float], *, alike: bool = False) -> float:
        """The robust sum of `off`."""
        apart = self.off(rates, steps, alike=alike)
        return sum(2 * (math.sqrt(1 + (one / self._scale) ** 2) - 1) for one in apart)

    def least(self, function: Callable[[Any], list[float]], start: list[float], ends: _Ends) -> Any:
        """Where the robust sum of a function is the least, from `start`, within `ends`."""
        from scipy.optimize import least_squares

        low, high = ends
        room = zip(start, low, high, strict=True)
        begin = [min(max(x, a + 1e-6), b - 1e-6) for x, a, b in room]
        return least_squares(
            function,
            begin,
            bounds=ends,
            loss="soft_l1",
            f_scale=self._scale,
            max_nfev=40,
            diff_step=[1e-4] * len(begin),
            xtol=1e-4,
            ftol=1e-4,
        ).x

    def lower(self, rates: list[float], steps: Sequence[float], best: float) -> list[int]:
        """Lower, in place, the rates that slow no table to the least that explains the rows.

        Args:
            rates: Of each dimension.
            steps: Their latencies.
            best: The loss.

        Returns:
            Which dimensions these are.
        """
        bounds = []
        margin = _ENOUGH * len(self.rows)
        for place in range(len(rates)):

            def with_rate(rate: float, place: int = place) -> float:
                return self.loss([*rates[:place], rate, *rates[place + 1 :]], steps)

            # Where a limit holds the rate down, more of it is better: that slows a table.
            if 0.9 * best - margin <= with_rate(2 * rates[place]) <= 1.1 * best + margin:
                bounds.append(place)
                rates[place] = _smallest(
                    rates[place],
                    lambda rate: with_rate(rate) <= 1.1 * best + margin,
                )
        return bounds


def _fewer(table: Table) -> list[tuple[Row, float]]:
    found = list(zip(table.rows, weights(table), strict=True))
    step = math.ceil(len(found) / _MOST_ROWS)
    return [*found[:-3:step], *found[-3:]] if step > 1 else found


def _alike(table: Table) -> float:
    return 1 / math.sqrt(len(table.rows))


def _smallest(rate: float, holds: Callable[[float], bool]) -> float:
    """The smallest rate, down from one that holds, to a hundredth."""
    low, high = math.log(_RATES[0]), math.log(rate)
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _tells_latency(tables: Sequence[Table], parts: Sequence[Sequence[int]], count: int) -> set[int]:
    """Dimensions of which a table has a size whose fixed time can be seen: a tenth, by its fit."""
    found = set()
    for table, part in zip(tables, parts, strict=True):
        first = fit(table.rows).pieces[0]
        if 10 * first.fixed_us > first.us_per_byte * table.rows[0].bytes:
            found |= {place for place in range(count) if part[place] > 1}
    return found


def _begin(
    tables: Sequence[Table], parts: Sequence[Sequence[int]], most: Sequence[float]
) -> list[float]:
    """Rates to begin with: what the narrowest table of each dimension carries a rank."""
    found = [min(one, _RATES[1]) for one in most]
    for table, part in zip(tables, parts, strict=True):
        last = max(place for place, one in enumerate(part) if one > 1)
        inside = math.prod(part[:last])
        around = AROUND[str(table.collective)](math.prod(part))
        row = table.rows[-1]
        found[last] = min(found[last], around * row.bytes / row.time_us / inside)
    return found
