"""`allrail expect`: the table that a fabric should show, beside a measured one."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.cli import options

if TYPE_CHECKING:
    from allrail.measure.calibrate.judge import Judgement
    from allrail.measure.calibrate.table import Table
    from allrail.scenario.fabric import Fabric

_SIZES = tuple(1 << power for power in range(10, 34, 2))


@click.command()
@click.argument("fabric", metavar="FABRIC", required=False, type=options.Named())
@click.option(
    "--measured", type=options.Input(), metavar="FILE", help="Output of nccl-tests (or compatible)"
)
@click.option("--collective", help="Collective; all_reduce if FILE does not state it")
@click.option(
    "--ranks",
    type=click.IntRange(2),
    help="Number of ranks: selects a table, or states it where a table does not; else all NPUs",
)
@click.option(
    "--machines",
    type=click.IntRange(1),
    help="Number of machines; else as FILE says, or as few as possible",
)
@click.option(
    "--table",
    "number",
    type=click.IntRange(1),
    help="Number of the table in FILE: 1, 2, ...",
)
@click.option("--type", "dtype", help="Element type, where FILE has several (`-d all`): float, ...")
@click.option(
    "--at-least",
    type=click.FloatRange(0, 2, min_open=True),
    metavar="SHARE",
    help="Exit 1 if large sizes reach less of the expected bandwidth",
)
@click.option(
    "--from",
    "start",
    metavar="SIZE",
    help="With --at-least: check every size from this one on, such as 1 MiB",
)
@options.as_json
@options.report
def command(
    *,
    fabric: str | None,
    measured: Path | None,
    collective: str | None,
    ranks: int | None,
    machines: int | None,
    number: int | None,
    dtype: str | None,
    at_least: float | None,
    start: str | None,
    as_json: bool,
    report: Path | None,
) -> None:
    """Print the table of nccl-tests that FABRIC should show, beside the one in FILE.

    FABRIC is a preset or a file; left out, it is the preset whose devices FILE names. Expected is
    what NCCL's own algorithms take (ring, tree, NVLS, in LL, LL128 and Simple), each size with the
    one that NCCL runs. Every range of sizes has a verdict; peaks and dips are named; possible
    causes follow, the one that explains the numbers best first.

    \b
    Examples:
      allrail expect dgx-h100 --ranks 16
      allrail expect dgx-h100 --ranks 2 --machines 2
      allrail expect dgx-h100 --measured all_reduce.txt --at-least 0.9
      allrail expect --measured all_reduce.txt --report out
    """  # noqa: D301, click wants the character
    from allrail.base.errors import InputError
    from allrail.base.units import show_number
    from allrail.cli import output
    from allrail.measure.calibrate.expected import HOST_US, as_measured, check, cluster_for, rows_of
    from allrail.measure.calibrate.judge import judge
    from allrail.measure.calibrate.machine import machine_of
    from allrail.measure.calibrate.nccl import ways
    from allrail.measure.calibrate.predict import part_of
    from allrail.measure.calibrate.shape import large_share
    from allrail.scenario import load_any_fabric
    from allrail.scenario.dimensions import dimensions_of

    table = _table(measured, collective=collective, ranks=ranks, number=number, dtype=dtype)
    if table is not None and machines is not None:
        table = replace(table, hosts=machines)
    least = _start(start, at_least=at_least, table=table)
    name = collective or (table.collective if table else None) or "all_reduce"
    taken = None
    if fabric is None:
        if table is None:
            raise InputError(
                "there is nothing to look at",
                hint="name a FABRIC, or what was measured by `--measured FILE`",
            )
        taken = machine_of(table, collective=name)
        fabric = taken.fabric
    loaded = dimensions_of(load_any_fabric(fabric))
    dimensions = [one.model_dump(exclude_defaults=True) for one in loaded.dimensions]
    count = ranks or (table.ranks if table else None) or loaded.npus
    check(name, count)
    cluster = cluster_for(
        dimensions,
        count,
        table=table,
        hosts=machines,
        calibrated=loaded.calibrated,
        sums=taken is not None and taken.sums,
    )
    sizes = [row.bytes for row in table.rows] if table else list(_SIZES)
    times = {row.bytes: row.time_us for row in table.rows} if table else {}
    rows = rows_of(ways(cluster, name), name, count, sizes, times)
    within = None
    if loaded.library is not None:
        hosts = machines if table is None else table.hosts
        rows = as_measured(loaded, rows, name, count, hosts)
        part = part_of([one.size for one in loaded.dimensions], count, hosts)
        within = loaded.library.error_of(name, part)
    several = True if cluster.nodes > 1 else False if machines == 1 else None
    if table and table.hosts:
        several = table.hosts > 1
    found = judge(rows, cluster, name, several=several)
    reached = large_share(rows, start=least)
    missed = at_least is not None and reached is not None and reached < at_least
    figures = "calibrated" if loaded.calibrated else "nominal rates, uncalibrated"
    where = f"{cluster.nodes:,} machine{'s' if cluster.nodes > 1 else ''} of {cluster.each:,}"
    made = cluster.generation.name.capitalize()
    notes = [
        f"{name} over {count} ranks of {fabric} ({where}), GB/s; {figures}",
        f"expected: NCCL's algorithms on {made}, and {HOST_US:.0f} us of the host"
        if within is None
        else "expected: as the tables that the fabric is calibrated from, within"
        f" {show_number(100 * within, 2)} %",
    ]
    notes += _remarks(table, taken.why if taken else None, several=several, found=found)
    if at_least is not None and reached is not None:
        sizes_said = f"every size from {start} on" if start else "large sizes"
        word = "less than" if missed else "at least"
        notes.append(f"{sizes_said}: {reached:.2f} of the expected bandwidth, {word} {at_least:g}")
    tree: dict[str, Any] = {
        "fabric": fabric,
        "taken_because": taken.why if taken else None,
        "collective": name,
        "ranks": count,
        "machines": cluster.nodes,
        "rows": [asdict(row) for row in rows],
        **({"large_share": found.large, "as_expected": found.healthy} if table else {}),
        "ranges": [asdict(one) for one in found.ranges],
        "falls": [{**asdict(one), "told": one.told} for one in found.falls],
        "causes": [asdict(one) for one in found.causes],
        **({"at_least": at_least, "reached": reached, "met": not missed} if at_least else {}),
    }
    error = _error(loaded, within)
    if report is not None:
        from allrail.output.report import answer

        answer.write(report, "expected", {**tree, "notes": [*notes, error]})
    if as_json:
        output.print_json(tree)
    else:
        _show(rows, notes, found, measured=table is not None)
        output.note(error)
        if report is not None:
            output.note(f"the report is in {report}")
    if missed:
        raise SystemExit(1)


def _error(fabric: Fabric, within: float | None) -> str:
    """What is known of the error of what is expected; `within` of a fabric that has tables."""
    from allrail.base.units import show_number
    from allrail.measure.calibrate.shape import HEALTHY

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
    from allrail.base.errors import InputError
    from allrail.measure.calibrate.read import read_tables
    from allrail.measure.calibrate.table import AROUND, chosen

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
    from allrail import _core
    from allrail.base.errors import InputError
    from allrail.scenario.fields import parse_quantity

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


def _show(rows: Any, notes: list[str], found: Judgement, *, measured: bool) -> None:
    from allrail.cli import output
    from allrail.measure.calibrate.shape import size_text

    header = ["bytes", "algorithm", "expected_us", "expected_busbw"]
    header += ["measured_us", "measured_busbw", "%_of_expected"] if measured else []
    lines = []
    for row in rows:
        line = [str(row.bytes), row.algorithm]
        line += [f"{row.expected_us:.2f}", f"{row.expected_busbw:.2f}"]
        if row.measured_us is not None and row.measured_busbw is not None:
            share = f"{100 * row.share:.0f}"
            line += [f"{row.measured_us:.2f}", f"{row.measured_busbw:.2f}", share]
        lines.append(line)
    output.table(header, lines)
    for note in notes:
        output.note(note)
    if not measured:
        return
    for one in found.ranges:
        sizes = size_text(one.first)
        if one.last > one.first:
            sizes += f" to {size_text(one.last)}"
        least, most = f"{100 * one.least:.0f}", f"{100 * one.most:.0f}"
        told = f"{least} %" if least == most else f"{least} to {most} %"
        output.note(f"{sizes}: {told} of the expected bandwidth, {one.verdict}")
    for fall in found.falls:
        output.note(fall.told)
    if found.healthy and all(one.verdict in ("as expected", "more") for one in found.ranges):
        output.note("no size is less than expected")
    for cause in found.causes:
        output.note(f"it may be: {cause.what}")
        output.note(f"  why: {cause.why}")
        output.note(f"  to tell: {cause.test}")
