"""`allrail simulate`: one scenario, or an ASTRA-sim case as its files describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from allrail.base import late
from allrail.cli import astra_sim as astra
from allrail.cli import options
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.results.result import Result


@click.command()
@click.argument("scenario", metavar="[FILE]", type=options.Input(), required=False)
@options.sets
@options.plugin
@click.option(
    "--network-model",
    metavar="NAME",
    help="Network model, such as `links`; short for `--set network_model=NAME`",
)
@click.option(
    "--plan", type=options.Input(), metavar="PLAN", help="Run this plan instead of planning"
)
@options.as_json
@options.out
@options.timeline
@options.cache
@click.option(
    "--what-if",
    multiple=True,
    callback=options.listed,
    metavar="A,B,...",
    help="Of a workload, also simulate the step under assumptions: `infinite_bandwidth`, "
    "`ideal_schedule`, `dim1_x2`, `no_straggler` or `all`",
)
@click.option("--astra-sim", is_flag=True, help="Read ASTRA-sim's files instead of FILE")
@astra.files
@click.option(
    "--write-scenario",
    type=options.Output(),
    metavar="FILE",
    help="Also write the case as a scenario",
)
@function("simulate", doing="simulating", counts=False, folder="out", check=options.slices)
def command(result: Result, *, astra_sim: bool) -> None:
    """Simulate the scenario in FILE, or an ASTRA-sim case with --astra-sim."""
    view = late.found(f"view of {result.kind}")
    if astra_sim:
        view.show_case(result)
    else:
        view.show(result)
