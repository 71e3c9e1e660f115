"""From tables to a fabric: the rate and the latency of each dimension.

One table gives one dimension over all its ranks: what lies within a machine and what between cannot
be told apart. A second one, over more ranks, gives the dimension around the first one's:

    t = around(m) · S / rate            one dimension of m ranks
    t = t_inner(S) + around(n / m) · S / m / rate_outer        of n ranks, m to a machine

The rate is that of the largest sizes (the last piece of the fit), the latency what the smallest
take over the steps of the algorithm. In between the fit has more pieces than a dimension has
numbers: how far the simulator is from each size is told.

Tables of the same ranks under several algorithms give one dimension, too, and say from which size
on each of them is the fastest (`switching.py`): the rate is that of the one that is the fastest at
the largest sizes, over the bytes that it sends, the latency that of the one at the smallest, over
its steps. A scenario with `algorithms: auto` switches where they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from allrail.calibrate.fit import Fit, fit
from allrail.calibrate.switching import best_rows, by_algorithm, fastest
from allrail.calibrate.table import AROUND, Table
from allrail.errors import InputError
from allrail.scenario.algorithms import AUTO

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives of nccl-tests that the simulator has."""

_STEPS = {"kind": "switch", "bandwidth": "1000 TB/s", "latency": "1 us"}
_BYTES = {"kind": "switch", "bandwidth": "1 GB/s", "latency": "0 us"}


@dataclass(frozen=True)
class Calibrated:
    """A fabric, and how far it is from what was measured.

    Attributes:
        fabric: As a fabric file has it.
        table: The one with the most ranks; of several algorithms, the fastest rows.
        fit: Of it.
        simulated_us: By size, what the simulator says with the fabric.
        error: The median distance of these from the table.
        large: The same of the larger half of the sizes.
        every_second: Calibrated from every second size, the median distance of the fit from the
            others; None for fewer than four sizes.
        upper_half: From the lower half of the sizes, of the upper one; None likewise.
        unknown: What the tables cannot tell.
    """

    fabric: dict[str, Any]
    table: Table
    fit: Fit
    simulated_us: dict[int, float]
    error: float
    large: float
    every_second: float | None
    upper_half: float | None
    unknown: tuple[str, ...]


def calibrate(tables: Sequence[Table], *, algorithms: Sequence[str] = ()) -> Calibrated:
    """Make a fabric of one table, or of two of which the second is over more ranks.

    Args:
        tables: Of the same collective.
        algorithms: What each has run, where they are over the same ranks; nothing otherwise.

    Raises:
        InputError: They do not fit together, or do not say enough.
    """
    ordered = sorted(map(_known, tables), key=lambda table: table.ranks or 0)
    dimensions: list[dict[str, Any]] = []
    if algorithms:
        # In the order in which they are named.
        named = by_algorithm([_known(table) for table in tables], algorithms)
        dimensions.append(_switching(named))
        last = best_rows(ordered)
    else:
        for table in ordered:
            dimensions.append(_dimension(table, dimensions, ordered[0]))
        last = ordered[-1]
    made = fit(last.rows)
    simulated = {row.bytes: _simulate(last, dimensions, row.bytes) for row in last.rows}
    off = [abs(simulated[row.bytes] / row.time_us - 1) for row in last.rows]
    unknown = list(made.unknown)
    hosts = last.hosts or (1 if (last.ranks or 0) <= 8 else None)
    if len(dimensions) == 1 and hosts != 1:
        unknown.append(
            "what is within a machine and what between: one dimension stands for both; add a table"
            " of one machine"
        )
    large = median(off[len(off) // 2 :])
    about = (
        f"Measured: {last.collective} over {last.ranks} ranks, {len(last.rows)} sizes. Simulated,"
        f" half of the sizes are within {100 * median(off):.0f} %, of the larger half within"
        f" {100 * large:.0f} %."
    )
    fabric = {
        "schema_version": 1,
        "name": "measured",
        "about": about,
        "calibrated": True,
        "error": _error(off[len(off) // 2 :]),
        "sources": {"dimensions": ", ".join(Path(table.source).name for table in ordered)},
        "dimensions": dimensions,
    }
    return Calibrated(
        fabric,
        last,
        made,
        simulated,
        median(off),
        large,
        held_out(last, 1),
        held_out(last, 2),
        tuple(unknown),
    )


def _error(off: Sequence[float]) -> float:
    """What nine of ten are within, three digits; a thousandth at least."""
    return max(0.001, float(f"{sorted(off)[-(len(off) // 10) - 1]:.2g}"))


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
    hint = "allrail knows " + ", ".join(OPERATIONS)
    if table.collective not in OPERATIONS:
        found = table.collective or "a collective that it does not name"
        raise InputError(f"it is of {found}", source=table.source, hint=hint)
    if not table.ranks or table.ranks < 2:
        raise InputError(
            "how many ranks took part is not said",
            source=table.source,
            hint="say it by `--ranks`",
        )
    return table


def _dimension(table: Table, inner: list[dict[str, Any]], first: Table) -> dict[str, Any]:
    ranks, name = table.ranks or 0, str(table.collective)
    made = fit(table.rows)
    within = 1
    for one in inner:
        within *= int(one["size"])
    if inner and (name != first.collective or ranks % within or ranks == within):
        raise InputError(
            f"it is of {name} over {ranks} ranks, and `{first.source}` of {first.collective} over"
            f" {first.ranks}",
            source=table.source,
            hint="two tables are of one collective, and the second over a multiple of the ranks",
        )
    if table.rows[0].bytes == table.rows[-1].bytes:
        raise InputError(
            "one size was measured: what it takes beside its bytes cannot be told",
            source=table.source,
            hint="measure sizes from a few KiB to hundreds of MiB: `-b 1K -e 1G -f 2`",
        )
    size = ranks // within
    steps = run(name, [{**_STEPS, "size": size}], 1)
    largest, smallest = table.rows[-1].bytes, table.rows[0].bytes
    before = [_simulate(table, inner, one) if inner else 0.0 for one in (largest, smallest)]
    left = made.time_us(largest) - before[0] - made.pieces[-1].fixed_us
    if left <= 0 and not inner:
        raise InputError(
            "its largest size takes no longer than any other: its rate cannot be told",
            source=table.source,
            hint="measure larger sizes too, up to hundreds of megabytes",
        )
    if left <= 0:
        raise InputError(
            f"it is faster than {first.ranks} ranks of it alone",
            source=table.source,
            hint="one ring over all ranks does not take turns: give this table alone",
        )
    rate = AROUND[name](size) * (largest / within) / left * 1e6
    sent = AROUND[name](size) * smallest / within
    fixed = max(0.0, made.time_us(smallest) - before[1] - 1e6 * sent / rate)
    return {
        "kind": "switch",
        "size": size,
        "bandwidth": f"{rate / 1e9:.6g} GB/s",
        "latency": f"{fixed / steps:.4g} us",
    }


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
        "bandwidth": f"{rate / 1e9:.6g} GB/s",
        "latency": f"{fixed / alone(_STEPS, first, 1):.4g} us",
        "fastest": {operation: [{"from": f"{at} B", "algorithm": name} for at, name in points]},
    }


def _simulate(table: Table, dimensions: list[dict[str, Any]], size: int) -> float:
    """Microseconds of a size, as nccl-tests count sizes."""
    ranks = 1
    for one in dimensions:
        ranks *= int(one["size"])
    return run(str(table.collective), dimensions, size)


def run(
    operation: str,
    dimensions: list[dict[str, Any]],
    size: int,
    *,
    chunks: int = 1,
    algorithms: str | Sequence[str] | None = None,
) -> float:
    """Return µs that the simulator says of a collective.

    Args:
        operation: As of `AROUND`.
        dimensions: Of the fabric.
        size: Bytes, as nccl-tests count them.
        chunks: Into how many it is cut.
        algorithms: As in a scenario's schedule; as the fabric was measured, if left out.
    """
    from allrail.api import simulate

    result = simulate(
        {
            "schema_version": 1,
            "fabric": {"dimensions": dimensions},
            "collective": {"kind": operation, "size": f"{max(1, size)} B"},
            "schedule": {"chunks": chunks, "algorithms": algorithms or _measured(dimensions)},
        }
    )
    return float(result.time_us)


def _measured(dimensions: list[dict[str, Any]]) -> str | None:
    """Whether a fabric says what is the fastest."""
    return AUTO if any(one.get("fastest") for one in dimensions) else None
