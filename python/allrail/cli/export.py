"""`allrail export`: a scenario's training step as a Chakra trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options, output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.results.answer import Told


@click.command()
@click.argument("scenario", metavar="FILE", type=options.Input())
@options.sets
@click.option(
    "--chakra",
    required=True,
    type=options.Output(),
    metavar="DIR",
    help="Folder to write",
)
@click.option("--name", metavar="NAME", help="Name of the trace; that of FILE if left out")
@click.option(
    "--ranks",
    type=click.Choice(["all", "representative"]),
    default="all",
    show_default=True,
    help="Ranks to write: all, or one of each group of identical ranks",
)
@options.as_json
@function("export", doing="writing nodes")
def command(told: Told, *, chakra: Path) -> None:
    """Write the step graph of the scenario in FILE as a Chakra trace.

    One file a rank, DIR/NAME.<rank>.et, in MLCommons' schema, and DIR/comm_group.json with the
    ranks of every process group, as ASTRA-sim reads them. One iteration is written; attributes of
    our own (allrail_...) keep what the schema has no place for. With `--ranks representative`
    identical ranks have one file, DIR/NAME.ranks.json says whose it is, and only allrail reads it.

    \b
    Examples:
      allrail export scenario.yaml --chakra out
      allrail export scenario.yaml --chakra out --ranks representative
      allrail export scenario.yaml --set workload.parallelism.tp=8 --chakra out8
    """  # noqa: D301, click wants the character
    counts = [(key, f"{count:,}") for key, count in told.items() if key not in ("folder", "name")]
    output.pairs([("trace", str(chakra / told["name"])), *counts])
