"""Efficiency against ranks, a line a coordination, with where the published curves bend."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, MUTED, WIDTH, bare, style
from allrail_reproduce.horovod.cases import Efficiencies
from allrail_reproduce.horovod.claims import CLAIMS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Efficiencies, ways: Mapping[str, Collection[str]]) -> Figure:
    """Return the picture: a panel a model.

    Args:
        results: Of the runs.
        ways: Which coordinations have a line, by model.
    """
    from matplotlib.figure import Figure

    with style("efficiency"):
        figure = Figure(figsize=(WIDTH, 7.6), layout="constrained")
        panels = figure.subplots(2, 1)
        for axes, (model, names) in zip(panels, ways.items(), strict=True):
            for hue, name in zip(HUES, names, strict=False):
                points = sorted(
                    (case.ranks, 100 * one["efficiency"])
                    for case, one in results.items()
                    if (case.model, case.way) == (model, name)
                )
                if len(points) < 2:
                    continue
                x, y = zip(*points, strict=True)
                axes.plot(x, y, color=hue, marker="o", markersize=4, linewidth=1.6, label=name)
            ticks = sorted({case.ranks for case in results if case.model == model})
            for claimed, name, stated, _ in CLAIMS:
                if claimed.name == model and stated.low and stated.low <= max(ticks, default=0):
                    axes.axvline(stated.low, color=MUTED, linewidth=0.8, linestyle=":")
                    label = f" published: {name} to {stated.low:,.0f}"
                    place = 4 if stated.low < 500 else 10
                    axes.text(stated.low, place, label, fontsize=7, color=MUTED)
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.minorticks_off()
            axes.set_ylim(0, 105)
            axes.set_title(f"{model}: efficiency, %, against ranks", loc="left")
            axes.grid(axis="y", color=GRID, linewidth=0.8)
            bare(axes)
            axes.legend(loc="lower left")
    return figure
