"""ASTRA-sim's files on the command line: its options, its columns, its own result beside ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from allrail.cli import output
from allrail.cli.options import Input

if TYPE_CHECKING:
    from allrail.measure.beside_astra_sim import BesideAstraSim
    from allrail.results.result import Result

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--network",
        "--network-configuration",
        type=Input(),
        metavar="N",
        help="ASTRA-sim's network (.json, .yml)",
    ),
    click.option(
        "--system",
        "--system-configuration",
        type=Input(),
        metavar="S",
        help="ASTRA-sim's system (.txt, .json)",
    ),
    click.option(
        "--workload",
        "--workload-configuration",
        type=Input(),
        metavar="W",
        help="ASTRA-sim's workload (.txt), or its trace: the path without `.<rank>.et`",
    ),
    click.option(
        "--comm-group",
        "--comm-group-configuration",
        type=Input(spooled=True),
        metavar="G",
        help="Process groups of ASTRA-sim's trace",
    ),
    click.option(
        "--remote-memory",
        "--remote-memory-configuration",
        type=Input(),
        metavar="R",
        help="ASTRA-sim's remote memory, which is not modelled; prints a warning",
    ),
    click.option("--comm-scale", type=float, metavar="X", help="Multiply ASTRA-sim's sizes"),
    click.option(
        "--compute-scale", type=float, metavar="X", help="Multiply ASTRA-sim's compute times"
    ),
    click.option("--num-passes", type=int, metavar="N", help="Repeat ASTRA-sim's workload"),
)


def files(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--network`, `--system`, `--workload` and ASTRA-sim's other options.

    Args:
        command: What takes them.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def show_columns(result: Result) -> None:
    """Print ASTRA-sim's columns of a case.

    Args:
        result: What came of it.
    """
    row = result.astra_sim or {}
    output.table(output.joined([*row, ""])[:-1], [list(row.values())])


def show_beside(beside: BesideAstraSim) -> None:
    """Print what ASTRA-sim printed of a case beside ours.

    Args:
        beside: The columns of both.
    """
    output.table(
        ["column", "astra_sim", "allrail", "difference_%"],
        [
            [
                row["column"],
                f"{row['astra_sim']:.3f}",
                f"{row['allrail']:.3f}",
                "-" if row["difference"] is None else f"{100 * row['difference']:+.3f}",
            ]
            for row in beside.rows
        ],
    )
    theirs = beside.theirs
    of = f", {theirs.name}" if theirs.name else ""
    output.note(f"ASTRA-sim {beside['version']}: `{theirs.file}`{of}")
