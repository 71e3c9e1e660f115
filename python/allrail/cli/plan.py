"""`allrail plan`: make a scenario's plan, print what it does, keep it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.cli import options

if TYPE_CHECKING:
    from allrail.plans import Plan

_LETTERS = {
    "reduce_scatter": "RS",
    "all_gather": "AG",
    "all_reduce": "AR",
    "all_to_all": "A2A",
    "broadcast": "BC",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.sets
@options.plugin
@click.option("--json", "as_json", is_flag=True, help="Print the plan itself.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="PLAN", help="Write the plan to this file."
)
@options.cache
def command(
    *, file: Path, sets: tuple[str, ...], as_json: bool, out: Path | None, cache: bool
) -> None:
    """Plan the scenario in FILE: every chunk, its stages, and the order on every dimension.

    `allrail simulate FILE --plan PLAN` runs the plan again.
    """
    from allrail import api
    from allrail.cli import output

    plan = api.plan(file, sets=sets, cache=cache)
    if out is not None:
        plan.save(out)
    if as_json:
        output.print_json(plan.to_dict())
        return
    show(plan)
    if out is not None:
        output.note(f"written to {out}")


def show(plan: Plan) -> None:
    """Print how many chunks take which route through the dimensions.

    Args:
        plan: What was planned.
    """
    from allrail.cli import output

    rows = []
    for index, one in enumerate(plan.plans):
        routes = Counter(_route(chunk) for chunk in one["chunks"])
        rows += [
            [str(index), one["policy"], one["operation"], str(count), route]
            for route, count in routes.most_common()
        ]
    output.table(["collective", "policy", "operation", "chunks", "route"], rows)
    output.note("a route: operation and dimension (from 1) of each stage, in the chunk's order")


def _route(chunk: dict[str, Any]) -> str:
    return ",".join(
        f"{_LETTERS.get(stage['operation'], stage['operation'])}{stage['dimension'] + 1}"
        for stage in chunk["stages"]
    )
