"""Pictures of a sweep, by its shape.

One axis: a line; two: a heat map; more: a heat map for each combination of the rest; points that
were drawn: the result over each axis. Where networks have a price: cost against throughput, with
the front of those that nothing cheaper surpasses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from allrail.base.units import SIZES, show_bandwidth, show_binary, show_number, show_time, time_unit
from allrail.output.report.front import pareto_front
from allrail.output.report.style import GRID, HUES, INK, MUTED, WIDTH, bare, style
from allrail.search.sweeps.axes import Axis, written
from allrail.search.sweeps.table import ERROR

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allrail.search.sweeps.run import Swept

SWEEP = "sweep"
PARETO = "pareto"
MOST_PANELS = 12
MOST_TICKS = 32
"""Of an axis of a heat map; of more values every second one is named, or every third."""
_LOWER_IS_BETTER = ("_us", "_usd", "_bytes", "_per_npu_bytes", "sample_error")


def more_is_better(result: str) -> bool:
    """Return whether one wants more of a result: not of times, costs and bytes.

    Args:
        result: Its column.
    """
    return not result.endswith(_LOWER_IS_BETTER)


def pictures(swept: Swept) -> dict[str, Figure]:
    """Return the pictures by name; none where no point has a result.

    Args:
        swept: What to draw.
    """
    table = swept.table.filter(swept.table[ERROR].is_null())
    table = table.filter(table[swept.shown].is_not_null())
    if not len(table):
        return {}
    drawn = {}
    with style(SWEEP):
        keys = _keys(swept)
        if swept.study.points.shares is not None:
            drawn[SWEEP] = _scatter(swept, table, keys)
        elif len(keys) == 1:
            drawn[SWEEP] = _line(swept, table, keys[0])
        else:
            drawn[SWEEP] = _heat(swept, table, keys)
    with style(PARETO):
        if "cost_usd" in table.columns and table["cost_usd"].n_unique() > 1:
            drawn[PARETO] = _pareto(table, swept.table.columns[1 : 1 + len(swept.fields)])
    return drawn


class _Key:
    """One axis: what it is called, and where a row is on it."""

    def __init__(self, axis: Axis, columns: Sequence[str], rows: pl.DataFrame) -> None:
        self.name = columns[0] if len(columns) == 1 else axis.name
        self.columns = list(columns)
        self._axis = axis
        self.values = list(dict.fromkeys(rows.select(self.columns).iter_rows()))
        written_so = [tuple(value.cells.values()) for value in axis.values]
        if all(value in written_so for value in self.values):
            self.values.sort(key=written_so.index)
        self.numeric = len(self.columns) == 1 and rows[self.columns[0]].dtype.is_numeric()
        if self.numeric:
            self.values.sort(key=lambda value: -math.inf if value[0] is None else value[0])

    def label(self, value: tuple[Any, ...]) -> str:
        pairs = zip(self.columns, value, strict=True)
        return " ".join("-" if one is None else with_unit(name, one) for name, one in pairs)

    @property
    def title(self) -> str:
        """Its name without the unit that its labels have."""
        for ending in _UNITS:
            if self.name.endswith(ending):
                return self.name.removesuffix(ending)
        return self.name

    @property
    def logarithmic(self) -> bool:
        """Whether its values are a factor apart, not a step."""
        if self._axis.range is not None:
            return self._axis.range.logarithmic
        if not self.numeric or None in {value[0] for value in self.values}:
            return False
        return bool(0 < self.values[0][0] <= self.values[-1][0] / 20)


def _keys(swept: Swept) -> list[_Key]:
    """The axes, by the names of their columns in the table."""
    columns = iter(swept.table.columns[1:])
    keys = []
    for axis in swept.study.axes:
        mine = [next(columns) for _ in axis.fields]
        keys.append(_Key(axis, mine, swept.table))
    return keys


_UNITS: dict[str, Callable[[float], str]] = {
    "_us": show_time,
    "_bytes": show_binary,
    "_gbps": show_bandwidth,
}
"""How values of columns with such an ending are labelled."""


def with_unit(name: str, value: Any) -> str:
    """Return a value of a column, with the unit that the column's name ends with.

    Args:
        name: Of the column.
        value: In it.
    """
    for ending, show in _UNITS.items():
        if name.endswith(ending) and isinstance(value, (int, float)):
            return show(value)
    return written(value)


def _shown(name: str, values: Sequence[float]) -> tuple[str, float]:
    """What the shown result is called, with a unit that suits all of it, and what it counts in."""
    longest = max(map(abs, values), default=1.0)
    if name.endswith("_us"):
        unit, factor = time_unit(longest)
        return f"{name.removesuffix('_us').replace('_', ' ')} ({unit})", factor
    if name.endswith("_bytes"):
        unit, factor = next(one for one in SIZES if longest >= one[1] or one[1] == 1.0)
        return f"{name.removesuffix('_bytes').replace('_', ' ')} ({unit})", factor
    if name.endswith("_gbps"):
        return f"{name.removesuffix('_gbps').replace('_', ' ')} (Gb/s)", 1.0
    return name.replace("_", " "), 1.0


def _figure(rows: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, list(grid.flat)


def _line(swept: Swept, table: pl.DataFrame, key: _Key) -> Figure:
    figure, (axes,) = _figure(1, 1, 4.2)
    where = {value: index for index, value in enumerate(key.values)}
    rows = list(table.select([*key.columns, swept.shown]).iter_rows())
    rows.sort(key=lambda row: where[row[:-1]])
    xs = [row[0] if key.numeric else where[row[:-1]] for row in rows]
    name, factor = _shown(swept.shown, [row[-1] for row in rows])
    ys = [row[-1] / factor for row in rows]
    axes.plot(xs, ys, "-" if key.numeric else "", color=HUES[0], marker="o")
    _ticks(axes, key)
    axes.set_ylabel(name)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    bare(axes)
    return figure


def _ticks(axes: Axes, key: _Key) -> None:
    """Put an axis' values along the bottom."""
    axes.set_xlabel(key.title)
    if not key.numeric:
        labels = [key.label(value) for value in key.values]
        turned = sum(map(len, labels)) > 110
        axes.set_xticks(range(len(labels)), labels, rotation=30 if turned else 0)
        if turned:
            for text in axes.get_xticklabels():
                text.set_horizontalalignment("right")
        return
    if key.logarithmic:
        from matplotlib.ticker import FuncFormatter, LogLocator

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: key.label((number,))))
        axes.minorticks_off()
    if len(key.values) <= 16 and not _crowded(key):
        axes.set_xticks([value[0] for value in key.values], [key.label(v) for v in key.values])


def _crowded(key: _Key) -> bool:
    """Whether labels at the very values would cover each other."""
    numbers = [math.log(one[0]) if key.logarithmic else one[0] for one in key.values]
    span = (numbers[-1] - numbers[0]) or 1.0
    steps = [(after - before) / span for before, after in pairwise(numbers)]
    return any(step < 0.05 for step in steps)


def _heat(swept: Swept, table: pl.DataFrame, keys: list[_Key]) -> Figure:
    """Heat maps: the two axes with the most values are drawn, the rest make panels."""
    order = sorted(range(len(keys)), key=lambda index: (-len(keys[index].values), index))
    across, down = keys[order[0]], keys[order[1]]
    rest = [keys[index] for index in sorted(order[2:])]
    panels = list(product(*(key.values for key in rest)))
    shown = panels[:MOST_PANELS]
    columns = 1 if len(shown) == 1 else min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    each = max(2.2, min(9.0, 0.26 * len(down.values) + 1.6))
    figure, grid = _figure(rows, columns, rows * each + 0.6)
    title, factor = _shown(swept.shown, table[swept.shown].to_list())
    cells: dict[tuple[Any, ...], float] = {}
    names = [name for key in (across, down, *rest) for name in key.columns]
    for row in table.select([*names, swept.shown]).iter_rows():
        cells[row[:-1]] = row[-1] / factor
    low, high = min(cells.values()), max(cells.values())
    image = None
    # A number of five characters is a quarter of an inch wide.
    small = len(across.values) * columns <= 0.85 * WIDTH / 0.27 and len(down.values) <= 30
    letters = int(13 * WIDTH / columns)
    for number, axes in enumerate(grid):
        if number >= len(shown):
            axes.set_visible(False)
            continue
        panel = tuple(one for value in shown[number] for one in value)
        image = _map(axes, cells, (across, down), panel, (low, high), numbers=small)
        said = ", ".join(
            f"{key.title} {key.label(value)}"
            for key, value in zip(rest, shown[number], strict=True)
        )
        axes.set_title("\n".join(wrap(said, letters, break_long_words=False)), fontsize=8)
        if number % columns:
            axes.set_ylabel("")
            axes.set_yticklabels([])
        if number + columns < len(shown):
            axes.set_xlabel("")
    if image is not None:
        from matplotlib.ticker import FuncFormatter

        plain = FuncFormatter(lambda value, _: show_number(value))
        bar = figure.colorbar(image, ax=grid, label=title, shrink=0.9, pad=0.01, format=plain)
        bar.outline.set_visible(False)
    if len(panels) > len(shown):
        figure.suptitle(
            f"{len(shown)} of {len(panels)} combinations; the table has all",
            fontsize=8,
            color=MUTED,
        )
    return figure


def _map(
    axes: Axes,
    cells: dict[tuple[Any, ...], float],
    keys: tuple[_Key, _Key],
    panel: tuple[Any, ...],
    bounds: tuple[Any, Any],
    *,
    numbers: bool,
) -> Any:
    across, down = keys
    values = [[cells.get((*x, *y, *panel), math.nan) for x in across.values] for y in down.values]
    from matplotlib.colors import LogNorm, Normalize

    low, high = bounds
    scale = LogNorm(low, high) if 0 < low < high / 50 else Normalize(low, high)
    image = axes.imshow(values, cmap="cividis", norm=scale, aspect="auto", origin="lower")
    for key, ticks, named in (
        (across, axes.set_xticks, axes.set_xlabel),
        (down, axes.set_yticks, axes.set_ylabel),
    ):
        step = math.ceil(len(key.values) / MOST_TICKS)
        labels = [key.label(value) for value in key.values]
        ticks(range(0, len(labels), step), labels[::step])
        named(key.title)
    if sum(len(text.get_text()) for text in axes.get_xticklabels()) > 60:
        axes.tick_params(axis="x", labelrotation=30)
        for text in axes.get_xticklabels():
            text.set_horizontalalignment("right")
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if not numbers:
                continue
            if math.isnan(value):
                axes.text(x, y, "failed", ha="center", va="center", fontsize=7, color=MUTED)
                continue
            dark = high == low or scale(value) < 0.5
            colour = "white" if dark else INK
            size = 7 if len(across.values) <= 12 else 5.5
            said = show_number(value, 3)
            axes.text(x, y, said, ha="center", va="center", fontsize=size, color=colour)
    bare(axes, keep=())
    return image


def _scatter(swept: Swept, table: pl.DataFrame, keys: list[_Key]) -> Figure:
    shown = keys[:MOST_PANELS]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure, grid = _figure(rows, columns, 3.0 * rows + 0.3)
    title, factor = _shown(swept.shown, table[swept.shown].to_list())
    for axes, key in zip(grid, shown, strict=False):
        where = {value: index for index, value in enumerate(key.values)}
        points = list(table.select([*key.columns, swept.shown]).iter_rows())
        xs = [point[0] if key.numeric else where[point[:-1]] for point in points]
        ys = [point[-1] / factor for point in points]
        axes.plot(xs, ys, "o", color=HUES[0], markersize=3.5, alpha=0.6)
        _ticks(axes, key)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        bare(axes)
    for number, axes in enumerate(grid):
        axes.set_visible(number < len(shown))
        if number % columns == 0:
            axes.set_ylabel(title)
    return figure


def _pareto(table: pl.DataFrame, changed: Sequence[str]) -> Figure:
    """Cost against what a step does a second; what is on the front has its name."""
    rate, label = rates(table)
    points = [
        (cost, one, number)
        for cost, one, number in zip(table["cost_usd"], rate, table["point"], strict=True)
        if cost is not None and one is not None
    ]
    front = pareto_front(points)
    names = {
        row["point"]: ", ".join(written(row[key]) for key in changed if row[key] is not None)
        for row in table.select(["point", *changed]).iter_rows(named=True)
    }
    figure, (axes,) = _figure(1, 1, 4.6)
    axes.plot(
        [cost / 1e6 for cost, _, _ in points],
        [one for _, one, _ in points],
        "o",
        color=MUTED,
        alpha=0.5,
        markersize=4,
        label="points",
    )
    axes.plot(
        [cost / 1e6 for cost, _, _ in front],
        [one for _, one, _ in front],
        "o-",
        color=HUES[1],
        markersize=6,
        label="nothing cheaper does more",
    )
    for cost, one, number in front if len(front) <= 12 else front[:: len(front) // 8]:
        axes.annotate(
            names[number],
            (cost / 1e6, one),
            textcoords="offset points",
            xytext=(6, -10),
            fontsize=8,
        )
    axes.set_xlabel("cost of the network, M$")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(color=GRID, linewidth=0.6)
    axes.legend(loc="lower right")
    bare(axes)
    return figure


def rates(table: pl.DataFrame) -> tuple[list[float | None], str]:
    """Throughput of each row, by the best name that is known for every point, and that name.

    Args:
        table: A row a point; its throughput is None where the point failed.
    """
    for name in ("samples_per_s", "algbw_GBps"):
        if name in table.columns and not table[name].null_count():
            return table[name].to_list(), name
    time = "step_time_us" if "step_time_us" in table.columns else "time_us"
    what = "steps" if time == "step_time_us" else "runs"
    return [1e6 / us for us in table[time]], f"{what} per second"
