"""Bars that compare results: how long each took, and how much of the bandwidth it used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from allrail.base.units import show_number, time_unit
from allrail.output.report.style import GRID, HUES, INK, MUTED, WIDTH, bare, style
from allrail.results.compared import speedup
from allrail.results.result import CollectivesResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "comparison"


def comparison(results: Mapping[str, CollectivesResult]) -> Figure:
    """Draw one bar a result, left its time and right its utilisation.

    Args:
        results: By name, in the order from top to bottom.
    """
    from matplotlib.figure import Figure

    names = list(results)
    end = max(result.time_us for result in results.values())
    unit, factor = time_unit(end)
    with style(NAME):
        figure = Figure(figsize=(WIDTH, 1.1 + 0.42 * len(names)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        times = [result.time_us / factor for result in results.values()]
        first = next(iter(results.values()))
        labels = [
            f"{show_number(time)} {unit}" + (f"   {speedup(one, first):.2f}× as fast" if i else "")
            for i, (time, one) in enumerate(zip(times, results.values(), strict=True))
        ]
        _bars(left, names, times, labels, end / factor)
        for i, result in enumerate(results.values()):
            bound = result.bound_time_us / factor
            left.plot([bound, bound], [i - 0.36, i + 0.36], color=INK, linewidth=1.4)
        left.set_title("time; the stroke is a proven lower bound", loc="left")
        uses = [100 * (result.utilisation or 0.0) for result in results.values()]
        texts = [
            "below what links can carry" if result.utilisation is None else f"{use:.2f} %"
            for use, result in zip(uses, results.values(), strict=True)
        ]
        _bars(right, names, uses, texts, 100.0)
        right.set_title("bandwidth used", loc="left")
        left.invert_yaxis()
    return figure


def _bars(
    axes: Axes, names: list[str], values: list[float], labels: list[str], limit: float
) -> None:
    for i, (value, label) in enumerate(zip(values, labels, strict=True)):
        axes.barh(i, value, height=0.56, color=HUES[i % len(HUES)], linewidth=0)
        axes.annotate(
            label,
            (value, i),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=INK,
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, 1.42 * limit if limit != 100.0 else 122)
    if limit == 100.0:
        axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
    axes.grid(axis="x", color=GRID, linewidth=0.5)
    axes.tick_params(colors=MUTED)
    bare(axes)
