"""What is known of each cell of the Themis paper's grid: its table, starvation, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from allrail.output.report.activity import activity
from allrail.output.report.gantt import gantt
from allrail.results.result import CollectivesResult
from allrail_reproduce.grid import BASELINE, CELLS, FIFO, SCF, SEARCH, Cell, mean
from allrail_reproduce.pictures import themis as report
from allrail_reproduce.rows import Cells, Detail, Picture, Row

SHOWN = Cell("3D-SW_SW_SW_homo", "1000 MB")
"""Whose dimensions are drawn over time."""

Results = dict[str, list[CollectivesResult]]
"""By schedule, in the order of `CELLS`."""


def table(results: Results) -> Detail:
    """Return one row a cell: utilisations, the bound's, times, starvation, planning of `search`.

    Starvation is of the dimension that starves the longest, as a part of the whole time.

    Args:
        results: Of every cell, with timelines.
    """
    units = ("%", "us", "starved_%")
    used, took, starve = (tuple(f"{name}_{unit}" for name in results) for unit in units)
    header = ("platform", "size", *used, "bound_%", "planning_ms", *took, "ideal_us", *starve)
    rows: list[Cells] = []
    for i, cell in enumerate(CELLS):
        best = results[SEARCH][i]
        here = [results[name][i] for name in results]
        rows.append(
            (
                cell.platform,
                cell.size,
                *(100 * (one.utilisation or 0.0) for one in here),
                100 * best.ideal_time_us / best.bound_time_us,
                best.host.planning_ms,
                *(one.time_us for one in here),
                best.ideal_time_us,
                *(100 * max(_starved(one), default=0.0) for one in here),
            )
        )
    return Detail("grid", header, rows)


def starving(results: Results) -> list[Row]:
    """Return for how long a dimension starves on average, a row a schedule.

    Args:
        results: Of every cell, with timelines.
    """
    return [
        Row(
            f"mean time that a dimension starves, {name}",
            mean([100 * part for result in results[name] for part in _starved(result)]),
            None,
            "%",
            how="idle while the chunks that still need it are elsewhere, of the whole time",
        )
        for name in results
    ]


def _starved(result: CollectivesResult) -> list[float]:
    """Of each dimension, as a part of the whole time."""
    return [time / result.time_us for time in result.starved_us or ()]


def pictures(
    results: Results, grid: Detail, sweep: Detail, published: Sequence[tuple[str, int, float]]
) -> list[Picture]:
    """Return pictures of times, utilisations and chunks, and of one cell over time.

    Args:
        results: Of every cell, with timelines.
        grid: What `table` gives.
        sweep: A row a number of chunks.
        published: Utilisations by schedule and number of chunks.
    """
    at = CELLS.index(SHOWN)
    shown = {name: results[name][at] for name in (BASELINE, SCF)}
    schedules = {name: f"{name}_%" for name in results}
    times = {**{name: f"{name}_us" for name in results}, "ideal": "ideal_us"}
    points = {
        name: [(chunks, value) for one, chunks, value in published if one == name]
        for name in (SCF, FIFO)
    }
    cell = f"{SHOWN.platform}, {SHOWN.size}"
    return [
        Picture(
            "times",
            "Time of an all-reduce over its size",
            "One panel a platform; dashed, all bytes over all bandwidth.",
            partial(
                report.by_platform,
                grid,
                times,
                name="times",
                unit="time (ms)",
                scale=1e-3,
                dashed=("ideal",),
            ),
        ),
        Picture(
            "utilisation",
            "Bandwidth used over the size of the all-reduce",
            "One panel a platform, all dimensions together.",
            partial(
                report.by_platform,
                grid,
                schedules,
                name="utilisation",
                unit="bandwidth used (%)",
                top=102.0,
            ),
        ),
        Picture(
            "activity",
            f"Activity of each dimension, {cell}",
            "The part of the time in which a chunk is present on a dimension.",
            partial(activity, shown),
        ),
        Picture(
            "gantt",
            f"What each dimension sends, and where it starves, {cell}",
            "Bars are stages; a dimension starves where it sends nothing and the chunks that still "
            "need it are elsewhere.",
            partial(gantt, shown),
        ),
        Picture(
            "chunks",
            "Bandwidth used over the number of chunks",
            "Mean of two platforms; crosses are published.",
            partial(report.chunks, sweep, points),
        ),
    ]
