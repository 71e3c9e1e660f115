"""Throughput over bandwidth, as a table in CSV and Parquet and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from allrail.files import staged_folder
from allrail.require.bandwidth import Required

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_curves(folder: Path, found: Required) -> None:
    """Write `curves.csv`, `curves.parquet` and `curves.svg`.

    Args:
        folder: Where; made if it is not there.
        found: What was found.
    """
    import polars as pl

    from allrail.report.style import style, svg
    from allrail.results.frames import write_frame

    rows = [
        (curve.name, factor, step_s, found.ideal_s / step_s)
        for curve in found.curves
        for factor, step_s in zip(curve.factors, curve.steps_s, strict=True)
    ]
    columns = ["scaled", "factor", "step_s", "part_of_ideal"]
    with staged_folder(folder, "curves") as staged:
        write_frame(pl.DataFrame(rows, schema=columns, orient="row"), folder=staged, name="curves")
        with style("curves"):
            figure = _draw(found)
        (staged / "curves.svg").write_text(svg(figure, name="curves"), encoding="utf-8")


def _draw(found: Required) -> Figure:
    from matplotlib.figure import Figure

    from allrail.report.style import HUES, MUTED, WIDTH

    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for k, curve in enumerate(found.curves):
        shares = [100 * found.ideal_s / step_s for step_s in curve.steps_s]
        # Curves may lie on one another: the ones below are wider.
        width = 1.2 + 1.4 * (len(found.curves) - 1 - k)
        axes.plot(
            curve.factors,
            shares,
            marker="o",
            linewidth=width,
            color=HUES[k % len(HUES)],
            label=curve.name,
        )
    wanted = 100 * found.ideal_s / found.target.step_s
    axes.axhline(wanted, linestyle="--", color=MUTED, label=found.target.text)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 105)
    axes.set_xlabel("bandwidth, over what there is")
    axes.set_ylabel("throughput, % of that without time for bytes")
    axes.legend()
    return figure
