"""The table of nccl-tests that a fabric should show, beside a measured one: `allrail.expect`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from allrail import _core
from allrail.base.arguments import PathLike, checked
from allrail.base.errors import InputError
from allrail.base.units import show_count, show_number
from allrail.measure.calibrate.expected import HOST_US, as_measured, check, cluster_for, rows_of
from allrail.measure.calibrate.judge import Judgement, judge
from allrail.measure.calibrate.machine import machine_of
from allrail.measure.calibrate.nccl import Cluster, ways
from allrail.measure.calibrate.predict import part_of
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.shape import HEALTHY, large_share
from allrail.measure.calibrate.table import AROUND, Table, chosen
from allrail.results.answer import renderers
from allrail.results.table import ToldTable
from allrail.scenario import load_any_fabric
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.fabric import Fabric
from allrail.scenario.fields import parse_quantity

_SIZES = tuple(1 << power for power in range(10, 34, 2))


class Expected(ToldTable):
    """Times and bus bandwidths that a fabric should show, a row a size, beside measured ones.

    Attributes:
        sizes: The rows as records.
        found: Ranges, dips and possible causes, of what was measured.
        notes: What was assumed.
        error: What is known of the error of what is expected.
        measured: Whether anything was measured.
        missed: Whether large sizes reach less than was asked for.
    """

    __slots__ = ("error", "found", "measured", "missed", "notes", "sizes")
    kind: ClassVar[str] = "expected"
    PLOTTED: ClassVar[tuple[str, str]] = ("bytes", "expected_busbw")
    sizes: list[Any]
    found: Judgement
    notes: list[str]
    error: str
    measured: bool
    missed: bool

    @property
    def exit_status(self) -> int:
        """1 where less is reached than was asked for, else 0."""
        return 1 if self.missed else 0


@checked
def expect(
    fabric: str | None = None,
    *,
    measured: PathLike | None = None,
    collective: str | None = None,
    ranks: int | None = None,
    machines: int | None = None,
    table: int | None = None,
    type: str | None = None,  # noqa: A002, as it is typed
    at_least: float | None = None,
    from_: str | None = None,
    report: PathLike | None = None,
) -> Expected:
    """Return the table of nccl-tests that a fabric should show, beside a measured one.

    Args:
        fabric: A preset or a file; the preset whose devices `measured` names if None.
        measured: Output of nccl-tests (or compatible).
        collective: Collective; that of the file, else all_reduce, if None.
        ranks: Number of ranks: selects a table, or states it; else all NPUs.
        machines: Number of machines; as the file says, or as few as possible, if None.
        table: Number of the table in the file, from 1.
        type: Element type, where the file has several: `float`, ...
        at_least: Part of the expected bandwidth that large sizes have to reach.
        from_: With `at_least`: every size from this one on is checked, such as `1 MiB`.
        report: Folder for result, table and report.

    Returns:
        `rows`: bytes, algorithm, time (µs) and bus bandwidth (GB/s), expected and measured; with
        `measured` also `ranges` with a verdict each, `falls` and possible `causes`.

    Raises:
        InputError: There is nothing to look at, or a table cannot be read.

    Example:
        `allrail.expect("dgx-h100", ranks=16).to_polars()`
    """
    for name, count, least in (("ranks", ranks, 2), ("machines", machines, 1), ("table", table, 1)):
        if count is not None and count < least:
            raise InputError(f"it is below {least}", field=name, value=str(count))
    if at_least is not None and not 0 < at_least <= 2:
        raise InputError(
            "it is not above 0 and at most 2",
            field="at_least",
            value=str(at_least),
            hint="for example `0.9`",
        )
    file = None if measured is None else Path(measured)
    tables = _table(file, collective=collective, ranks=ranks, number=table, dtype=type)
    if tables is not None and machines is not None:
        tables = replace(tables, hosts=machines)
    expected = _expected(
        fabric,
        tables,
        collective=collective,
        ranks=ranks,
        machines=machines,
        at_least=at_least,
        from_=from_,
    )
    if report is not None:
        renderers().write(expected, Path(report))
    return expected


def _expected(
    fabric: str | None,
    tables: Table | None,
    *,
    collective: str | None,
    ranks: int | None,
    machines: int | None,
    at_least: float | None,
    from_: str | None,
) -> Expected:
    least = _start(from_, at_least=at_least, table=tables)
    name = collective or (tables.collective if tables else None) or "all_reduce"
    taken = None
    if fabric is None:
        if tables is None:
            raise InputError(
                "there is nothing to look at",
                hint="name a FABRIC, or what was measured by `--measured FILE`",
            )
        taken = machine_of(tables, collective=name)
        fabric = taken.fabric
    loaded = dimensions_of(load_any_fabric(fabric))
    dimensions = [one.model_dump(exclude_defaults=True) for one in loaded.dimensions]
    count = ranks or (tables.ranks if tables else None) or loaded.npus
    check(name, count)
    cluster = cluster_for(
        dimensions,
        count,
        table=tables,
        hosts=machines,
        calibrated=loaded.calibrated,
        sums=taken is not None and taken.sums,
    )
    sizes = [row.bytes for row in tables.rows] if tables else [*_SIZES]
    times = {row.bytes: row.time_us for row in tables.rows} if tables else {}
    rows = rows_of(ways(cluster, name), name, count, sizes, times)
    within = None
    if loaded.library is not None:
        hosts = machines if tables is None else tables.hosts
        rows = as_measured(loaded, rows, name, count, hosts)
        part = part_of([one.size for one in loaded.dimensions], count, hosts)
        within = loaded.library.error_of(name, part)
    several = True if cluster.nodes > 1 else False if machines == 1 else None
    if tables and tables.hosts:
        several = tables.hosts > 1
    found = judge(rows, cluster, name, several=several)
    reached = large_share(rows, start=least)
    missed = at_least is not None and reached is not None and reached < at_least
    figures = "calibrated" if loaded.calibrated else "nominal rates, uncalibrated"
    where = f"{show_count(cluster.nodes, 'machine')} of {cluster.each:,}"
    notes = [
        f"{name} over {count} ranks of {fabric} ({where}), GB/s; {figures}",
        _basis(cluster, within),
    ]
    notes += _remarks(tables, taken.why if taken else None, several=several, found=found)
    if at_least is not None and reached is not None:
        sizes_said = f"every size from {from_} on" if from_ else "large sizes"
        word = "less than" if missed else "at least"
        notes.append(f"{sizes_said}: {reached:.2f} of the expected bandwidth, {word} {at_least:g}")
    tree: dict[str, Any] = {
        "fabric": fabric,
        "taken_because": taken.why if taken else None,
        "collective": name,
        "ranks": count,
        "machines": cluster.nodes,
        "rows": [asdict(row) for row in rows],
        **({"large_share": found.large, "as_expected": found.healthy} if tables else {}),
        "ranges": [asdict(one) for one in found.ranges],
        "falls": [{**asdict(one), "told": one.told} for one in found.falls],
        "causes": [asdict(one) for one in found.causes],
        **({"at_least": at_least, "reached": reached, "met": not missed} if at_least else {}),
    }
    expected = Expected(tree)
    expected.sizes, expected.found, expected.notes = rows, found, notes
    expected.error, expected.measured = _error(loaded, within), tables is not None
    expected.missed = missed
    return expected


def _basis(cluster: Cluster, within: float | None) -> str:
    """What is expected; `within` of a fabric that has tables."""
    if within is None:
        made = cluster.generation.name.capitalize()
        return f"expected: NCCL's algorithms on {made}, and {HOST_US:.0f} us of the host"
    share = show_number(100 * within, 2)
    return f"expected: as the tables that the fabric is calibrated from, within {share} %"


def _error(fabric: Fabric, within: float | None) -> str:
    """What is known of the error of what is expected; `within` of a fabric that has tables."""
    if within is not None and fabric.library is not None:
        of = "rows of the tables"
        if fabric.library.tables_error not in (None, within):
            of = "predictions: no table is of it, and not all that explains the tables agrees"
        return f"error: network {show_number(100 * within, 2)} % at most for nine of ten {of}"
    if fabric.error is not None:
        return f"error: network {show_number(100 * fabric.error, 2)} % by the fabric's `error`"
    some, all_of_them, least, most = HEALTHY
    off = f"{100 * (least - 1):+.0f} to {100 * (most - 1):+.0f} %"
    return (
        f"error: network unknown, nobody measured it; {some} of {all_of_them} healthy tables that"
        f" users posted are {off} off where bytes count"
    )


def _table(
    measured: Path | None,
    *,
    collective: str | None,
    ranks: int | None,
    number: int | None,
    dtype: str | None,
) -> Table | None:
    """The measured table; one of several."""
    if measured is None:
        return None
    [table] = chosen(
        read_tables(measured),
        source=str(measured),
        collective=collective,
        ranks=ranks,
        number=number,
        dtype=dtype,
    )
    if table.ranks is None and table.collective in AROUND:
        raise InputError(
            "it does not say how many ranks took part",
            source=str(measured),
            hint="say it by `--ranks`",
        )
    return table


def _start(start: str | None, *, at_least: float | None, table: Table | None) -> int | None:
    """Bytes from which on sizes are checked; None for the large ones."""
    if at_least is None and start is not None:
        raise InputError(
            "nothing is checked without `--at-least`", source="--from", hint="add `--at-least 0.9`"
        )
    if at_least is not None and table is None:
        raise InputError(
            "nothing was measured that could be checked",
            source="--at-least",
            hint="add `--measured FILE`",
        )
    if start is None:
        return None
    try:
        size = parse_quantity("size", start)
    except _core.InputError:
        raise InputError(
            "it is no size", source="--from", value=start, hint="such as `1 MiB`"
        ) from None
    if table is not None and size > table.rows[-1].bytes:
        raise InputError(
            "no size as large was measured",
            source="--from",
            value=start,
            hint=f"the largest of `{table.source}` has {table.rows[-1].bytes:,} bytes",
        )
    return size


def _remarks(
    table: Table | None, why: str | None, *, several: bool | None, found: Judgement
) -> list[str]:
    notes = [why] if why else []
    if table is None:
        return notes
    if table.device:
        notes.append(f"measured on {table.device}")
    notes += table.notes
    if found.causes and several is None:
        notes.append("it is not said on how many machines: causes of one and of several are named")
    return notes
