"""The picture of ByteScheduler's speed-ups: ours over bandwidth, with the published ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from allrail.report.style import GRID, HUES, INK, MUTED, PAPER, WIDTH, bare, style
from allrail.reproduce.rows import Detail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Range = tuple[float, float]


def speedups(detail: Detail, ranges: Mapping[str, tuple[Range, Range]]) -> Figure:
    """Draw one panel a model.

    Args:
        detail: With columns `model`, `bandwidth_gbps` and `speedup_%`, ascending bandwidths; the
            last one is fitted.
        ranges: Of each model, the published range where it is fitted, and over the bandwidths.
    """
    from matplotlib.figure import Figure

    model, bandwidth, speedup = (
        detail.header.index(name) for name in ("model", "bandwidth_gbps", "speedup_%")
    )
    with style("speedups"):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        panels = figure.subplots(1, len(ranges), sharey=True, squeeze=False)[0]
        for axes, (name, (fitted, predicted)), hue in zip(
            panels, ranges.items(), HUES, strict=False
        ):
            points = [
                (float(str(row[bandwidth])), float(str(row[speedup])))
                for row in detail.rows
                if row[model] == name
            ]
            names = [f"{gbps:g}" for gbps, _ in points]
            xs, ys = list(range(len(points))), [gain for _, gain in points]
            axes.axhspan(*predicted, color=GRID, alpha=0.6, linewidth=0)
            axes.plot([xs[-1]] * 2, fitted, color=MUTED, linewidth=5, alpha=0.5, zorder=1)
            axes.plot(xs, ys, color=hue, linewidth=1.4, zorder=2)
            axes.plot(xs[:-1], ys[:-1], "o", color=hue, markersize=5, zorder=3)
            axes.plot(xs[-1:], ys[-1:], "o", color=hue, markerfacecolor=PAPER, zorder=3)
            for x, y in zip(xs, ys, strict=True):
                falls = x > 0 and ys[x - 1] > y
                axes.annotate(
                    f"{y:.0f}",
                    (x, y),
                    (7 if falls else -7, 5),
                    textcoords="offset points",
                    ha="left" if falls else "right",
                    color=INK,
                )
            axes.set_xticks(xs, names)
            axes.set_title(name, loc="left")
            axes.set_xlabel("Gb/s of a machine's link")
            axes.margins(x=0.14)
            bare(axes)
        panels[0].set_ylim(bottom=0)
        panels[0].set_ylabel("faster than first come, first served, %")
    return figure
