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
from allrail.measure.calibrate.judged import Judged, error_within, judged_tables, rows_error
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.predict import Own, predict_us
from allrail.measure.calibrate.ran import AS_RINGS, DEFAULT, STAGES
from allrail.measure.calibrate.switching import best_rows, by_algorithm, switching_dimension
from allrail.measure.calibrate.table import AROUND, Row, Table
from allrail.measure.calibrate.untold import BY_STAGES, disagreements, elsewhere
from allrail.measure.calibrate.written import dimension_trees, library_tree, own_of

_ALONE = 0.1
"""Of fewer than four rows, what predictions may be off by: a row alone tells no noise. Chosen with
the four rows that users posted of 1 to 4 p4d machines in view."""


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
        return rows_error(self.judged)

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
    if algorithms:
        basis = _by_algorithm(ordered, switching_dimension(by_algorithm(given, algorithms)))
    else:
        basis = _by_fit(ordered, nic)
    own, judged = basis.own, judged_tables(basis.tables, basis.levels, basis.dimensions, basis.own)
    if basis.shows_library:
        # The library's steps may be more like those of rings than of the usual algorithms.
        rings = [{**one, **AS_RINGS} for one in basis.dimensions]
        other = judged_tables(basis.tables, basis.levels, rings, own)
        if rows_error(other) < rows_error(judged):
            basis, judged = replace(basis, dimensions=rings), other
    last = basis.tables[-1]
    made = fit(last.rows)
    unknown = [*made.unknown, *basis.unknown]
    if not algorithms:
        unknown += unexplained(ordered, [each.large for each in judged])
    if basis.levels.between is None and len(basis.dimensions) == 1 and _several(last):
        unknown.append(
            "what is within a machine and what between: one dimension stands for both; add a table"
            " of one machine"
        )
    off = [one for each in judged for one in each.off]
    tool = [
        abs((each.library_us or each.simulated_us)[row.bytes] / row.time_us - 1)
        for each in judged
        for row in each.table.rows
    ]
    fabric = _fabric(basis, judged, median(off))
    within = max(error_within(tool), _ALONE if len(off) < 4 else 0.0)
    library = fabric["library"] = library_tree(own, judged, within)
    if near := disagreements(fabric, judged, basis.levels, basis.nearly, own):
        library.update(error=max(within, *near), tables_error=within)
    return Calibrated(
        fabric,
        last,
        made,
        judged,
        median(off),
        median([one for each in judged for one in each.off[len(each.off) // 2 :]]),
        basis.ran,
        error_within(tool),
        own,
        held_out(last, 1),
        held_out(last, 2),
        tuple(unknown),
    )


@dataclass(frozen=True)
class _Basis:
    """What the tables say, before it is judged.

    Attributes:
        tables: What is judged.
        levels: On which dimensions each lies.
        dimensions: As a fabric file has them.
        ran: As of `Calibrated`.
        own: As of `Calibrated`.
        nearly: Other explanations that are nearly as good.
        unknown: What the tables cannot tell.
    """

    tables: Sequence[Table]
    levels: Levels
    dimensions: list[dict[str, Any]]
    ran: str = DEFAULT
    own: Own | None = None
    nearly: Sequence[Found] = ()
    unknown: Sequence[str] = ()

    @property
    def shows_library(self) -> bool:
        """Whether the tables show the library's own algorithms."""
        return self.own is not None and self.ran not in STAGES


def _by_algorithm(tables: Sequence[Table], dimension: dict[str, Any]) -> _Basis:
    """What tables of several algorithms over the same ranks say."""
    last = best_rows(tables)
    ranks = (last.ranks or 0,)
    return _Basis([last], Levels(ranks, (ranks,), None), [dimension])


def _by_fit(tables: Sequence[Table], nic: float | None) -> _Basis:
    """What tables say that are fitted at once."""
    found, theirs = fitted(tables, nic)
    own = None if theirs is None else own_of(theirs)
    return _Basis(
        tables,
        found.levels,
        dimension_trees(found.levels, found.joint, found.ran),
        found.ran,
        own,
        # Where the library's own are kept, predictions are theirs, and the simulator's beside them.
        [found, *found.near] if own is not None else list(found.near),
        _not_told(tables, found, theirs),
    )


def _fabric(basis: _Basis, judged: Sequence[Judged], half: float) -> dict[str, Any]:
    """The fabric file; `half`: what half of the rows are within."""
    last, tables = basis.tables[-1], basis.tables
    error = rows_error(judged)
    about = (
        f"Measured: {last.collective} over {', '.join(str(table.ranks) for table in tables)} ranks,"
        f" {show_count(sum(len(table.rows) for table in tables), 'row')}."
        f" Under the default schedule, half of the rows are within {100 * half:.0f} %,"
        f" nine of ten within {100 * error:.0f} %."
    )
    if basis.ran not in STAGES:
        about += f" The tables show {basis.ran}, whose rates these are."
    if basis.own is not None and basis.shows_library and last.collective in BY_STAGES:
        error = max(error, error_within(elsewhere(basis.own, judged, basis.dimensions)))
    sources = ", ".join(dict.fromkeys(Path(table.source).name for table in tables))
    return {
        "schema_version": 1,
        "name": "measured",
        "about": about,
        "calibrated": True,
        "error": error,
        "sources": {"dimensions": sources},
        "dimensions": basis.dimensions,
    }


def _several(table: Table) -> bool:
    """Whether a table may be of several machines."""
    return (table.hosts or (1 if (table.ranks or 0) <= 8 else 2)) > 1


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
