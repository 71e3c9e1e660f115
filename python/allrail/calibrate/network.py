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
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from allrail.calibrate import library
from allrail.calibrate.fit import Fit, fit
from allrail.calibrate.joint import Forward, Joint, solve
from allrail.calibrate.levels import Levels, levels_of
from allrail.calibrate.nic import check_rates, nic_rate
from allrail.calibrate.predict import OPERATIONS, Own, Stages, default_us, predict_us, run
from allrail.calibrate.switching import best_rows, by_algorithm, fastest
from allrail.calibrate.table import AROUND, Row, Table
from allrail.errors import InputError

_STEPS = {"kind": "switch", "bandwidth": "1000 TB/s", "latency": "1 us"}
_BYTES = {"kind": "switch", "bandwidth": "1 GB/s", "latency": "0 us"}
_LATENCY_US = {"machine": 3.4, "between": 9.6}
"""Where no row tells: NCCL's `src/graph/tuning.cc`, a ring's step in Simple (as presets have)."""
_BETTER = 0.5
"""A library's algorithms are taken where they leave less than so much of the default's loss. Chosen
so that noise of 3 % on tables of the default schedule never tips it."""
_AS_RINGS = {
    "fastest": {
        **{name: [{"from": "1 B", "algorithm": "ring"}] for name in OPERATIONS[:3]},
        **{
            name: [{"from": "1 B", "algorithm": algorithm}]
            for name, algorithm in (("all_to_all", "direct"), ("broadcast", "ring"))
        },
    }
}
"""Of a dimension whose steps are a ring's: scenarios that name no algorithm follow it."""
_ALONE = 0.1
"""Of fewer than four rows, what predictions may be off by: a row alone tells no noise. Chosen with
the four rows that users posted of 1 to 4 p4d machines in view."""
_CONTRADICT = 1.5
"""Times the measured time of large sizes, by the best fit: then tables are not of one network."""
_PLAIN = 0.15
"""Loss of rows that are 4 % off: what explains them so needs no further dimension."""
_NOISE = 0.01
"""Loss of rows that are a hundredth off: less is as good."""


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


DEFAULT = "the default schedule"
RINGS = "the default schedule with rings"
NCCL = "the faster of a ring and a tree over all ranks"
RING = "a ring over all ranks"
TREE = "a tree over all ranks"
STAGES = (DEFAULT, RINGS)
"""What the simulator runs: stages by dimension, of the usual algorithms or of rings."""


def library_of(ran: str) -> tuple[str, ...]:
    """Return the algorithms that a name stands for.

    Args:
        ran: Of `Calibrated`.
    """
    found = tuple(name for name in library.ALGORITHMS if name in ran)
    return found or library.ALGORITHMS


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
        found, other = _fitted(ordered, nic)
        levels, ran = found.levels, found.ran
        dimensions = _dimensions(levels, found.joint, ran)
        own = None if other is None else _own(other)
        last = ordered[-1]
        unknown += _not_told(ordered, found, other)
    judged = tuple(
        _judge(table, part, dimensions, own)
        for table, part in zip(ordered, levels.parts, strict=True)
    )
    made = fit(last.rows)
    off = [one for each in judged for one in each.off]
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
        f"Measured: {last.collective} over {ranks} ranks, {rows} rows. Under the default schedule,"
        f" half of the rows are within {100 * median(off):.0f} %, nine of ten within"
        f" {100 * _error(off):.0f} %."
    )
    if ran not in STAGES:
        about += f" The tables show {ran}, whose rates these are."
    fabric = {
        "schema_version": 1,
        "name": "measured",
        "about": about,
        "calibrated": True,
        "error": _error(off),
        "sources": {
            "dimensions": ", ".join(dict.fromkeys(Path(table.source).name for table in ordered))
        },
        "dimensions": dimensions,
    }
    fabric["library"] = _library(own, judged, max(_error(tool), _ALONE if rows < 4 else 0.0))
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


@dataclass(frozen=True, slots=True)
class _Found:
    """A fit: of which dimensions, under what."""

    levels: Levels
    joint: Joint
    ran: str


def _fitted(tables: Sequence[Table], nic: float | None) -> tuple[_Found, _Found | None]:
    """What later predictions run, fitted; the library's own algorithms, where they do as well."""
    for table in tables:
        _check_sizes(table, len(tables))
    found: _Found | None = None
    own: _Found | None = None
    for levels in levels_of(tables):
        if found is not None and found.joint.loss < _PLAIN:
            # More dimensions explain anything: fewer do.
            break
        limit = nic_rate(tables, levels, nic)
        between = len(levels.sizes) if levels.between is None else levels.between
        places = range(len(levels.sizes))
        steps = [_LATENCY_US["machine" if place < between else "between"] for place in places]
        most = [math.inf if limit is None or p < between else limit / 1e6 for p in places]
        for ran in _may_have_run(tables, levels):
            forward = _of(ran, levels.between)
            joint = solve(tables, levels.parts, forward, latencies=steps, most=most)
            this = _Found(levels, joint, ran)
            least = math.inf if found is None else found.joint.loss
            better = joint.loss + _NOISE < _BETTER * (least + _NOISE)
            if found is None or (better and (ran in STAGES or _told_apart(levels))):
                found = this
            if ran not in STAGES and (
                own is None or joint.loss + _NOISE < _BETTER * own.joint.loss
            ):
                own = this
    if found is None:
        raise AssertionError("no dimensions were tried")
    check_rates(
        tables, found.levels, found.joint, nic, forward=_of(found.ran, found.levels.between)
    )
    _check_faster(tables, found)
    if found.ran not in STAGES:
        own = found
    elif own is not None and (_told_apart(found.levels) or own.levels != found.levels):
        # Several numbers of machines tell them apart, and these were the simulator's.
        own = None
    return found, own


def _check_faster(tables: Sequence[Table], found: _Found) -> None:
    """Refuse a table that is faster than what it shares with another allows."""
    forward = _of(found.ran, found.levels.between)
    joint, first = found.joint, tables[0]
    for table, part in zip(tables[1:], found.levels.parts[1:], strict=True):
        times = [
            forward(table, part, joint.rates, joint.latencies, row.bytes) / row.time_us
            for row in table.rows[-3:]
        ]
        if median(times) > _CONTRADICT and table.ranks != first.ranks:
            raise InputError(
                f"it is faster than {first.ranks} ranks of it alone",
                source=table.source,
                hint="tables are of one network and one algorithm: check them, or give this one"
                " alone",
            )


def _told_apart(levels: Levels) -> bool:
    """Whether tables of several lengths of one dimension tell how time grows with it."""
    counts = [{part[place] for part in levels.parts} - {1} for place in range(len(levels.sizes))]
    return any(len(one) > 1 for one in counts)


def _of(ran: str, between: int | None) -> Forward:
    if ran in STAGES:
        return _stages(_AS_RINGS if ran == RINGS else {})
    return partial(_forward, library_of(ran), between)


def _may_have_run(tables: Sequence[Table], levels: Levels) -> list[str]:
    """What is tried: the default schedule, and where tables can tell, a library's algorithms."""
    collective = str(tables[0].collective)
    if collective not in OPERATIONS:
        return [f"a library's {collective}"]
    if collective == "all_to_all" or len(levels.sizes) == 1:
        return [DEFAULT]
    if not _told_apart(levels):
        # Fits of one number of machines are all as good; the library's tells what its rates are.
        return [DEFAULT, NCCL if collective == "all_reduce" else RING]
    if collective != "all_reduce":
        return [DEFAULT, RINGS, RING]
    return [DEFAULT, RINGS, NCCL, RING, TREE]


def _stages(more: dict[str, Any]) -> Forward:
    kept: dict[tuple[str, tuple[int, ...]], Stages] = {}

    def forward(
        table: Table,
        part: Sequence[int],
        rates: Sequence[float],
        latencies: Sequence[float],
        size: int,
    ) -> float:
        key = str(table.collective), tuple(part)
        if key not in kept:
            kept[key] = Stages(*key, more)
        return kept[key].time_us(rates, latencies, size)

    return forward


def _forward(
    algorithms: tuple[str, ...],
    between: int | None,
    table: Table,
    part: Sequence[int],
    rates: Sequence[float],
    latencies: Sequence[float],
    size: int,
) -> float:
    name = str(table.collective)
    return library.time_us(
        name, part, rates, latencies, size, between=between, algorithms=algorithms
    )


def _dimensions(levels: Levels, joint: Joint, ran: str) -> list[dict[str, Any]]:
    return [
        {
            "kind": "switch",
            "size": size,
            "bandwidth": f"{_plain(rate / 1e3, 6)} GB/s",
            "latency": f"{_plain(us, 4)} us",
            **(_AS_RINGS if ran == RINGS else {}),
        }
        for size, rate, us in zip(levels.sizes, joint.rates, joint.latencies, strict=True)
    ]


def _plain(value: float, digits: int) -> str:
    """Significant digits without an exponent, as quantities are written."""
    return f"{float(f'{value:.{digits}g}'):.9f}".rstrip("0").rstrip(".")


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


def _own(found: _Found) -> Own:
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


def _check_sizes(table: Table, tables: int) -> None:
    """Refuse what has no rate."""
    made = fit(table.rows)
    if len({row.bytes for row in table.rows}) == 1:
        if tables == 1:
            raise InputError(
                "one size was measured: what it takes beside its bytes cannot be told",
                source=table.source,
                hint="measure sizes from a few KiB to hundreds of MiB: `-b 1K -e 1G -f 2`",
            )
        return
    if made.time_us(table.rows[-1].bytes) <= made.pieces[-1].fixed_us:
        raise InputError(
            "its largest size takes no longer than any other: its rate cannot be told",
            source=table.source,
            hint="measure larger sizes too, up to hundreds of megabytes",
        )


def _not_told(tables: Sequence[Table], found: _Found, own: _Found | None) -> list[str]:
    joint, levels = found.joint, found.levels
    told = [
        f"the rate of dimension {place + 1}: it slows no table; written is the least that"
        f" explains them, {joint.rates[place] / 1e3:.4g} GB/s"
        for place in joint.bounds
    ]
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
