"""Tables beside the fabric that is made of them, as it will be simulated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from allrail.measure.calibrate.fit import Fit, fit
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.predict import OPERATIONS, Own, default_us
from allrail.measure.calibrate.shape import LARGE
from allrail.measure.calibrate.table import Table


@dataclass(frozen=True)
class Judged:
    """A table beside the written fabric.

    Attributes:
        table: As it was read.
        part: How many of its ranks differ on each dimension.
        fit: Of its rows.
        simulated_us: By size, under the default schedule; of what it has not, the library's.
        library_us: By size, what the library's own algorithms take; empty where the tables do not
            show them.
    """

    table: Table
    part: tuple[int, ...]
    fit: Fit
    simulated_us: dict[int, float]
    library_us: dict[int, float]

    @property
    def off(self) -> list[float]:
        """How far each row is from what is simulated, by size."""
        return [abs(self.simulated_us[row.bytes] / row.time_us - 1) for row in self.table.rows]

    @property
    def large(self) -> float:
        """The time of large sizes, as the tables show it, over the measured one: the median."""
        told = self.library_us or self.simulated_us
        rows = [row for row in self.table.rows[-3:] if row.bytes * LARGE >= self.largest]
        return median(told[row.bytes] / row.time_us for row in rows)

    @property
    def largest(self) -> int:
        """Its largest size, bytes."""
        return self.table.rows[-1].bytes


def judged_tables(
    tables: Sequence[Table], levels: Levels, dimensions: list[dict[str, Any]], own: Own | None
) -> tuple[Judged, ...]:
    """Return every table beside the fabric.

    Args:
        tables: As they were read.
        levels: On which dimensions each lies.
        dimensions: Of the fabric, as it is written.
        own: What the library's own algorithms reach, where tables show them.
    """
    return tuple(
        _judge(table, part, dimensions, own)
        for table, part in zip(tables, levels.parts, strict=True)
    )


def _judge(
    table: Table, part: Sequence[int], dimensions: list[dict[str, Any]], own: Own | None
) -> Judged:
    """Simulate every row on the fabric as it is written."""
    name, theirs = str(table.collective), {}
    if own is not None:
        theirs = {row.bytes: own.time_us(name, part, row.bytes) for row in table.rows}
    simulated = theirs
    if name in (*OPERATIONS, "broadcast"):
        simulated = {row.bytes: default_us(name, part, dimensions, row.bytes) for row in table.rows}
    return Judged(table, tuple(part), fit(table.rows), simulated, theirs)


def rows_error(judged: Sequence[Judged]) -> float:
    """Return what nine of ten rows are within under the default schedule."""
    return error_within([one for each in judged for one in each.off])


def error_within(off: Sequence[float]) -> float:
    """Return what nine of ten are within, rounded up to two digits; a thousandth at least."""
    found = max(0.001, sorted(off)[math.ceil(0.9 * len(off)) - 1])
    digit = 10.0 ** (math.floor(math.log10(found)) - 1)
    return float(f"{math.ceil(found / digit - 1e-9) * digit:.2g}")
