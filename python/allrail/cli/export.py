"""`allrail export`: a scenario's training step as a Chakra trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options

if TYPE_CHECKING:
    from allrail.formats.chakra_export import Ranks


@click.command()
@click.argument("file", type=options.Input())
@options.sets
@click.option(
    "--chakra",
    "folder",
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
def command(
    *,
    file: Path,
    sets: tuple[str, ...],
    folder: Path,
    name: str | None,
    ranks: Ranks,
    as_json: bool,
) -> None:
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
    from allrail.base.stdin import stem
    from allrail.cli import output
    from allrail.formats.chakra_export import export_chakra
    from allrail.scenario import load_scenario

    name = stem(file) if name is None else name
    scenario = load_scenario(file, sets=sets)
    with output.Progress("writing nodes") as progress:
        told = export_chakra(scenario, folder=folder, name=name, ranks=ranks, progress=progress)
    if as_json:
        output.print_json({"folder": str(folder), "name": name} | told)
        return
    output.pairs([("trace", str(folder / name))] + [(key, f"{told[key]:,}") for key in told])
