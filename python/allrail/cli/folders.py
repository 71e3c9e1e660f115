"""`--out DIR`: check it before the work, write it after, say what is where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from allrail.errors import InputError

if TYPE_CHECKING:
    from allrail.result import Result
    from allrail.scenario import Scenario


def check(folder: Path) -> None:
    """Refuse a folder that cannot take results, before anything is computed.

    Args:
        folder: Where they shall be written.

    Raises:
        InputError: It is a file, or holds something that would be lost.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError("it is a file", source="--out", value=str(folder), hint="name a folder")
    if (folder / "result.json").exists():
        from allrail.results.write import check_folder

        check_folder(folder)


def write(
    folder: Path, *, results: Mapping[str, Result], scenarios: Mapping[str, Scenario]
) -> None:
    """Write tables, pictures, trace and report.

    Args:
        folder: Where.
        results: By label.
        scenarios: By the same labels.
    """
    from allrail.results.write import write_results

    write_results(folder, results=results, scenarios=scenarios)


def tell(folder: Path) -> None:
    """Say on stderr where the report and the pictures are.

    Args:
        folder: What was written.
    """
    import click

    pictures = sorted(folder.glob("*.png"))
    report = folder / "report.html"
    lines = [f"report    {report}"] if report.exists() else []
    lines += [f"picture   {path}" for path in pictures]
    if (folder / "trace.json.gz").exists():
        lines.append(f"trace     {folder / 'trace.json.gz'} (for ui.perfetto.dev)")
    lines.append(f"tables    {folder}/*.csv, *.parquet, result.json")
    click.echo("\n".join(lines), err=True)
