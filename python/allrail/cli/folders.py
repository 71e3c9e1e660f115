"""`--out DIR`: check it before the work, write it after, say what is where."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base import late
from allrail.base.errors import InputError
from allrail.base.files import check_folder, check_target
from allrail.base.units import show_count
from allrail.cli import output

if TYPE_CHECKING:
    from allrail.results.result import CollectivesResult
    from allrail.scenario import Scenario


def check(folder: Path, *, option: str) -> None:
    """Refuse a folder that cannot take results, before anything is computed.

    Args:
        folder: Where they shall be written.
        option: Which option named it.

    Raises:
        InputError: It is a file or lies in one, or nobody may write there.
    """
    check_folder(folder, option=option)
    _check_place(folder.absolute(), folder, option)


def check_results(folder: Path, *, option: str) -> None:
    """Refuse a folder that cannot take a `result.json` and a report, before anything is computed.

    Args:
        folder: Where they shall be written.
        option: Which option named it.

    Raises:
        InputError: As of `check`; or it has such files that allrail did not write.
    """
    check(folder, option=option)
    late.call("folder of results", folder, option=option)


def check_file(file: Path, *, option: str) -> None:
    """Refuse a file that cannot be written, before anything is computed.

    Args:
        file: What shall be written.
        option: Which option named it.

    Raises:
        InputError: It is a folder or lies in a file, nobody may write there, or it is there and
            allrail did not write it.
    """
    check_target(file, option=option)
    check_journal(file, option=option)


def check_journal(file: Path, *, option: str) -> None:
    """Refuse a file that cannot be appended to, before anything is computed.

    Args:
        file: What is there already says itself whether it is ours.
        option: Which option named it.

    Raises:
        InputError: It is a folder or lies in a file, or nobody may write there.
    """
    if file.is_dir():
        raise InputError("it is a folder", source=option, value=str(file), hint="name a file")
    _check_place(file.absolute().parent, file, option)


def _check_place(folder: Path, named: Path, option: str) -> None:
    """Refuse a folder that is not there and cannot be made, or takes no files."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    why = ""
    if not there.is_dir():
        why = f"`{os.path.relpath(there)}` is a file"
    elif not os.access(there, os.W_OK):
        why = "Permission denied"
    if why:
        raise InputError(
            f"it cannot be written: {why}",
            source=option,
            value=str(named),
            hint="name a place where you may write and that has room",
        )


def tell_replaced(folder: Path) -> None:
    """Warn that a folder holds the results of another run, which are about to be replaced.

    Args:
        folder: Where results shall be written.
    """
    if (folder / "result.json").exists():
        output.warn(f"`{folder}` held the results of another run; they are replaced")


def write(
    folder: Path, *, results: Mapping[str, CollectivesResult], scenarios: Mapping[str, Scenario]
) -> None:
    """Write tables, pictures, trace and report.

    Args:
        folder: Where.
        results: By label.
        scenarios: By the same labels.
    """
    tell_replaced(folder)
    late.call("write results", folder, results=results, scenarios=scenarios)


def answer(folder: Path, kind: str, told: Mapping[str, Any]) -> None:
    """Write what a verb answers and its report, and say where they are.

    Args:
        folder: Where.
        kind: Which answer, as `allrail.output.report.answer` has it.
        told: The answer as plain values.
    """
    tell_replaced(folder)
    late.call("write answer", folder, kind, told)
    tell(folder)


def tell(folder: Path, *, left_out: Iterable[int | None] = ()) -> None:
    """Say on stderr where the report and the pictures are.

    Args:
        folder: What was written.
        left_out: How many slices the timelines have that were too long.
    """
    pictures = sorted(folder.glob("*.png"))
    report = folder / "report.html"
    lines = [f"report    {report}"] if report.exists() else []
    lines += [f"picture   {path}" for path in pictures]
    if (folder / "trace.json.gz").exists():
        lines.append(f"trace     {folder / 'trace.json.gz'} (for ui.perfetto.dev)")
    lines.append(f"tables    {folder}/*.csv, *.parquet, result.json")
    if slices := sum(count or 0 for count in left_out):
        lines.append(f"timeline  {show_count(slices, 'slice')} left out: `--timeline` writes them")
    output.text("\n".join(lines), err=True)
