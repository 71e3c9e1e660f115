"""`allrail schema`: the JSON schemas of what allrail reads."""

from __future__ import annotations

import click


@click.command()
@click.argument(
    "what", type=click.Choice(["scenario", "fabric", "plan", "job"]), default="scenario"
)
def command(*, what: str) -> None:
    """Print the JSON schema of a scenario, a fabric, a plan or a job file."""
    from allrail.cli import output
    from allrail.output.schemas import schema

    output.print_json(schema(what))
