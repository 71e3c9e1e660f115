"""`allrail run`: a training command with recording on, and what its ranks have recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from allrail.base.units import show_count
from allrail.cli import options, output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.runtime.recorded import Recorded


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--trace",
    type=options.Output(file_okay=False),
    metavar="DIR",
    required=True,
    help="Where ranks write what they record, and where `trace.json.gz` is put; all must see it",
)
@options.as_json
@click.argument("command", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@function("run")
def command(recorded: Recorded) -> None:
    """Run CMD, such as `torchrun ... train.py`, and print what its step is made of.

    The script stays as it is: it calls `allrail.torch.schedule`. Signals are passed on, and the
    exit status is that of CMD. Afterwards DIR has `trace.json.gz` for ui.perfetto.dev, one process
    a rank. With --json the reports of all ranks are printed as data.
    """
    if not recorded.records:
        return
    each = zip(recorded.records, recorded.reports, strict=True)
    models = {record["model"]: report for record, report in reversed([*each])}
    for model in sorted(models):
        output.text(str(models[model]))
    output.note(
        f"{show_count(len(recorded.records), 'record')} in {recorded.trace}: open it at"
        " ui.perfetto.dev"
    )
