"""`allrail reproduce`: published numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options
from allrail.cli.group import Group

if TYPE_CHECKING:
    from allrail.reproduce import Reproduction


@click.group(cls=Group)
def command() -> None:
    """Compute published numbers again and print the difference.

    Exit status 1 if one is out of its tolerance.
    """


@command.command("themis")
@click.option("--seeds", type=click.IntRange(1), default=20, help="Perturbed fabrics per plan.")
@click.option("--links/--no-links", default=True, help="Also in `links` (takes the longest).")
@options.as_json
@options.out
@options.cache
def themis(*, seeds: int, links: bool, as_json: bool, out: Path | None, cache: bool) -> None:
    """The Themis paper (ISCA'22) on its six platforms, and allrail's own policy."""
    from allrail.cli import output
    from allrail.reproduce import themis as paper
    from allrail.reproduce.grid import CELLS

    with output.Progress("reproducing Themis") as progress:
        cells = CELLS if links else ()
        outcome = paper.run(seeds=seeds, links=cells, cache=cache, progress=progress)
    _show(outcome, as_json=as_json, out=out)


@command.command("astra-sim")
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder with `expected.json` and its files; $ALLRAIL_REFERENCE if left out.",
)
@options.as_json
@options.out
def astra_sim(*, reference: Path | None, as_json: bool, out: Path | None) -> None:
    """ASTRA-sim's tutorial (ASPLOS 2023), and what ASTRA-sim prints for the cases at hand."""
    from allrail.cli import output
    from allrail.reproduce import astra_sim as tutorial

    with output.Progress("reproducing ASTRA-sim") as progress:
        outcome = tutorial.run(reference=reference, progress=progress)
    _show(outcome, as_json=as_json, out=out)


def _show(outcome: Reproduction, *, as_json: bool, out: Path | None) -> None:
    from allrail.cli import output
    from allrail.reproduce.rows import HEADER

    if out is not None:
        outcome.write(out)
    if as_json:
        output.print_json(outcome.to_dict())
    else:
        output.table(HEADER, [row.cells() for row in outcome.rows])
        for note in outcome.notes:
            output.note(note)
    if not outcome.ok:
        wrong = [row.case for row in outcome.rows if row.ok is False]
        output.warn(f"out of tolerance: {'; '.join(wrong)}")
        click.get_current_context().exit(1)
