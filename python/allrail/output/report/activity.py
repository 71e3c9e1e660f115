"""The activity rate of every dimension over time, as Fig. 10 of the Themis paper shows it.

Time is cut into windows; a dimension's activity is the part of a window in which a chunk is
present: it waits there, is sent, or is on its way. A chunk comes to the dimension of its first
stage when its collective begins, and to the next one when the stage before is over. One column a
result, one panel a dimension, the same axes everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from allrail.base.units import time_unit
from allrail.output.report.style import GRID, HUES, INK, MUTED, PANEL, WIDTH, bare, style
from allrail.results.result import CollectivesResult, Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "activity"
WINDOWS = 120
MOST_RESULTS = 4
"""More columns would be too narrow; the tables have all results."""


Span = tuple[float, float]
"""From when to when, µs."""


def present(timeline: Sequence[Stage], begins: Sequence[float]) -> dict[int, list[Span]]:
    """When a chunk is present on each dimension.

    Args:
        timeline: Every stage of every chunk.
        begins: Of each collective.
    """
    chunks: dict[tuple[int, int], list[Stage]] = {}
    for stage in timeline:
        chunks.setdefault((stage.collective, stage.chunk), []).append(stage)
    spans: dict[int, list[Span]] = {}
    for (collective, _), stages in chunks.items():
        come = begins[collective] if collective < len(begins) else 0.0
        for stage in sorted(stages, key=lambda one: one.start_us):
            spans.setdefault(stage.dimension, []).append((come, stage.finish_us))
            come = stage.finish_us
    return spans


def activity_rates(spans: Sequence[Span], *, end_us: float, windows: int = WINDOWS) -> list[float]:
    """The part of each window that spans cover, 0 to 1.

    Spans that overlap count once.

    Args:
        spans: Of one dimension.
        end_us: Where the last window ends, µs.
        windows: How many there are.
    """
    width = end_us / windows
    busy = [0.0] * windows
    until = 0.0
    for begin, over in sorted(spans):
        start, end = max(begin, until), min(over, end_us)
        if end <= start:
            continue
        until = end
        first, last = int(start / width), min(windows - 1, int(end / width))
        for window in range(first, last + 1):
            left, right = window * width, (window + 1) * width
            busy[window] += max(0.0, min(end, right) - max(start, left))
    return [min(1.0, time / width) for time in busy]


def activity(results: Mapping[str, CollectivesResult]) -> Figure:
    """Draw the activity of one or several results.

    Args:
        results: By name; those without a timeline and those after the fourth are left out.
    """
    from matplotlib.figure import Figure

    drawable = ((name, result) for name, result in results.items() if result.timeline)
    shown = dict(islice(drawable, MOST_RESULTS))
    rows = max((len(result.dimensions) for result in shown.values()), default=1)
    end = max((result.time_us for result in shown.values()), default=1.0)
    unit, factor = time_unit(end)
    with style(NAME):
        figure = Figure(figsize=(WIDTH, 0.95 + 0.95 * rows), layout="constrained")
        grid = figure.subplots(rows, max(1, len(shown)), sharex=True, sharey=True, squeeze=False)
        for column, (name, result) in enumerate(shown.items()):
            grid[0, column].set_title(name, loc="left", pad=8)
            begins = [one.begins_us for one in result.collectives]
            spans = present(result.timeline or (), begins)
            for row in range(rows):
                axes = grid[row, column]
                if row >= len(result.dimensions):
                    axes.set_visible(False)
                    continue
                dimension = result.dimensions[row]
                rates = activity_rates(spans.get(row, []), end_us=end)
                edges = [i * end / factor / WINDOWS for i in range(WINDOWS + 1)]
                hue = HUES[row % len(HUES)]
                axes.set_facecolor(PANEL)
                axes.stairs(rates, edges, fill=True, color=hue, alpha=0.85, linewidth=0)
                axes.axvline(result.time_us / factor, color=INK, linewidth=0.9)
                axes.annotate(
                    f"{dimension.name}, busy {100 * dimension.busy_fraction:.1f} %",
                    (1, 1),
                    xycoords="axes fraction",
                    xytext=(-2, 2),
                    textcoords="offset points",
                    ha="right",
                    va="bottom",
                    fontsize=7.5,
                    color=MUTED,
                )
                axes.grid(axis="x", color=GRID, linewidth=0.5)
                bare(axes)
                axes.set_ylim(0, 1)
                axes.set_xlim(0, end / factor)
                axes.set_yticks([0, 0.5, 1], ["0", "50", "100 %"] if column == 0 else [])
                axes.tick_params(labelsize=7.5)
        figure.supxlabel(f"time ({unit}); the line marks the end", fontsize=9, color=MUTED)
        figure.supylabel("part of the time in which a chunk is present", fontsize=9, color=MUTED)
    return figure
