"""`allrail expect`: the table that a fabric should show, beside a measured one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from allrail.cli import options

_FILE = click.Path(path_type=Path)
_SIZES = tuple(1 << power for power in range(10, 34, 2))


@click.command()
@click.argument("fabric", metavar="FABRIC", required=False)
@click.option("--measured", type=_FILE, metavar="FILE", help="Of nccl-tests or their kin.")
@click.option("--collective", help="all_reduce if neither this nor FILE says.")
@click.option(
    "--ranks",
    type=click.IntRange(2),
    help="Of several tables in FILE, this one; of a table that does not say. Else all NPUs.",
)
@click.option(
    "--table",
    "number",
    type=click.IntRange(1),
    help="Of several tables in FILE, this one: 1, 2, ...",
)
@click.option("--type", "dtype", help="Of tables of several types (`-d all`), this one: float, ...")
@options.as_json
def command(
    *,
    fabric: str | None,
    measured: Path | None,
    collective: str | None,
    ranks: int | None,
    number: int | None,
    dtype: str | None,
    as_json: bool,
) -> None:
    """Print the table of nccl-tests that FABRIC should show, beside the one in FILE.

    FABRIC is a preset or a file; left out, it is the preset whose devices FILE names. Where the
    measured bandwidth is less than 70 % of what is expected, or does not grow with size, the causes
    that may do that are named, each with what would tell it from the others.

    \b
    Examples:
      allrail expect dgx-h100 --ranks 16
      allrail expect dgx-h100 --measured all_reduce.txt
      allrail expect --measured all_reduce.txt
    """  # noqa: D301, click wants the character
    from allrail.calibrate.judge import expect, judge
    from allrail.calibrate.machine import machine_of
    from allrail.calibrate.network import OPERATIONS
    from allrail.calibrate.read import read_tables
    from allrail.calibrate.table import chosen
    from allrail.cli import output
    from allrail.errors import InputError
    from allrail.scenario import load_any_fabric
    from allrail.scenario.dimensions import aggregate, dimensions_of

    table = None
    if measured is not None:
        [table] = chosen(
            read_tables(measured),
            source=str(measured),
            collective=collective,
            ranks=ranks,
            number=number,
            dtype=dtype,
        )
        if table.ranks is None and table.collective in OPERATIONS:
            raise InputError(
                "it does not say how many ranks took part",
                source=str(measured),
                hint="say it by `--ranks`",
            )
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
    sizes = [row.bytes for row in table.rows] if table else _SIZES
    rows = expect(dimensions, collective=name, ranks=count, sizes=sizes, table=table)
    inner = int(dimensions[0]["size"])
    nic = aggregate(dimensions[-1]) / 1e9
    several = True if count > inner else None
    if table and table.hosts:
        several = table.hosts > 1
    causes = judge(rows, several=several, nic=nic) if table else []
    if as_json:
        output.print_json(
            {
                "fabric": fabric,
                "taken_because": taken.why if taken else None,
                "collective": name,
                "ranks": count,
                "rows": [asdict(row) for row in rows],
                "causes": [asdict(one) for one in causes],
            }
        )
        return
    header = ["bytes", "expected_us", "expected_busbw"]
    header += ["measured_us", "measured_busbw", "%"] if table else []
    lines = []
    for row in rows:
        line = [str(row.bytes), f"{row.expected_us:.2f}", f"{row.expected_busbw:.2f}"]
        if row.measured_us is not None and row.measured_busbw is not None:
            share = 100 * row.measured_busbw / row.expected_busbw
            line += [f"{row.measured_us:.2f}", f"{row.measured_busbw:.2f}", f"{share:.0f}"]
        lines.append(line)
    output.table(header, lines)
    figures = "calibrated" if loaded.calibrated else "nominal rates, uncalibrated"
    output.note(f"{name} over {count} ranks of {fabric}, GB/s; {figures}")
    if taken:
        output.note(taken.why)
    if table and table.device:
        output.note(f"measured on {table.device}")
    if table:
        for note in table.notes:
            output.note(note)
        if causes and several is None:
            output.note(
                "it is not said on how many machines: causes of one and of several are named"
            )
        if not causes:
            output.note("as it should be")
        for one in causes:
            output.note(f"it may be: {one.what}")
            output.note(f"  why: {one.why}")
            output.note(f"  to tell: {one.test}")
