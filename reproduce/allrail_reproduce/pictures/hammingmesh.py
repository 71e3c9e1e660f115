"""Pictures of HammingMesh's numbers: Table II as bars, curves over message size, a permutation.

They are drawn from the tables that are written beside them. `flows` is an upper bound that packets
fall short of; where a network model was not simulated, its part is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, INK, MUTED, WIDTH, bare, style
from allrail_reproduce.rows import Cells, Detail, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = (("published", INK), ("flows", HUES[0]), ("packets", HUES[1]))
"""Whose numbers stand side by side, and their colours."""

LINES = {
    "fat tree": (HUES[0], "-"),
    "fat tree 50%": (HUES[0], "--"),
    "fat tree 75%": (HUES[0], ":"),
    "dragonfly": (HUES[3], "-"),
    "HyperX": (HUES[4], "-"),
    "Hx2Mesh": (HUES[1], "-"),
    "Hx4Mesh": (HUES[1], "--"),
    "2D torus": (HUES[2], "-"),
}

_TABLE_TWO = (
    "All-to-all: share of what an NPU injects. All-reduce: share of the most that is possible "
    "without reduction in the network. Bars that are missing were not simulated."
)
_PERMUTATION = (
    "Small clusters. How many NPUs have at most this share of what they can inject; a steep line "
    "means that all have the same."
)

_SIZES = (
    "Small clusters. The size is from one NPU to another, over all planes. In packets the largest "
    "size has more phases than the others: another sample."
)

_BUFFERS = (
    "Small clusters. Small buffers lose to latency: the share is a function of size. Where "
    "clusters agree, the line that is drawn last hides the others."
)

_MIXES = (
    "How many of the mixes of jobs (alibaba-2020-fractional) use at most this part of the boards. "
    "Each line is a set of options of the allocation; locality changes none of them, so its line "
    "hides the one without."
)


def pictures(details: Mapping[str, Detail]) -> list[Picture]:
    """Return the pictures that can be drawn from these tables.

    Args:
        details: By name.
    """
    known = (
        (
            "table_two",
            "Table II: shares of bandwidth",
            _TABLE_TWO,
            _bars,
        ),
        (
            "message_sizes",
            "All-to-all against message size (Fig. 11)",
            _SIZES,
            partial(_curves, name="message_sizes", split=("network_model",)),
        ),
        (
            "buffer_sizes",
            "All-reduce against its size (Fig. 17)",
            _BUFFERS,
            partial(_curves, name="buffer_sizes", split=("algorithm", "network_model")),
        ),
        (
            "permutation_npus",
            "A random permutation (Fig. 12)",
            _PERMUTATION,
            _permutation,
        ),
        (
            "allocation_mixes",
            "Boards in use",
            _MIXES,
            _use,
        ),
    )
    return [
        Picture(name, title, caption, partial(draw, details[name]))
        for name, title, caption, draw in known
        if name in details and details[name].rows
    ]


def _columns(detail: Detail, row: Cells) -> dict[str, str | float | None]:
    return dict(zip(detail.header, row, strict=True))


def _bars(detail: Detail) -> Figure:
    """One row of panels a half of the table, one column a kind of traffic."""
    from matplotlib.figure import Figure

    table = [_columns(detail, row) for row in detail.rows]
    halves = list(dict.fromkeys(str(row["cluster"]).split(" ", 1)[0] for row in table))
    with style("table_two"):
        figure = Figure(figsize=(WIDTH, 0.6 + 4.1 * len(halves)), layout="constrained")
        grid = figure.subplots(len(halves), 2, sharey="row", squeeze=False)
        for line, half in enumerate(halves):
            rows = [row for row in table if str(row["cluster"]).startswith(half)]
            for column, kind in enumerate(("all-to-all", "all-reduce")):
                _panel(grid[line, column], rows, kind)
                grid[line, column].set_title(f"{half} clusters, {kind}", loc="left")
            grid[line, 0].invert_yaxis()
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(SOURCES))
    return figure


def _panel(axes: Axes, rows: Sequence[Mapping[str, str | float | None]], kind: str) -> None:
    height = 0.26
    for offset, (source, colour) in enumerate(SOURCES):
        places: list[float] = []
        values: list[float] = []
        for place, row in enumerate(rows):
            value = row[f"{kind}_{source}_%"]
            if isinstance(value, (int, float)):
                places.append(place + (offset - 1) * height)
                values.append(float(value))
        if not values:
            continue
        axes.barh(places, values, height=0.9 * height, color=colour, linewidth=0, label=source)
        for where, value in zip(places, values, strict=True):
            axes.annotate(
                f"{value:.1f}",
                (value, where),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=6.5,
                color=MUTED,
            )
    names = [str(row["cluster"]).split(" ", 1)[1] for row in rows]
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, 112)
    axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
    axes.grid(axis="x", color=GRID, linewidth=0.5)
    bare(axes)


def _curves(detail: Detail, *, name: str, split: tuple[str, ...]) -> Figure:
    """One panel a value of `split`, one line a cluster."""
    from matplotlib.figure import Figure

    table = [_columns(detail, row) for row in detail.rows]
    sizes = {float(row["bytes"] or 0): str(row["size"]) for row in table}
    # Panels that differ in the last key stand side by side.
    panels = sorted(dict.fromkeys(tuple(str(row[key]) for key in split) for row in table))
    with style(name):
        lines = (len(panels) + 1) // 2
        figure = Figure(figsize=(WIDTH, 0.6 + 3.1 * lines), layout="constrained")
        grid = figure.subplots(lines, min(2, len(panels)), squeeze=False, sharey=True, sharex=True)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            axes.set_title(", ".join(panel), loc="left")
            chosen = [row for row in table if tuple(str(row[key]) for key in split) == panel]
            for cluster in dict.fromkeys(str(row["cluster"]) for row in chosen):
                points = [row for row in chosen if row["cluster"] == cluster]
                colour, dashes = LINES[cluster.split(" ", 1)[1]]
                axes.plot(
                    [float(row["bytes"] or 0) for row in points],
                    [float(row["share_%"] or 0) for row in points],
                    color=colour,
                    linestyle=dashes,
                    marker="o",
                    markersize=3,
                    label=cluster.split(" ", 1)[1],
                )
            axes.set_xscale("log")
            axes.set_xticks(list(sizes), list(sizes.values()))
            axes.minorticks_off()
            _share_axis(axes, vertical=True)
        # A cluster may have lines in some panels only.
        drawn = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
        names = [label for label in LINES if label in drawn]
        figure.legend([drawn[label] for label in names], names, loc="outside right center")
    return figure


def _permutation(detail: Detail) -> Figure:
    """One panel a network model: sorted shares, from the slowest NPU to the fastest."""
    from matplotlib.figure import Figure

    table = [_columns(detail, row) for row in detail.rows]
    network_models = list(dict.fromkeys(str(row["network_model"]) for row in table))
    with style("permutation_npus"):
        figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
        grid = figure.subplots(1, len(network_models), squeeze=False, sharey=True)
        for axes, network_model in zip(grid.flat, network_models, strict=True):
            axes.set_title(network_model, loc="left")
            chosen = [row for row in table if row["network_model"] == network_model]
            for cluster in dict.fromkeys(str(row["cluster"]) for row in chosen):
                shares = sorted(float(r["share_%"] or 0) for r in chosen if r["cluster"] == cluster)
                part = [100 * (i + 1) / len(shares) for i in range(len(shares))]
                colour, dashes = LINES[cluster.split(" ", 1)[1]]
                label = cluster.split(" ", 1)[1]
                axes.step(shares, part, where="post", color=colour, linestyle=dashes, label=label)
            axes.set_ylim(0, 101)
            axes.set_yticks([0, 50, 100], ["0", "50", "100 % of NPUs"])
            _share_axis(axes, vertical=False)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
    return figure


def _use(detail: Detail) -> Figure:
    """One panel a cluster, one line a set of options: sorted use, the worst mix first."""
    from matplotlib.figure import Figure

    table = [_columns(detail, row) for row in detail.rows]
    clusters = list(dict.fromkeys(str(row["cluster"]) for row in table))
    names = list(dict.fromkeys(str(row["options"]) for row in table))
    with style("allocation_mixes"):
        lines = (len(clusters) + 1) // 2
        figure = Figure(figsize=(WIDTH, 0.6 + 2.6 * lines), layout="constrained")
        grid = figure.subplots(lines, min(2, len(clusters)), squeeze=False, sharex=True)
        for axes in grid.flat[len(clusters) :]:
            axes.set_visible(False)
        for axes, cluster in zip(grid.flat, clusters, strict=False):
            axes.set_title(cluster, loc="left")
            for name, colour in zip(names, HUES, strict=False):
                uses = sorted(
                    float(row["use_%"] or 0)
                    for row in table
                    if (row["cluster"], row["options"]) == (cluster, name)
                )
                part = [100 * (i + 1) / len(uses) for i in range(len(uses))]
                axes.step(uses, part, where="post", color=colour, label=name)
            axes.set_ylim(0, 101)
            axes.set_yticks([0, 50, 100], ["0", "50", "100 % of mixes"])
            _share_axis(axes, vertical=False)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
    return figure


def _share_axis(axes: Axes, *, vertical: bool) -> None:
    ticks, texts = [0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"]
    if vertical:
        axes.set_ylim(0, 104)
        axes.set_yticks(ticks, texts)
    else:
        axes.set_xlim(0, 104)
        axes.set_xticks(ticks, texts)
    axes.grid(color=GRID, linewidth=0.5)
    axes.tick_params(labelsize=7.5)
    bare(axes)
