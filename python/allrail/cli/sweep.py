"""`allrail sweep`: a study's points, simulated, in one table with pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from allrail.base.units import show_count
from allrail.cli import options, output
from allrail.cli.function import function
from allrail.output.report.sweep import more_is_better
from allrail.search.sweeps.axes import written
from allrail.search.sweeps.known import known_line
from allrail.search.sweeps.table import ERROR

if TYPE_CHECKING:
    import polars as pl

    from allrail.search.sweeps import Swept

MOST_ROWS = 24
"""More would push everything else off the screen; the table has all."""
BEST = 10
_WORTH = (
    "utilisation",
    "share_of_injection",
    "exposed_communication_us",
    "tokens_per_s_per_npu",
    "samples_per_s",
    "mfu",
    "memory_fits",
    "cost_usd",
)


@click.command()
@click.argument("study", metavar="STUDY", type=options.Input())
@click.option(
    "--out",
    type=options.Output(),
    callback=options.writable,
    metavar="DIR",
    help="Write table, pictures and report into this folder; the study's name if left out",
)
@click.option(
    "--workers",
    type=int,
    metavar="N",
    help="Processes on this machine; one per core if left out",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Run on a Ray cluster: HOST:PORT of its head, or `auto`",
)
@options.plugin
@options.as_json
@function("sweep", doing="sweeping")
def command(swept: Swept) -> None:
    """Simulate a scenario for every point of a STUDY: combinations of values, or drawn points.

    Results are kept as they come: the same command goes on with a sweep that was interrupted. A
    point that is wrong is a row with its error; the exit status is 1 then.
    """
    show(swept)
    if (line := known_line(swept.study)) is not None:
        output.note(line)
    folder = swept.folder
    pictures = sorted(folder.glob("*.png"))
    lines = [f"report    {folder}/report.html", *(f"picture   {path}" for path in pictures)]
    output.text("\n".join([*lines, f"table     {folder}/sweep.parquet, sweep.csv"]), err=True)


def show(swept: Swept) -> None:
    """Print the points, or the best of them where they are many.

    Args:
        swept: What came of the sweep.
    """
    table = swept.table
    good = table.filter(table[ERROR].is_null())
    rows = table if len(table) <= MOST_ROWS else best(good, swept.shown).head(BEST)
    header = [*table.columns[: 1 + len(swept.fields)], *_results(swept, good)]
    cells = [
        ["-" if row[name] is None else written(row[name]) for name in header]
        for row in rows.iter_rows(named=True)
    ]
    if cells:
        output.table(header, cells)
    if len(rows) < len(table):
        output.note(f"the best {len(rows)} of {show_count(len(table), 'point')} by {swept.shown}")
    if swept.known:
        output.note(f"known from before: {show_count(swept.known, 'point')}")
    _tell_errors(swept)
    if len(good):
        output.predicted(
            good["network_model"].unique(maintain_order=True).to_list(),
            calibrated=bool(good["calibrated"].all()),
            errors=_errors(good),
        )


def _errors(good: pl.DataFrame) -> list[tuple[float, float | None, float | None]]:
    if "error_low_us" not in good.columns:
        return []
    time = "step_time_us" if "step_time_us" in good.columns else "time_us"
    return good.select(time, "error_low_us", "error_high_us").rows()


def best(good: pl.DataFrame, shown: str) -> pl.DataFrame:
    """Return rows, the best first.

    Args:
        good: Those without an error.
        shown: By which result.
    """
    return good.sort(shown, descending=more_is_better(shown), nulls_last=True, maintain_order=True)


def _results(swept: Swept, good: pl.DataFrame) -> list[str]:
    """The results that are worth a column: those that are known, the one in the pictures first."""
    there = [name for name in dict.fromkeys((swept.shown, *_WORTH)) if name in good.columns]
    return [name for name in there if name == swept.shown or good[name].null_count() < len(good)]


def _tell_errors(swept: Swept) -> None:
    wrong = swept.table.filter(swept.table[ERROR].is_not_null())
    if not len(wrong):
        return
    kinds = wrong.group_by(ERROR, maintain_order=True).len().sort("len", descending=True)
    for text, count in kinds.head(3).iter_rows():
        one = wrong.filter(wrong[ERROR] == text)["point"][0]
        output.note(f"{show_count(count, 'point')} failed, such as {one}: {text}")
    if len(kinds) > 3:
        output.note(f"in the table: {show_count(len(kinds) - 3, 'more kind')} of errors")
