"""Throughput over bandwidth, as a table in CSV and a picture."""

from __future__ import annotations

from pathlib import Path

from allrail.files import write_text
from allrail.require.bandwidth import Required


def write_curves(folder: Path, found: Required) -> None:
    """Write `curves.csv` and `curves.svg`.

    Args:
        folder: Where; made if it is not there.
        found: What was found.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["scaled,factor,step_s,part_of_ideal"]
    for curve in found.curves:
        for factor, step_s in zip(curve.factors, curve.steps_s, strict=True):
            lines.append(f"{curve.name},{factor:g},{step_s:.9g},{found.ideal_s / step_s:.6g}")
    write_text(folder / "curves.csv", "\n".join(lines) + "\n")
    _draw(folder / "curves.svg", found)


def _draw(path: Path, found: Required) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for k, curve in enumerate(found.curves):
        shares = [100 * found.ideal_s / step_s for step_s in curve.steps_s]
        # Curves may lie on one another: the ones below are wider.
        width = 1.2 + 1.4 * (len(found.curves) - 1 - k)
        axes.plot(curve.factors, shares, marker="o", linewidth=width, label=curve.name)
    wanted = 100 * found.ideal_s / found.target.step_s
    axes.axhline(wanted, linestyle="--", color="grey", label=found.target.text)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 105)
    axes.set_xlabel("bandwidth, over what there is")
    axes.set_ylabel("throughput, % of that without time for bytes")
    axes.legend()
    figure.savefig(path)
