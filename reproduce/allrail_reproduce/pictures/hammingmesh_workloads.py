"""A picture of HammingMesh's workloads: time beyond computing, ours beside the published one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, INK, MUTED, WIDTH, bare, style
from allrail_reproduce.rows import Detail, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = (("published", INK), ("flows", HUES[0]), ("packets", HUES[1]))
"""Whose numbers stand side by side, and their colours."""

_CAPTION = (
    "Milliseconds of an iteration in which a rank does not compute. Every network injects 1.6 Tb/s "
    "an NPU. Of CosmoFlow overheads are printed, all but the last two as less than 2 %. Bars that "
    "are missing were not printed or not simulated."
)


def pictures(details: Mapping[str, Detail]) -> list[Picture]:
    """Return the pictures that can be drawn from these tables.

    Args:
        details: By name.
    """
    if "workloads" not in details or not details["workloads"].rows:
        return []
    title = "Workloads: exposed communication"
    return [Picture("workloads", title, _CAPTION, partial(_bars, details["workloads"]))]


def _bars(detail: Detail) -> Figure:
    """One panel a workload, one group of bars a network."""
    from matplotlib.figure import Figure

    table = [dict(zip(detail.header, row, strict=True)) for row in detail.rows]
    names = [
        name
        for name in dict.fromkeys(str(row["workload"]) for row in table)
        if len({row["network"] for row in table if row["workload"] == name}) > 1
    ]
    with style("workloads"):
        figure = Figure(figsize=(WIDTH, 0.4 + 2.1 * len(names)), layout="constrained")
        axes = figure.subplots(len(names), 1, squeeze=False)[:, 0]
        for axis, name in zip(axes, names, strict=True):
            _panel(axis, [row for row in table if row["workload"] == name])
            axis.set_title(name, loc="left", color=INK)
        handles = [axes[0].bar([0], [0], color=colour) for _, colour in SOURCES]
        figure.legend(
            handles, [source for source, _ in SOURCES], loc="outside upper right", ncols=3
        )
    return figure


def _panel(axis: Axes, rows: list[dict[str, str | float | None]]) -> None:
    networks = list(dict.fromkeys(str(row["network"]) for row in rows))
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        exposed, compute = float(row["exposed_ms"] or 0), float(row["compute_ms"] or 0)
        values.setdefault(str(row["network_model"]), {})[str(row["network"])] = exposed
        if row["published_low_ms"] is not None:
            # The lower end of what is printed.
            published = float(row["published_low_ms"]) - compute
            values.setdefault("published", {})[str(row["network"])] = published
    width = 0.27
    for place, (source, colour) in enumerate(SOURCES):
        known = values.get(source, {})
        at = [i + (place - 1) * width for i, name in enumerate(networks) if name in known]
        heights = [known[name] for name in networks if name in known]
        bars = axis.bar(at, heights, width, color=colour)
        axis.bar_label(bars, fmt="%.3g", padding=1, color=MUTED, fontsize=6)
    axis.set_xticks(range(len(networks)), networks)
    axis.set_ylabel("exposed, ms")
    axis.grid(axis="y", color=GRID)
    axis.margins(y=0.2)
    bare(axis)
