"""`allrail report`: the page of results that were written before."""

from __future__ import annotations

from pathlib import Path

import click

from allrail.cli import options, output
from allrail.cli.function import function

_PAGE = "report.html"


@click.command()
@click.argument("path", metavar="DIR", type=options.Folder())
@click.option(
    "--out",
    type=options.Output(),
    callback=options.writable_file,
    metavar="FILE",
    help=f"Write the page here; `{_PAGE}` beside the results if left out",
)
@function("report")
def command(page: Path) -> None:
    """Write the report of results in DIR that `--out` or `--report` wrote: one page, offline.

    DIR may be the `result.json` in it. Nothing is simulated; pictures are taken as they are.

    \b
    Examples:
      allrail report out
      allrail report out --out page.html
    """  # noqa: D301, click wants the character
    output.text(f"report    {page}", err=True)
