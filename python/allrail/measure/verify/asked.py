"""Predicted against measured, of a run that was recorded, or of a trace: `allrail.verify`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from allrail.base.arguments import PathLike, checked
from allrail.base.errors import InputError
from allrail.base.files import write_yaml
from allrail.base.progress import Progress
from allrail.formats.flight_recorder import is_dump
from allrail.measure.verify.run import verify_records
from allrail.measure.verify.trace import verify_trace
from allrail.measure.verify.verdict import Verdict
from allrail.results.answer import renderers
from allrail.runtime import record


@checked
def verify(
    run: PathLike,
    *,
    out: PathLike | None = None,
    fabric: str | None = None,
    step: int | None = None,
    npus: int | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Compare a run with the simulation of the same job, and say which assumption was off.

    Args:
        run: The folder of `allrail run --trace`; or what PyTorch's profiler or its Flight Recorder
            wrote, a file of one rank or a folder with one of every rank.
        out: File for the fabric as it was measured, for the next prediction.
        fabric: Network to compare a trace with: a preset or a file.
        step: Of a trace, `ProfilerStep#N` alone.
        npus: Number of ranks, where a trace does not state it.
        report: Folder for result, table and report.
        progress: Called with what is done and the total, of a trace.

    Returns:
        The step as planned, with one number at a time as measured, and with all, ms; the exchanges,
        a row each; `fabric` as it was measured.

    Raises:
        InputError: There is no run, it holds no whole step, or a trace has no `fabric`.

    Example:
        `allrail.verify("traces", fabric="dgx-h100").worst`
    """
    path = Path(run)
    if _is_trace(path):
        verdict = _of_trace(path, fabric, step, npus, progress)
    else:
        verdict = _of_run(path, {"--fabric": fabric, "--step": step, "--npus": npus})
    verdict = replace(verdict, run=path.name)
    if out is not None:
        write_yaml(Path(out), verdict.fabric)
    if report is not None:
        renderers().write(verdict, Path(report))
    return verdict


def _is_trace(run: Path) -> bool:
    """Whether it is no folder of records, and may be a trace."""
    if is_dump(run):
        return True
    if run.is_dir():
        records = any(run.glob("rank*-*-restart*.json.gz"))
        return not records and any((*run.glob("*.json"), *run.glob("*.json.gz")))
    return run.is_file() and run.name.endswith((".json", ".json.gz"))


def _of_trace(
    run: Path, fabric: str | None, step: int | None, npus: int | None, progress: Progress | None
) -> Verdict:
    if fabric is None:
        raise InputError(
            "a trace does not say on which network it was taken",
            source="RUN",
            value=str(run),
            hint="name it by `--fabric`: a preset, or a file of `allrail calibrate`",
        )
    return verify_trace([run], fabric=fabric, step=step, npus=npus, progress=progress)


def _of_run(run: Path, given: dict[str, object]) -> Verdict:
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
        return verify_records(records)
