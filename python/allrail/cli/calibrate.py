"""`allrail calibrate network`: a fabric from what somebody measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options
from allrail.cli.group import Group

if TYPE_CHECKING:
    from allrail.calibrate.network import Calibrated

_FILE = click.Path(path_type=Path)


@click.group(cls=Group)
def command() -> None:
    """Make inputs of what was measured."""


@command.command("network")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("-o", "--out", type=_FILE, metavar="FABRIC", help="Write the fabric here.")
@click.option("--collective", help="Of several in a file, this one: all_reduce, all_gather, ...")
@click.option(
    "--ranks",
    type=click.IntRange(2),
    help="Of several tables, that over so many; of one that does not say (OSU's), how many.",
)
@options.as_json
def network(
    *,
    files: tuple[Path, ...],
    out: Path | None,
    collective: str | None,
    ranks: int | None,
    as_json: bool,
) -> None:
    """Make a fabric of tables that nccl-tests, OSU's tests or PyTorch's benchmarks print.

    One FILE gives one dimension over its ranks. Two, of one collective on one machine and on
    several, give the dimension within the machine and the one around it. Output of nccl-tests is
    read of any version, as people paste it, and of `-J`; a result that was wrong is refused.

    Shown are each size's time, that of the fit (pieces of a fixed time and a rate, with the sizes
    where the algorithm switches) and that of the simulator with the fabric; how far the fit is from
    sizes that it has not seen; and what the tables cannot tell.

    \b
    Examples:
      allrail calibrate network all_reduce.txt -o measured.yaml
      allrail calibrate network one_node.txt four_nodes.txt -o measured.yaml
    """  # noqa: D301, click wants the character
    from allrail.calibrate.network import calibrate
    from allrail.calibrate.read import read_tables
    from allrail.calibrate.table import chosen
    from allrail.cli import output

    every = [table for file in files for table in read_tables(file)]
    made = calibrate(
        chosen(every, source=str(files[0]), collective=collective, ranks=ranks, most=2)
    )
    if out is not None:
        from allrail.files import write_yaml

        write_yaml(out, made.fabric)
    if as_json:
        output.print_json(_tree(made))
        return
    _show(made)
    if out is not None:
        output.note(f"the fabric is in {out}")


def _tree(made: Calibrated) -> dict[str, object]:
    return {
        "fabric": made.fabric,
        "collective": made.table.collective,
        "ranks": made.table.ranks,
        "error": made.error,
        "error_of_larger_half": made.large,
        "every_second": made.every_second,
        "upper_half": made.upper_half,
        "switches": list(made.fit.switches),
        "left_out": list(made.fit.left_out),
        "unknown": list(made.unknown),
        "notes": list(made.table.notes),
        "rows": [
            {
                "bytes": row.bytes,
                "measured_us": row.time_us,
                "fitted_us": made.fit.time_us(row.bytes),
                "simulated_us": made.simulated_us[row.bytes],
            }
            for row in made.table.rows
        ],
    }


def _show(made: Calibrated) -> None:
    from allrail.cli import output

    rows = []
    for row in made.table.rows:
        fitted, simulated = made.fit.time_us(row.bytes), made.simulated_us[row.bytes]
        rows.append(
            [
                str(row.bytes),
                f"{row.time_us:.2f}",
                f"{fitted:.2f}",
                f"{100 * (fitted / row.time_us - 1):+.1f}",
                f"{simulated:.2f}",
                f"{100 * (simulated / row.time_us - 1):+.1f}",
            ]
        )
    output.table(["bytes", "measured_us", "fitted_us", "%", "simulated_us", "%"], rows)
    for one in made.fabric["dimensions"]:
        output.note(f"{one['size']} NPUs, {one['bandwidth']}, {one['latency']} a step")
    output.note(
        f"the simulator is within {100 * made.error:.0f} % of half of the sizes,"
        f" within {100 * made.large:.0f} % of half of the larger half"
    )
    if made.every_second is not None and made.upper_half is not None:
        output.note(
            f"fitted to every second size: half of the others within {100 * made.every_second:.1f}"
            f" %; to the lower half: of the upper half within {100 * made.upper_half:.0f} %"
        )
    if made.fit.switches:
        output.note(f"it switches at {', '.join(f'{one:,}' for one in made.fit.switches)} bytes")
    for size in made.fit.left_out:
        output.note(f"left out: {size:,} bytes, slower than the next size")
    for line in (*made.table.notes, *(f"not known: {one}" for one in made.unknown)):
        output.note(line)
