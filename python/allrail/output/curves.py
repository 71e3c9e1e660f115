"""Throughput over bandwidth, as a table in CSV and Parquet and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from allrail.base.files import staged_folder
from allrail.output.frames import write_frame
from allrail.output.report.style import GRID, HUES, MUTED, WIDTH, style, svg
from allrail.search.require.bandwidth import Required

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MARKERS = "os^Dv"
_SAME = 0.5
"""Percent: curves that are closer everywhere are one line in the picture."""


def write_curves(folder: Path, found: Required) -> None:
    """Write `curves.csv`, `curves.parquet` and `curves.svg`.

    Args:
        folder: Where; made if it is not there.
        found: What was found.
    """
    import polars as pl

    rows = [
        (curve.name, factor, step_s, found.ideal_s / step_s)
        for curve in found.curves
        for factor, step_s in zip(curve.factors, curve.steps_s, strict=True)
    ]
    columns = ["scaled", "factor", "step_s", "part_of_ideal"]
    with staged_folder(folder, "curves") as staged:
        write_frame(pl.DataFrame(rows, schema=columns, orient="row"), folder=staged, name="curves")
        with style("curves"):
            figure = _draw(found)
        (staged / "curves.svg").write_text(svg(figure, name="curves"), encoding="utf-8")


def _draw(found: Required) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes = figure.add_subplot()
    used = _used(found)
    for k, (names, shares) in enumerate(_lines(found).items()):
        factors = found.curves[0].factors
        points = [(x, y) for x, y in zip(factors, shares, strict=True) if x in used]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            marker=_MARKERS[k % len(_MARKERS)],
            linewidth=1.8,
            color=HUES[k % len(HUES)],
            label=names,
        )
    wanted = 100 * found.ideal_s / found.target.step_s
    axes.axhline(wanted, linestyle="--", color=MUTED, label=f"target: {found.target.text}")
    axes.axvline(1.0, linestyle=":", color=MUTED, label="bandwidth as it is")
    axes.set_xscale("log", base=2)
    axes.set_xticks(used, [_factor(one) for one in used])
    axes.minorticks_off()
    axes.set_ylim(0, 105)
    axes.set_xlabel("bandwidth, times what there is")
    axes.set_ylabel("throughput, % of that without time for bytes")
    axes.grid(color=GRID, linewidth=0.5)
    axes.legend(loc="lower right")
    return figure


def _lines(found: Required) -> dict[str, list[float]]:
    """Curves in percent; those that lie on one another are one, under all of their names."""
    lines: list[tuple[list[str], list[float]]] = []
    for curve in found.curves:
        shares = [100 * found.ideal_s / step_s for step_s in curve.steps_s]
        for names, other in lines:
            if all(abs(a - b) < _SAME for a, b in zip(shares, other, strict=True)):
                names.append(curve.name)
                break
        else:
            lines.append(([curve.name], shares))
    return {", ".join(names): shares for names, shares in lines}


def _used(found: Required) -> list[float]:
    """The factors that say something: up to the second at which all curves are level."""
    factors = found.curves[0].factors
    last = [
        max((k for k, step in enumerate(one.steps_s) if step > 1.005 * one.steps_s[-1]), default=0)
        for one in found.curves
    ]
    end = max(max(last) + 2, factors.index(1.0) + 1)
    return list(factors[: end + 1])


def _factor(factor: float) -> str:
    return f"{factor:g}×" if factor >= 1 else f"1/{round(1 / factor)}×"
