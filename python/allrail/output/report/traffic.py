"""Pictures of traffic: shares of injection, and how the bandwidths of NPUs are distributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, INK, MUTED, WIDTH, bare, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from allrail.results.traffic_result import TrafficResult

SHARES = "shares"
DISTRIBUTION = "bandwidths"


def shares(results: Mapping[str, TrafficResult]) -> Figure:
    """Draw one bar a result: its share of injection.

    Args:
        results: By name, in the order from top to bottom.
    """
    from matplotlib.figure import Figure

    names = list(results)
    with style(SHARES):
        figure = Figure(figsize=(WIDTH, 1.1 + 0.42 * len(names)), layout="constrained")
        axes = figure.subplots()
        for i, result in enumerate(results.values()):
            share = 100 * result.share_of_injection
            axes.barh(i, share, height=0.56, color=HUES[i % len(HUES)], linewidth=0)
            axes.annotate(
                f"{share:.2f} %   {result.network_model}",
                (share, i),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=INK,
            )
        axes.set_yticks(range(len(names)), names)
        axes.set_xlim(0, 122)
        axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
        axes.set_title("share of injection", loc="left")
        axes.grid(axis="x", color=GRID, linewidth=0.5)
        axes.tick_params(colors=MUTED)
        axes.invert_yaxis()
        bare(axes)
    return figure


def distribution(each: Mapping[str, Sequence[float]]) -> Figure:
    """Draw, for every result, which part of its NPUs got at most how much.

    Args:
        each: Bandwidths of the NPUs, Gb/s, by result.
    """
    from matplotlib.figure import Figure

    with style(DISTRIBUTION):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.subplots()
        for i, (name, values) in enumerate(each.items()):
            ordered = sorted(values)
            parts = [100 * (k + 1) / len(ordered) for k in range(len(ordered))]
            colour = HUES[i % len(HUES)]
            axes.step(ordered, parts, where="post", label=name, color=colour, linewidth=1.4)
        axes.set_xlim(left=0)
        axes.set_ylim(0, 101)
        axes.set_xlabel("Gb/s of an NPU over all planes")
        axes.set_title("NPUs that got at most as much, %", loc="left")
        axes.grid(color=GRID, linewidth=0.5)
        axes.tick_params(colors=MUTED)
        axes.legend(loc="upper left")
        bare(axes, keep=("bottom", "left"))
    return figure
