"""`allrail cost`: what fabrics are made of, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from allrail.base.units import show_number
from allrail.cli import options, output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.simulation.graphs import Priced


@click.command()
@click.argument("fabrics", metavar="FABRIC...", nargs=-1, required=True, type=options.Named())
@click.option(
    "--prices",
    type=options.Input(),
    metavar="FILE",
    help="Prices of `switch`, `aoc`, `dac`, `pcb` in US dollars; `hammingmesh` if left out",
)
@options.as_json
@function("cost")
def command(priced: Priced) -> None:
    """Print switches, cables and their price: HammingMesh's Table II for any fabrics.

    Savings are prices alone: the first fabric's over each one's.
    """
    output.table(
        ["fabric", "npus", "switches", "AoC", "DAC", "diameter", "cost_M$", "npus/M$", "savings"],
        [
            [
                row["name"],
                str(row["npus"]),
                str(row["switches"]),
                str(row["cables"]["aoc"]),
                str(row["cables"]["dac"]),
                "-" if row["diameter"] is None else str(row["diameter"]),
                f"{row['cost_usd'] / 1e6:.3f}",
                "-"
                if row["npus_per_million_usd"] is None
                else f"{row['npus_per_million_usd']:.1f}",
                "-" if row["savings"] is None else f"{row['savings']:.3f}",
            ]
            for row in priced["fabrics"]
        ],
    )
    parts = ", ".join(
        f"{part} {show_number(price, 6)} $" for part, price in priced["prices"].items()
    )
    output.note(f"over all planes; {parts}")
    output.note("diameter by formula, in cables; savings: the first fabric's price over this one's")
