"""The pictures of the Themis paper from our numbers: times, utilisation, chunks, assumed bandwidth.

Each is drawn from the table that is written beside it. The activity of dimensions over time is
`allrail.output.report.activity`, what a step is made of
`allrail_reproduce.pictures.themis_workloads`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, INK, MUTED, WIDTH, bare, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allrail_reproduce.rows import Detail

MARKERS = ("o", "s", "^", "D", "v", "P")


def columns(detail: Detail) -> list[dict[str, str | float | None]]:
    """Return the rows of a table by the names of its columns.

    Args:
        detail: The table.
    """
    return [dict(zip(detail.header, row, strict=True)) for row in detail.rows]


def by_platform(
    detail: Detail,
    lines: Mapping[str, str],
    *,
    name: str,
    unit: str,
    top: float | None = None,
    scale: float = 1.0,
    dashed: Sequence[str] = (),
) -> Figure:
    """Draw one panel a platform: a line a schedule over the size of the all-reduce.

    Args:
        detail: A row a platform and size.
        lines: The column of each line, by its label.
        name: Of the picture.
        unit: Of the vertical axis.
        top: Where that axis ends; by the values, each panel its own, if None.
        scale: What values are multiplied by.
        dashed: Labels of lines that no schedule is.
    """
    from matplotlib.figure import Figure

    rows = columns(detail)
    platforms = list(dict.fromkeys(str(row["platform"]) for row in rows))
    with style(name):
        figure = Figure(figsize=(WIDTH, 6.6), layout="constrained")
        panels = figure.subplots(2, 3, sharex=True, sharey=top is not None)
        for axes, platform in zip(panels.flat, platforms, strict=True):
            here = [row for row in rows if row["platform"] == platform]
            x = [float(str(row["size"]).split()[0]) for row in here]
            for place, (label, column) in enumerate(lines.items()):
                ideal = label in dashed
                axes.plot(
                    x,
                    [scale * float(row[column] or 0.0) for row in here],
                    color=INK if ideal else HUES[place % len(HUES)],
                    linestyle="--" if ideal else "-",
                    linewidth=1.0 if ideal else 1.6,
                    marker=None if ideal else MARKERS[place % len(MARKERS)],
                    markersize=4,
                    label=label,
                )
            axes.set_title(platform, loc="left")
            axes.set_ylim(0, top)
            axes.set_xlim(0, 1.05 * max(x))
            axes.set_xticks(x, [f"{one:g}" for one in x])
            _grid(axes)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))
        figure.supxlabel("size of the all-reduce (MB)", fontsize=9, color=MUTED)
        figure.supylabel(unit, fontsize=9, color=MUTED)
    return figure


def chunks(
    detail: Detail, published: Mapping[str, Sequence[tuple[int, float]]], *, name: str = "chunks"
) -> Figure:
    """Draw utilisation over the number of chunks: a line a column, crosses where it is published.

    Args:
        detail: A row a number of chunks.
        published: Chunks and per cent, by the begin of the columns' names.
        name: Of the picture.
    """
    from matplotlib.figure import Figure

    rows = columns(detail)
    x = [float(row["chunks"] or 0) for row in rows]
    with style(name):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        axes = figure.subplots()
        axes.set_xscale("log", base=2)
        bases = list(
            dict.fromkeys(one.split(",")[0].removesuffix("_%") for one in detail.header[1:])
        )
        for column in detail.header[1:]:
            base = column.split(",")[0].removesuffix("_%")
            variants = [
                one for one in detail.header[1:] if one.split(",")[0].removesuffix("_%") == base
            ]
            place = variants.index(column)
            axes.plot(
                x,
                [float(row[column] or 0.0) for row in rows],
                color=HUES[bases.index(base) % len(HUES)],
                linestyle=("-", "--", ":", "-.")[place % 4],
                linewidth=1.6,
                marker=MARKERS[place % len(MARKERS)],
                markersize=3.5,
                label=column.removesuffix("_%").replace("`", ""),
            )
        for base, points in published.items():
            axes.plot(
                [at for at, _ in points],
                [value for _, value in points],
                color=HUES[bases.index(base) % len(HUES)],
                linestyle="",
                marker="x",
                markersize=9,
                markeredgewidth=2,
                label=f"{base}, published",
            )
        axes.set_xticks(x, [f"{one:g}" for one in x])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 102)
        axes.set_xlabel("chunks of the all-reduce")
        axes.set_ylabel("bandwidth used, mean of two platforms (%)")
        _grid(axes)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return figure


def assumed(detail: Detail, *, name: str = "utilisation") -> Figure:
    """Draw how long a step takes over the share of bandwidth that is assumed to be used.

    Args:
        detail: A row a workload, a column `at_N%` a share.
        name: Of the picture.
    """
    from matplotlib.figure import Figure

    shares = [float(one.removeprefix("at_").removesuffix("%")) for one in detail.header[1:]]
    with style(name):
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        axes = figure.subplots()
        for place, (label, *values) in enumerate(detail.rows):
            axes.plot(
                shares,
                [100 * float(value or 0.0) for value in values],
                color=HUES[place % len(HUES)],
                linewidth=1.6,
                marker=MARKERS[place % len(MARKERS)],
                markersize=4,
                label=str(label),
            )
        axes.set_xticks(shares, [f"{one:g}" for one in shares])
        axes.set_ylim(0, 104)
        axes.set_xlabel("bandwidth used, assumed of every dimension (%)")
        axes.set_ylabel(f"step, over the one at {shares[0]:g} % (%)")
        _grid(axes)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _grid(axes: Axes) -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.tick_params(colors=MUTED)
    bare(axes)
