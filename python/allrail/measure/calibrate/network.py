"""From tables to a fabric: the rate and the latency of each dimension.

Each table lies on some dimensions (`levels.py`): on those of a machine, on those that join
machines, or on both. All tables are fitted at once (`joint.py`), under what later predictions run:
the simulator with the default schedule. Only where several numbers of machines were measured can
tables tell another algorithm from it: where a library's own (one ring or tree over all ranks,
`library.py`) explains them much better, its rates are taken, and the fabric says so.

Whatever was fitted, the fabric that is written is simulated under the default schedule, at every
row of every table: what nine of ten rows are within is the error that it carries.

A rate above what a network interface carries is refused. A rate that no table is slowed by is
unknown: the smallest that explains the tables is written, and said.

Tables of the same ranks under several algorithms give one dimension, too, and say from which size
on each of them is the fastest (`switching.py`): the rate is that of the one that is the fastest at
the largest sizes, over the bytes that it sends, the latency that of the one at the smallest, over
its steps. A scenario with `algorithms: auto` switches where they do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from allrail.base.errors import InputError
from allrail.base.units import show_count
from allrail.measure.calibrate.agree import unexplained
from allrail.measure.calibrate.fit import Fit, fit
from allrail.measure.calibrate.fitting import Found, fitted
from allrail.measure.calibrate.joint import Joint
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.predict import OPERATIONS, Own, default_us, predict_us, run
from allrail.measure.calibrate.ran import AS_RINGS, DEFAULT, RINGS, STAGES, library_of
from allrail.measure.calibrate.shape import LARGE
from allrail.measure.calibrate.switching import best_rows, by_algorithm, fastest
from allrail.measure.calibrate.table import AROUND, Row, Table

_STEPS = {"kind": "switch", "bandwidth": "1000 TB/s", "latency": "1 us"}
_BYTES = {"kind": "switch", "bandwidth": "1 GB/s", "latency": "0 us"}
_BY_STAGES = OPERATIONS[:3]
"""Collectives of which tables of one tell the others."""
_SIZES = 6
"""Of a table, where other collectives are compared."""
_ALONE = 0.1
"""Of fewer than four rows, what predictions may be off by: a row alone tells no noise. Chosen with
the four rows that users posted of 1 to 4 p4d machines in view."""


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


@dataclass(frozen=True)
class Calibrated:
    """A fabric, and how far it is from what was measured.

    Attributes:
        fabric: As a fabric file has it.
        table: The one with the most ranks; of several algorithms, the fastest rows.
        fit: Of it.
        judged: Every table beside the fabric.
        error: The median distance of all rows from what is simulated.
        large: The same of the larger half of each table's sizes.
        ran: What the tables show: `default schedule`, or the library's algorithms.
        ran_error: What nine of ten rows are within under that.
        own: What the library's own algorithms reach; None where the tables show the simulator's.
        every_second: Calibrated from every second size, the median distance of the fit from the
            others; None for fewer than four sizes.
        upper_half: From the lower half of the sizes, of the upper one; None likewise.
        unknown: What the tables cannot tell.
    """

    fabric: dict[str, Any]
    table: Table
    fit: Fit
    judged: tuple[Judged, ...]
    error: float
    large: float
    ran: str
    ran_error: float
    own: Own | None
    every_second: float | None
    upper_half: float | None
    unknown: tuple[str, ...]

    @property
    def rows_error(self) -> float:
        """What nine of ten rows are within under the default schedule."""
        return _rows_error(self.judged)

    @property
    def simulated_us(self) -> dict[int, float]:
        """By size, what the simulator says of `table`."""
        return self.judged[-1].simulated_us

    def predict_us(self, collective: str, part: Sequence[int], size: int) -> float:
        """Return what a collective takes as the tables' tool runs it (`predict.py`).

        Args:
            collective: As of `AROUND`.
            part: How many of its ranks differ on each dimension.
            size: Bytes, as nccl-tests count them.
        """
        return predict_us(self.fabric, collective, part, size)


def calibrate(
    tables: Sequence[Table], *, algorithms: Sequence[str] = (), nic: float | None = None
) -> Calibrated:
    """Make a fabric of tables of one collective.

    Args:
        tables: Of one machine, of several, of one rank of each: as many as there are.
        algorithms: What each has run, where they are over the same ranks; nothing otherwise.
        nic: What the network interfaces of one rank carry, bytes a second; None where not known.

    Raises:
        InputError: They do not fit together, do not say enough, or are above what a network
            interface carries.
    """
    given = [_known(table) for table in tables]
    ordered = sorted(given, key=lambda table: (table.ranks or 0, -(table.hosts or 1)))
    unknown: list[str] = []
    own: Own | None = None
    nearly: list[Found] = []
    if algorithms:
        # In the order in which they are named.
        dimensions = [_switching(by_algorithm(given, algorithms))]
        last = best_rows(ordered)
        levels, ran, ordered = (
            Levels((last.ranks or 0,), ((last.ranks or 0,),), None),
            DEFAULT,
            [last],
        )
    else:
        found, theirs = fitted(ordered, nic)
        levels, ran = found.levels, found.ran
        dimensions = _dimensions(levels, found.joint, ran)
        own = None if theirs is None else _own(theirs)
        # Where the library's own are kept, predictions are theirs, and the simulator's beside them.
        nearly = [found, *found.near] if own is not None else list(found.near)
        last = ordered[-1]
        unknown += _not_told(ordered, found, theirs)
    judged = _judged(ordered, levels, dimensions, own)
    if own is not None and ran not in STAGES:
        # The library's steps may be more like those of rings than of the usual algorithms.
        rings = [{**one, **AS_RINGS} for one in dimensions]
        other = _judged(ordered, levels, rings, own)
        if _rows_error(other) < _rows_error(judged):
            dimensions, judged = rings, other
    made = fit(last.rows)
    off = [one for each in judged for one in each.off]
    if not algorithms:
        unknown += unexplained(ordered, [each.large for each in judged])
    large = median([one for each in judged for one in each.off[len(each.off) // 2 :]])
    if levels.between is None and len(dimensions) == 1 and _several(last):
        unknown.append(
            "what is within a machine and what between: one dimension stands for both; add a table"
            " of one machine"
        )
    tool = [
        abs((each.library_us or each.simulated_us)[row.bytes] / row.time_us - 1)
        for each in judged
        for row in each.table.rows
    ]
    rows = sum(len(table.rows) for table in ordered)
    ranks = ", ".join(str(table.ranks) for table in ordered)
    about = (
        f"Measured: {last.collective} over {ranks} ranks, {show_count(rows, 'row')}."
        f" Under the default schedule, half of the rows are within {100 * median(off):.0f} %,"
        f" nine of ten within {100 * _rows_error(judged):.0f} %."
    )
    if ran not in STAGES:
        about += f" The tables show {ran}, whose rates these are."
    error = _rows_error(judged)
    if own is not None and ran not in STAGES and last.collective in _BY_STAGES:
        error = max(error, _error(_elsewhere(own, judged, dimensions)))
    fabric = {
        "schema_version": 1,
        "name": "measured",
        "about": about,
        "calibrated": True,
        "error": error,
        "sources": {
            "dimensions": ", ".join(dict.fromkeys(Path(table.source).name for table in ordered))
        },
        "dimensions": dimensions,
    }
    within = max(_error(tool), _ALONE if rows < 4 else 0.0)
    library = fabric["library"] = _library(own, judged, within)
    if near := _disagree(fabric, judged, levels, nearly, own):
        library.update(error=max(within, *near), tables_error=within)
    return Calibrated(
        fabric,
        last,
        made,
        judged,
        median(off),
        large,
        ran,
        _error(tool),
        own,
        held_out(last, 1),
        held_out(last, 2),
        (*made.unknown, *unknown),
    )


def _several(table: Table) -> bool:
    """Whether a table may be of several machines."""
    return (table.hosts or (1 if (table.ranks or 0) <= 8 else 2)) > 1


def _dimensions(levels: Levels, joint: Joint, ran: str) -> list[dict[str, Any]]:
    return [
        {
            "kind": "switch",
            "size": size,
            "bandwidth": f"{_plain(rate / 1e3, 6)} GB/s",
            "latency": f"{_plain(us, 4)} us",
            **(AS_RINGS if ran == RINGS else {}),
        }
        for size, rate, us in zip(levels.sizes, joint.rates, joint.latencies, strict=True)
    ]


def _plain(value: float, digits: int) -> str:
    """Significant digits without an exponent, as quantities are written."""
    return f"{float(f'{value:.{digits}g}'):.9f}".rstrip("0").rstrip(".")


def _judged(
    tables: Sequence[Table], levels: Levels, dimensions: list[dict[str, Any]], own: Own | None
) -> tuple[Judged, ...]:
    return tuple(
        _judge(table, part, dimensions, own)
        for table, part in zip(tables, levels.parts, strict=True)
    )


def _rows_error(judged: Sequence[Judged]) -> float:
    return _error([one for each in judged for one in each.off])


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


def _elsewhere(own: Own, judged: Sequence[Judged], dimensions: list[dict[str, Any]]) -> list[float]:
    """How far the default schedule is from the library's own, of collectives without a table."""
    measured = {str(each.table.collective) for each in judged}
    found = []
    for each in judged:
        rows = each.table.rows
        sizes = [row.bytes for row in rows[:: math.ceil(len(rows) / _SIZES)]]
        for name in _BY_STAGES:
            if name not in measured:
                found += [
                    abs(
                        default_us(name, each.part, dimensions, size)
                        / own.time_us(name, each.part, size)
                        - 1
                    )
                    for size in sizes
                ]
    return found


def _own(found: Found) -> Own:
    joint, levels = found.joint, found.levels
    return Own(joint.rates, joint.latencies, levels.between, library_of(found.ran))


def _library(own: Own | None, judged: Sequence[Judged], error: float) -> dict[str, Any]:
    """As a fabric file has it."""
    tree: dict[str, Any] = {"error": error}
    if own is not None:
        tree |= {
            "algorithms": list(own.algorithms),
            "between": own.between,
            "dimensions": [
                {"bandwidth": f"{_plain(rate / 1e3, 6)} GB/s", "latency": f"{_plain(us, 4)} us"}
                for rate, us in zip(own.rates, own.latencies, strict=True)
            ],
        }
    tree["tables"] = [
        {
            "collective": each.table.collective,
            "part": list(each.part),
            "pieces": [
                {
                    "first": f"{piece.first} B",
                    "last": f"{piece.last} B",
                    "fixed_us": float(f"{piece.fixed_us:.6g}"),
                    "us_per_byte": float(f"{piece.us_per_byte:.6g}"),
                }
                for piece in each.fit.pieces
            ],
        }
        for each in judged
    ]
    return tree


def _disagree(
    fabric: dict[str, Any],
    judged: Sequence[Judged],
    levels: Levels,
    nearly: Sequence[Found],
    own: Own | None,
) -> list[float]:
    """How far explanations that are nearly as good differ: nine of ten sizes of each prediction.

    Predictions are of collectives without a table, on every table's ranks and on half of them.
    """
    measured = {(str(each.table.collective), each.part) for each in judged}
    if any(name not in _BY_STAGES for name, _ in measured):
        return []
    asked: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for each in judged:
        rows = each.table.rows
        sizes = [row.bytes for row in rows[:: math.ceil(len(rows) / _SIZES)]]
        for part in (each.part, _halved(each.part)):
            for name in _BY_STAGES:
                if math.prod(part) > 1 and (name, part) not in measured:
                    asked[name, part] = sizes
    found = []
    for one in nearly:
        other = _own(one) if one.ran not in STAGES else None
        if other == own:
            continue
        tree = {
            "dimensions": _dimensions(levels, one.joint, one.ran),
            "library": _library(other, judged, 0.0),
        }
        for (name, part), sizes in asked.items():
            ratios = [
                predict_us(tree, name, part, size) / predict_us(fabric, name, part, size)
                for size in sizes
            ]
            # Either may be what runs.
            found.append(_error([max(one, 1 / one) - 1 for one in ratios]))
    return found


def _halved(part: tuple[int, ...]) -> tuple[int, ...]:
    """Half as many of the outermost, or as many where that is odd."""
    place = max(place for place, one in enumerate(part) if one > 1)
    half = part[place] // 2 if part[place] % 2 == 0 else part[place]
    return (*part[:place], half, *part[place + 1 :])


def _not_told(tables: Sequence[Table], found: Found, own: Found | None) -> list[str]:
    joint, levels = found.joint, found.levels
    told = [
        f"the rate of dimension {place + 1}: it slows no table; written is the least that"
        f" explains them, {joint.rates[place] / 1e3:.4g} GB/s"
        for place in joint.bounds
    ]
    told += found.doubts
    told += [
        f"the latency of dimension {place + 1}: no small sizes; taken is NCCL's own figure,"
        f" {joint.latencies[place]:.3g} us a step"
        for place in joint.free
    ]
    if len(levels.sizes) > 1 and len(tables) > 1 and found.ran in STAGES and own is not None:
        rate = own.joint.rates[-1] / 1e3
        told.append(
            "how time grows with machines: one number was measured. The default schedule needs"
            f" {joint.rates[-1] / 1e3:.4g} GB/s a rank between them, {own.ran} {rate:.4g}: a table"
            " of another number of machines tells which was run"
        )
    return told


def _error(off: Sequence[float]) -> float:
    """What nine of ten are within, rounded up to two digits; a thousandth at least."""
    found = max(0.001, sorted(off)[math.ceil(0.9 * len(off)) - 1])
    digit = 10.0 ** (math.floor(math.log10(found)) - 1)
    return float(f"{math.ceil(found / digit - 1e-9) * digit:.2g}")


def held_out(table: Table, which: int) -> float | None:
    """Return how far the fit of some rows is from the others: the median distance.

    Args:
        table: With four rows or more; None comes back for fewer.
        which: 1 fits every second row, 2 the lower half.
    """
    rows = table.rows
    if len(rows) < 4:
        return None
    half = len(rows) // 2
    seen, rest = (rows[::2], rows[1::2]) if which == 1 else (rows[:half], rows[half:])
    made = fit(seen)
    return median(abs(made.time_us(row.bytes) / row.time_us - 1) for row in rest)


def _known(table: Table) -> Table:
    hint = "allrail knows " + ", ".join(AROUND)
    if table.collective not in AROUND:
        found = table.collective or "a collective that it does not name"
        raise InputError(f"it is of {found}", source=table.source, hint=hint)
    if not table.ranks or table.ranks < 2:
        raise InputError(
            "how many ranks took part is not said",
            source=table.source,
            hint="say it by `--ranks`",
        )
    by: dict[int, list[Row]] = {}
    for row in table.rows:
        by.setdefault(row.bytes, []).append(row)
    # Repeated sizes are one row, with their median time.
    rows = tuple(
        sorted(each, key=lambda row: row.time_us)[len(each) // 2] for _, each in sorted(by.items())
    )
    return replace(table, rows=rows)


def _switching(named: dict[str, Table]) -> dict[str, Any]:
    """The dimension of tables of several algorithms over the same ranks."""
    fits = {name: fit(table.rows) for name, table in named.items()}
    points = fastest(fits)
    table = next(iter(named.values()))
    operation, size = str(table.collective), table.ranks or 0

    def alone(probe: dict[str, str], name: str, of: int) -> float:
        return run(operation, [{**probe, "size": size}], of, algorithms=[name])

    (_, first), (_, last) = points[0], points[-1]
    smallest, largest = named[first].rows[0].bytes, named[last].rows[-1].bytes
    left = fits[last].time_us(largest) - fits[last].pieces[-1].fixed_us
    if left <= 0:
        raise InputError(
            "its largest size takes no longer than any other: its rate cannot be told",
            source=named[last].source,
            hint="measure larger sizes too, up to hundreds of megabytes",
        )
    # What takes 1 us at 1 GB/s is 1,000 bytes.
    rate = alone(_BYTES, last, largest) * 1e9 / left
    sent = alone(_BYTES, first, smallest) * 1e9 / rate
    fixed = max(0.0, fits[first].time_us(smallest) - sent)
    return {
        "kind": "switch",
        "size": size,
        "bandwidth": f"{_plain(rate / 1e9, 6)} GB/s",
        "latency": f"{_plain(fixed / alone(_STEPS, first, 1), 4)} us",
        "fastest": {operation: [{"from": f"{at} B", "algorithm": name} for at, name in points]},
    }
