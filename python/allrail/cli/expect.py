"""`allrail expect`: the table that a fabric should show, beside a measured one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.cli import options, output
from allrail.cli.function import function
from allrail.measure.calibrate.shape import size_text

if TYPE_CHECKING:
    from allrail.measure.calibrate.judge import Judgement
    from allrail.measure.expected import Expected


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
    type=click.IntRange(1),
    help="Number of the table in FILE: 1, 2, ...",
)
@click.option("--type", help="Element type, where FILE has several (`-d all`): float, ...")
@click.option(
    "--at-least",
    type=click.FloatRange(0, 2, min_open=True),
    metavar="SHARE",
    help="Exit 1 if large sizes reach less of the expected bandwidth",
)
@click.option(
    "--from",
    "from_",
    metavar="SIZE",
    help="With --at-least: check every size from this one on, such as 1 MiB",
)
@options.as_json
@options.report
@function("expect")
def command(expected: Expected, *, report: Path | None) -> None:
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
    _show(expected.sizes, expected.notes, expected.found, measured=expected.measured)
    output.note(expected.error)
    if report is not None:
        output.note(f"the report is in {report}")


def _show(rows: Any, notes: list[str], found: Judgement, *, measured: bool) -> None:
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
