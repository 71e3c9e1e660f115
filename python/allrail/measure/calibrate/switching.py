"""Which algorithm is the fastest from which size on: tables of the same ranks, one for each.

Each table is fitted alone (`fit.py`), which evens out noise; at each size the algorithm whose fit
takes least is the fastest, and between two sizes with other ones the later takes over where its fit
falls below. Of nccl-tests, `NCCL_ALGO=Ring` and `NCCL_ALGO=Tree` make such tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from allrail.base.errors import InputError, did_you_mean
from allrail.measure.calibrate.fit import Fit, fit
from allrail.measure.calibrate.predict import run
from allrail.measure.calibrate.table import Row, Table
from allrail.measure.calibrate.written import plain
from allrail.scenario.fields import names as algorithms

_STEPS = {"kind": "switch", "bandwidth": "1000 TB/s", "latency": "1 us"}
_BYTES = {"kind": "switch", "bandwidth": "1 GB/s", "latency": "0 us"}


def by_algorithm(tables: Sequence[Table], names: Sequence[str]) -> dict[str, Table]:
    """Return tables by what they ran.

    Args:
        tables: Of one collective over the same ranks.
        names: Of each, the algorithm; as in scenarios.

    Raises:
        InputError: There is another number of names, one is unknown or stands twice, or tables are
            of other collectives or ranks.
    """
    source = ", ".join(dict.fromkeys(table.source for table in tables))
    if len(names) != len(tables):
        raise InputError(
            f"there are {len(names)} names for {len(tables)} tables",
            source=source,
            hint="give `--algorithm` once for each file, in their order",
        )
    known = algorithms("algorithms")
    for name in names:
        if name not in known:
            raise InputError(
                "it is not an algorithm",
                source="--algorithm",
                value=name,
                hint=did_you_mean(name, known),
            )
    if len(set(names)) < len(names):
        raise InputError(
            "an algorithm is named twice", source=source, hint="one table for each algorithm"
        )
    first = tables[0]
    for table in tables[1:]:
        if (table.collective, table.ranks) != (first.collective, first.ranks):
            raise InputError(
                f"{table.collective} over {table.ranks} ranks, beside {first.collective} over"
                f" {first.ranks}",
                source=table.source,
                hint="tables of several algorithms are of one collective over the same ranks",
            )
    return dict(zip(names, tables, strict=True))


def best_rows(tables: Sequence[Table]) -> Table:
    """Return, of every size that was measured, the fastest.

    Args:
        tables: Of one collective over the same ranks.
    """
    rows: dict[int, Row] = {}
    for row in (row for table in tables for row in table.rows):
        if row.bytes not in rows or row.time_us < rows[row.bytes].time_us:
            rows[row.bytes] = row
    notes = tuple(note for table in tables for note in table.notes)
    found = tuple(rows[size] for size in sorted(rows))
    return replace(tables[0], rows=found, notes=notes)


def fastest(fits: Mapping[str, Fit]) -> list[tuple[int, str]]:
    """Return from which sizes on, bytes, which algorithm is the fastest; the first from 1.

    Args:
        fits: By algorithm, one or more.
    """
    # Where only some were measured, these are compared.
    low = max(fit.pieces[0].first for fit in fits.values())
    high = min(fit.pieces[-1].last for fit in fits.values())
    ends = {size for fit in fits.values() for one in fit.pieces for size in (one.first, one.last)}
    doubling = {low << power for power in range(64) if low << power <= high}
    sizes = sorted({low, high, *doubling, *(size for size in ends if low <= size <= high)})

    def best(size: int) -> str:
        return min(fits, key=lambda name: fits[name].time_us(size))

    found = [(1, best(sizes[0]))]
    for below, above in pairwise(sizes):
        name = best(above)
        if name == found[-1][1]:
            continue
        before, at, until = fits[found[-1][1]], below, above
        while until - at > 1:
            middle = (at + until) // 2
            if fits[name].time_us(middle) < before.time_us(middle):
                until = middle
            else:
                at = middle
        found.append((until, name))
    return found


def switching_dimension(named: dict[str, Table]) -> dict[str, Any]:
    """Return the dimension of tables of several algorithms over the same ranks."""
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
        "bandwidth": f"{plain(rate / 1e9, 6)} GB/s",
        "latency": f"{plain(fixed / alone(_STEPS, first, 1), 4)} us",
        "fastest": {operation: [{"from": f"{at} B", "algorithm": name} for at, name in points]},
    }
