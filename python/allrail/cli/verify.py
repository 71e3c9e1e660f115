"""`allrail verify`: predicted against measured, of a run that was recorded, or of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options, output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.measure.verify import Verdict


@click.command()
@click.argument("run", metavar="RUN", type=options.Input(spooled=True))
@click.option(
    "-o",
    "--out",
    type=options.Output(),
    callback=options.writable_file,
    metavar="FILE",
    help="Write the fabric as it was measured, for the next prediction",
)
@click.option(
    "--fabric",
    type=options.Named(),
    metavar="F",
    help="Network to compare a trace with: a preset or a file",
)
@click.option("--step", type=int, metavar="N", help="Only ProfilerStep#N of a trace")
@click.option(
    "--npus", type=int, metavar="N", help="Number of ranks, where a trace does not state it"
)
@options.report
@options.as_json
@function("verify", doing="simulating", folder="report")
def command(verdict: Verdict, *, out: Path | None) -> None:
    """Compare RUN with the simulation of the same job, and say which assumption was off.

    RUN is the folder of `allrail run --trace`; or what PyTorch's profiler or its Flight Recorder
    wrote of any job, a file of one rank or a folder with one of every rank, with the network that
    --fabric names. The step
    is predicted as planned (with the fabric of the job file, or of --fabric), then with one number
    at a time as the run has measured it, then with all; every exchange is shown beside its
    prediction, and of a trace every step.

    \b
    Examples:
      allrail run --trace rec torchrun --nproc-per-node 4 train.py
      allrail verify rec
      allrail verify rec --out measured.yaml --report out
      allrail verify traces/ --fabric dgx-h100
    """  # noqa: D301, click wants the character
    output.text(str(verdict))
    if out is not None:
        output.note(f"the fabric as measured is in {out}")
