"""A Gantt chart: what every dimension sends, when, for which chunk and in which stage.

One band a dimension and result, one row in it an operation (reduce-scatter above, all-gather
below); colour is the chunk, a lighter shade the all-gather. All results share the time axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from allrail.base.units import show_number, show_percent, time_unit
from allrail.output.lanes import assign_lanes
from allrail.output.report.style import (
    GRID,
    INK,
    MAX_VECTOR_SHAPES,
    MUTED,
    PANEL,
    PAPER,
    WIDTH,
    bare,
    lighter,
    style,
)
from allrail.output.trace import SHORT
from allrail.results.result import CollectivesResult, DimensionResult, Stage
from allrail.results.starvation import Span, length, starved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

NAME = "gantt"
OPERATIONS = ("reduce_scatter", "all_reduce", "all_to_all", "broadcast", "all_gather")
BAND = 0.62
"""Inches a dimension takes."""
MOST_RESULTS = 6
"""More do not fit beside each other; the tables have them all."""
LIGHT = {"all_gather": 0.45}
STARVED = "#f3cfc9"
"""Behind the bars, where a dimension idles and its chunks are elsewhere."""
GAP = 0.16
"""Between the bands, as a part of a band."""


def gantt(results: Mapping[str, CollectivesResult]) -> Figure:
    """Draw the timelines of one or several results.

    Args:
        results: By name; those without a timeline and those after the sixth are left out.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawable = ((name, result) for name, result in results.items() if result.timeline)
    shown = dict(islice(drawable, MOST_RESULTS))
    bands = sum(len(result.dimensions) for result in shown.values())
    height = 1.25 + BAND * bands + 0.34 * len(shown)
    end = max((result.time_us for result in shown.values()), default=1.0)
    unit, factor = time_unit(end)
    chunks = 1 + max((s.chunk for r in shown.values() for s in r.timeline or ()), default=0)
    with style(NAME):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        colours = mpl.colormaps["viridis"].resampled(256)
        axes_list = figure.subplots(
            max(1, len(shown)),
            1,
            sharex=True,
            squeeze=False,
            height_ratios=[len(r.dimensions) for r in shown.values()] or [1],
        )
        for axes, (name, result) in zip(axes_list[:, 0], shown.items(), strict=False):
            axes.set_xlim(0, end / factor)
            _draw(axes, result, colours, chunks, factor)
            head = f"{name}:  {show_number(result.time_us / factor)} {unit}"
            if result.utilisation is not None:
                head += f",  {show_percent(result.utilisation)} of the bandwidth used"
            axes.set_title(head, loc="left", pad=4)
        last = axes_list[-1, 0]
        last.set_xlabel(f"time ({unit})")
        _legend(figure, shown, colours, chunks)
    return figure


@dataclass(frozen=True, slots=True)
class _Row:
    operation: str
    top: float
    height: float


def _draw(
    axes: Axes, result: CollectivesResult, colours: Colormap, chunks: int, factor: float
) -> None:
    spans = result.timeline or ()
    used = [op for op in OPERATIONS if any(span.operation == op for span in spans)]
    used += sorted({span.operation for span in spans} - set(used))
    vector = len(spans) <= MAX_VECTOR_SHAPES
    height = (1 - GAP) / max(1, len(used))
    idle = starved(spans, [one.begins_us for one in result.collectives])
    for band, dimension in enumerate(result.dimensions):
        top = band + GAP / 2
        axes.axhspan(top, top + 1 - GAP, facecolor=PANEL, linewidth=0, zorder=0)
        for row, operation in enumerate(used):
            mine = [s for s in spans if s.dimension == band and s.operation == operation]
            _bars(
                axes,
                mine,
                _Row(operation, top + row * height, height),
                colours,
                chunks,
                factor,
                vector,
            )
            axes.annotate(
                SHORT.get(operation, operation),
                (0, top + (row + 0.5) * height),
                xycoords=("axes fraction", "data"),
                xytext=(-4, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=6.5,
                color=MUTED,
            )
        lost = idle.get(band, [])
        _starved(axes, lost, top, factor)
        _edges(axes, dimension, top, length(lost) / (result.time_us or 1.0))
    axes.set_ylim(len(result.dimensions), 0)
    axes.set_yticks([])
    axes.grid(axis="x", color=GRID, linewidth=0.5)
    bare(axes)


def _starved(axes: Axes, spans: Sequence[Span], top: float, factor: float) -> None:
    """Where a dimension idles and its chunks are elsewhere."""
    from matplotlib.collections import PolyCollection

    low, high = top, top + 1 - GAP
    corners = [
        [
            (since / factor, low),
            (until / factor, low),
            (until / factor, high),
            (since / factor, high),
        ]
        for since, until in spans
    ]
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=STARVED,
            linewidths=0,
            rasterized=len(spans) > MAX_VECTOR_SHAPES,
            zorder=1,
        ),
        autolim=False,
    )


def _edges(axes: Axes, dimension: DimensionResult, top: float, lost: float) -> None:
    """What is said left and right of a band."""
    middle = top + (1 - GAP) / 2
    axes.annotate(
        f"{dimension.name}\n{dimension.kind.replace('_', ' ')} of {dimension.size}",
        (0, middle),
        xycoords=("axes fraction", "data"),
        xytext=(-24, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8,
        color=INK,
    )
    axes.annotate(
        f"busy {100 * dimension.busy_fraction:.1f} %\nstarved {100 * lost:.1f} %",
        (1, middle),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        ha="left",
        va="center",
        fontsize=8,
        color=MUTED,
    )


def _bars(
    axes: Axes,
    spans: Sequence[Stage],
    row: _Row,
    colours: Colormap,
    chunks: int,
    factor: float,
    vector: bool,  # noqa: FBT001
) -> None:
    from matplotlib.collections import PolyCollection

    end = axes.get_xlim()[1]
    lanes, count = assign_lanes(spans)
    height = row.height / max(1, count)
    light = LIGHT.get(row.operation, 0.0)
    corners, fills, edges = [], [], []
    for span, lane in zip(spans, lanes, strict=True):
        left, right = span.start_us / factor, span.end_us / factor
        low, high = row.top + lane * height, row.top + (lane + 1) * height
        corners.append([(left, low), (right, low), (right, high), (left, high)])
        red, green, blue, _ = colours(0.1 + 0.85 * span.chunk / max(1, chunks - 1))
        fill = lighter((red, green, blue), amount=light)
        fills.append(fill)
        # A light edge parts neighbours; around a hairline it would hide the bar.
        edges.append(PAPER if right - left > 0.003 * end else fill)
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=fills,
            edgecolors=edges,
            linewidths=0.35,
            rasterized=not vector,
            zorder=2,
        ),
        autolim=False,
    )
    if chunks <= 16:
        _numbers(axes, spans, lanes, row, height, factor, light)


def _numbers(
    axes: Axes,
    spans: Sequence[Stage],
    lanes: Sequence[int],
    row: _Row,
    height: float,
    factor: float,
    light: float,
) -> None:
    """The number of each chunk, where its bar has room for it."""
    end = max((span.finish_us for span in spans), default=1.0)
    for span, lane in zip(spans, lanes, strict=True):
        if span.end_us - span.start_us < 0.012 * end:
            continue
        dark = light > 0 or span.chunk > 10
        axes.text(
            (span.start_us + span.end_us) / 2 / factor,
            row.top + (lane + 0.5) * height,
            str(span.chunk),
            ha="center",
            va="center_baseline",
            fontsize=6.5,
            color="#101418" if dark else "#f6f8fa",
            zorder=3,
        )


def _legend(
    figure: Figure, shown: Mapping[str, CollectivesResult], colours: Colormap, chunks: int
) -> None:
    from matplotlib.patches import Patch

    operations = {span.operation for result in shown.values() for span in result.timeline or ()}
    red, green, blue, _ = colours(0.35)
    handles = [
        Patch(
            facecolor=lighter((red, green, blue), amount=LIGHT.get(operation, 0.0)),
            label=f"{operation.replace('_', '-')} ({SHORT.get(operation, operation)})",
        )
        for operation in OPERATIONS
        if operation in operations
    ]
    handles.append(Patch(facecolor=PANEL, edgecolor=GRID, linewidth=0.6, label="idle"))
    handles.append(Patch(facecolor=STARVED, label="starved: its chunks are elsewhere"))
    for place in (0.0, 0.5, 1.0) if chunks > 2 else ():
        red, green, blue, _ = colours(0.1 + 0.85 * place)
        label = f"chunk {round(place * (chunks - 1))}"
        handles.append(Patch(facecolor=(red, green, blue), label=label))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        fontsize=8,
        handlelength=1.2,
        handleheight=0.9,
        columnspacing=1.6,
    )
