"""`allrail verify`: predicted against measured, of a run that was recorded, or of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options

if TYPE_CHECKING:
    from allrail.measure.verify import Verdict


@click.command()
@click.argument("run", metavar="RUN", type=options.Input(spooled=True))
@click.option(
    "-o",
    "--out",
    "fabric",
    type=options.Output(),
    callback=options.writable_file,
    metavar="FILE",
    help="Write the fabric as it was measured, for the next prediction",
)
@click.option(
    "--fabric",
    "planned",
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
def command(
    *,
    run: Path,
    fabric: Path | None,
    planned: str | None,
    step: int | None,
    npus: int | None,
    report: Path | None,
    as_json: bool,
) -> None:
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
    from allrail.cli import folders, output

    if _is_trace(run):
        verdict = _of_trace(run, planned, step, npus)
    else:
        verdict = _of_run(run, {"--fabric": planned, "--step": step, "--npus": npus})
    if fabric is not None:
        from allrail.base.files import write_yaml

        write_yaml(fabric, verdict.fabric)
    if report is not None:
        folders.answer(report, "verdict", {**verdict.to_json(), "run": run.name})
    if as_json:
        output.print_json(verdict.to_json())
        return
    output.text(str(verdict))
    if fabric is not None:
        output.note(f"the fabric as measured is in {fabric}")


def _is_trace(run: Path) -> bool:
    """Whether it is no folder of records, and may be a trace."""
    from allrail.formats.flight_recorder import is_dump

    if is_dump(run):
        return True
    if run.is_dir():
        records = any(run.glob("rank*-*-restart*.json.gz"))
        return not records and any((*run.glob("*.json"), *run.glob("*.json.gz")))
    return run.is_file() and run.name.endswith((".json", ".json.gz"))


def _of_trace(run: Path, fabric: str | None, step: int | None, npus: int | None) -> Verdict:
    from allrail.base.errors import InputError
    from allrail.cli import output
    from allrail.measure.verify import verify_trace

    if fabric is None:
        raise InputError(
            "a trace does not say on which network it was taken",
            source="RUN",
            value=str(run),
            hint="name it by `--fabric`: a preset, or a file of `allrail calibrate`",
        )
    with output.Progress("simulating") as progress:
        return verify_trace([run], fabric=fabric, step=step, npus=npus, progress=progress)


def _of_run(run: Path, given: dict[str, object]) -> Verdict:
    from allrail.base.errors import InputError
    from allrail.measure.verify import verify
    from allrail.runtime import record

    if not run.is_dir():
        raise InputError(
            "it is no folder, and no trace" if run.exists() else "there is nothing of that name",
            source="RUN",
            value=str(run),
            hint="name the folder of `allrail run --trace`, or a `.json` of PyTorch's profiler",
        )
    records = record.read(run)
    if not records:
        raise InputError(
            "no rank has written a record there",
            source="RUN",
            value=str(run),
            hint="`allrail run --trace DIR torchrun ... train.py` makes some",
        )
    for name, value in given.items():
        if value is not None:
            raise InputError(
                "a recorded run has its own", source=name, value=str(value), hint="leave it out"
            )
    with record.whole(run):
        return verify(records)
