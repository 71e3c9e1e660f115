"""`allrail schema`: the JSON schemas of what allrail reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from allrail.cli import output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.results.answer import Told


@click.command()
@click.argument(
    "what", type=click.Choice(["scenario", "fabric", "plan", "job"]), default="scenario"
)
@function("schema")
def command(schema: Told) -> None:
    """Print the JSON schema of a scenario, a fabric, a plan or a job file."""
    output.print_json(schema)
