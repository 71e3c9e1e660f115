"""Pictures of answers on axes of matplotlib, as large as a paper's column.

    axes = allrail.compare("scenario.yaml").plot()
    axes.figure.savefig("figure.pdf")

No display is needed: a figure is made without pyplot, and matplotlib is imported when one is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allrail.base.errors import InputError
from allrail.base.installed import installer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN = (3.35, 2.3)
"""Inches: a column of a page with two (IEEE's and ACM's templates)."""
MAX_BARS = 24
"""More are a line."""
MAX_NAME = 18


def axes_of(ax: Axes | None) -> Axes:
    """Return the axes to draw on.

    Args:
        ax: Somebody's; a new figure's if None.

    Raises:
        InputError: matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "matplotlib is not installed", hint=f"`{installer()} install matplotlib`"
        ) from None
    return Figure(figsize=COLUMN, layout="constrained").add_subplot()


def bars(rows: Sequence[Mapping[str, Any]], x: str, y: str, ax: Axes | None) -> Axes:
    """Draw a column of a table over another: bars by name, a line over numbers.

    Args:
        rows: The table; rows without either are left out.
        x: What stands below the axis.
        y: What is drawn.
        ax: Where.

    Raises:
        InputError: No row has a number to draw.
    """
    axes = axes_of(ax)
    known = [row for row in rows if row.get(x) is not None and _is_number(row.get(y))]
    if not known:
        raise InputError(f"no row has `{x}` and a number as `{y}`", field="plot")
    names, values = [row[x] for row in known], [float(row[y]) for row in known]
    if all(map(_is_number, names)) and len(set(names)) > 1:
        axes.plot(names, values, marker="o", markersize=3, linewidth=1.2)
        if min(names) > 0 and max(names) >= 100 * min(names):
            axes.set_xscale("log")
    elif len(known) > MAX_BARS:
        axes.plot(range(len(known)), values, linewidth=1.2)
    else:
        places = range(len(known))
        axes.bar(places, values, width=0.7)
        short = [
            name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
            for name in map(str, names)
        ]
        axes.set_xticks(list(places), short, rotation=45, ha="right", fontsize=7)
    axes.set_xlabel(x.replace("_", " "), fontsize=8)
    axes.set_ylabel(y.replace("_", " "), fontsize=8)
    axes.tick_params(labelsize=7)
    return axes


def result(one: Any, ax: Axes | None) -> Axes:
    """Draw a result: parts of a step, how much of each dimension is used, or shares of injection.

    Args:
        one: A `Result`.
        ax: Where.
    """
    if one.kind == "workload":
        parts = {
            "computing": one.compute_us,
            **{name: us for name, us in one.exposed_us.items() if us > 0},
            "waiting": one.waiting_us,
        }
        rows = [{"part": name, "time_us": us} for name, us in parts.items()]
        return bars(rows, "part", "time_us", ax)
    if one.kind == "collective":
        used = [{"dimension": each.name, "busy": each.busy_fraction} for each in one.dimensions]
        return bars(used, "dimension", "busy", ax)
    shares = {"of injection": one.share_of_injection, "of optimum": one.share_of_optimum}
    rows = [{"share": name, "part": value} for name, value in shares.items()]
    return bars(rows, "share", "part", ax)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
