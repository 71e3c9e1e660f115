"""Bus bandwidth by size: expected as a line, measured as points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allrail.measure.calibrate.shape import size_text
from allrail.output.report.document import Picture
from allrail.output.report.style import GRID, HUES, MUTED, WIDTH, bare, style, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "bandwidth"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def bandwidth(
    lines: Mapping[str, Sequence[tuple[int, float]]], *, measured: Sequence[str] = ()
) -> Figure:
    """Draw bus bandwidth over size, which has a logarithmic axis.

    Args:
        lines: By name, sizes in bytes and bus bandwidths in GB/s, the smallest size first.
        measured: Names of those that were measured: they have a point a size.
    """
    from matplotlib.figure import Figure

    sizes = sorted({size for line in lines.values() for size, _ in line})
    with style(NAME):
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.set_xscale("log", base=2)
        for place, (name, line) in enumerate(lines.items()):
            axes.plot(
                [size for size, _ in line],
                [rate for _, rate in line],
                color=HUES[place % len(HUES)],
                linewidth=1.6,
                marker="o" if name in measured else None,
                markersize=4,
                label=name,
            )
        powers = range(sizes[0].bit_length() - 1, sizes[-1].bit_length() + 1)
        ticks = [1 << power for power in powers if power % 4 == 0 or len(powers) < 8]
        axes.set_xticks(ticks, [_size(one) for one in ticks], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("size")
        axes.set_ylabel("bus bandwidth (GB/s)")
        axes.grid(color=GRID, linewidth=0.5)
        axes.tick_params(colors=MUTED)
        axes.legend(loc="lower right")
        bare(axes)
    return figure


def picture(name: str, title: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> Picture:
    """Return the picture of a page, where the line `measured` is of points.

    Args:
        name: Of the picture, once in its page.
        title: Above it.
        lines: As of `bandwidth`.
    """
    words = "; ".join(
        f"{line}: {points[-1][1]:,.4g} GB/s at {size_text(points[-1][0])}"
        for line, points in lines.items()
    )
    caption = "Bus bandwidth by size; the axis of sizes is logarithmic."
    return Picture(
        name, title, caption, svg(bandwidth(lines, measured=["measured"]), name=name), words
    )


def rows(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every size of a page's data, for the table beside it.

    Args:
        told: The data, with `rows`.
    """
    return [dict(one) for one in told["rows"]]


def _size(count: int) -> str:
    place = min((count.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{count >> (10 * place)} {_UNITS[place]}"
