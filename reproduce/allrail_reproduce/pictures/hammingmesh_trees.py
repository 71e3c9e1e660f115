"""Cost against throughput of what joins boards: a column a HammingMesh, a row a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, INK, MUTED, WIDTH, bare, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allrail_reproduce.rows import Detail

NAME = "trees"
PATTERNS = ("all-to-all", "permutation", "all-reduce")
NETWORK_MODELS = (("flows", HUES[0]), ("packets", HUES[1]))


def trees(detail: Detail) -> Figure:
    """Draw the shares of all networks over their price, each point with its number.

    Args:
        detail: A row a network.
    """
    from matplotlib.figure import Figure

    rows = [dict(zip(detail.header, row, strict=True)) for row in detail.rows]
    meshes = list(dict.fromkeys(str(row["mesh"]) for row in rows))
    with style(NAME):
        figure = Figure(figsize=(WIDTH, 8.4), layout="constrained")
        grid = figure.subplots(len(PATTERNS), len(meshes), sharex="col", sharey="row")
        for column, mesh in enumerate(meshes):
            here = [row for row in rows if row["mesh"] == mesh]
            for pattern, axes in zip(PATTERNS, grid[:, column], strict=True):
                _panel(axes, here, pattern)
            grid[0, column].set_title(mesh, loc="left")
            key = "\n".join(f"{place}  {row['network']}" for place, row in enumerate(here, 1))
            grid[-1, column].set_xlabel(f"cost (M$)\n\n{key}", loc="left", fontsize=7.5)
        for pattern, axes in zip(PATTERNS, grid[:, 0], strict=True):
            axes.set_ylabel(f"{pattern} (%)")
            axes.set_ylim(0, 104 if pattern == "all-reduce" else 45)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(NETWORK_MODELS))
    return figure


def _panel(axes: Axes, rows: list[dict[str, str | float | None]], pattern: str) -> None:
    """One mesh, one pattern."""
    for network_model, colour in NETWORK_MODELS:
        column = f"{pattern}_{network_model}_%"
        points = [
            (float(row["cost_M$"] or 0), float(row[column] or 0), place)
            for place, row in enumerate(rows, 1)
            if row[column] is not None
        ]
        axes.plot(
            [price for price, _, _ in points],
            [share for _, share, _ in points],
            color=colour,
            linestyle="",
            marker="o",
            markersize=4,
            label=network_model,
        )
        for price, share, place in points:
            axes.annotate(
                str(place),
                (price, share),
                xytext=(4, 2),
                textcoords="offset points",
                fontsize=7,
                color=INK,
            )
    if all(row[f"{pattern}_flows_%"] is None for row in rows):
        axes.text(
            *(0.5, 0.5),
            "not simulated",
            transform=axes.transAxes,
            ha="center",
            fontsize=7.5,
            color=MUTED,
        )
    axes.margins(x=0.15)
    axes.grid(color=GRID, linewidth=0.5)
    axes.tick_params(colors=MUTED)
    bare(axes)
