"""The picture of ByteScheduler's scaling: samples per second over GPUs, beside linear scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, INK, WIDTH, bare, style
from allrail_reproduce.rows import Detail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = (("baseline", HUES[1]), ("untuned", HUES[2]), ("bytescheduler", HUES[0]))


def machines(detail: Detail, setup: str) -> Figure:
    """Draw one panel a model.

    Args:
        detail: With columns `setup`, `model`, `gpus`, `linear` and those of `LINES`.
        setup: Which rows.
    """
    from matplotlib.figure import Figure

    column = {name: detail.header.index(name) for name in detail.header}
    chosen = [row for row in detail.rows if row[column["setup"]] == setup]
    models = list(dict.fromkeys(str(row[column["model"]]) for row in chosen))
    with style("machines"):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        panels = figure.subplots(1, len(models), squeeze=False)[0]
        for axes, model in zip(panels, models, strict=True):
            rows = [row for row in chosen if row[column["model"]] == model]
            gpus = [float(str(row[column["gpus"]])) for row in rows]
            linear = [float(str(row[column["linear"]])) for row in rows]
            axes.plot(gpus, linear, color=INK, linewidth=1.0, linestyle="--", label="linear")
            for name, hue in LINES:
                values = [float(str(row[column[name]])) for row in rows]
                axes.plot(gpus, values, color=hue, marker="o", markersize=4, label=name)
            axes.set_title(model, loc="left")
            axes.set_xlabel("GPUs")
            axes.set_ylim(bottom=0)
            axes.grid(axis="y", color=GRID, linewidth=0.8)
            bare(axes)
        panels[0].set_ylabel("samples/s")
        panels[0].legend(loc="upper left")
    return figure
