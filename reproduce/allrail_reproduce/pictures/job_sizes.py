"""The distribution of job sizes: how many jobs, and how many boards, are of jobs up to a size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.output.report.style import GRID, HUES, MUTED, WIDTH, bare, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from allrail_reproduce.rows import Detail

NAME = "job_sizes"
PANELS = (
    ("jobs_up_to_%", "share of jobs (%)"),
    ("boards_of_jobs_up_to_%", "share of boards (%)"),
)


def job_sizes(detail: Detail) -> Figure:
    """Draw two panels of steps, a line a mix, over sizes on a logarithmic axis.

    Args:
        detail: A row a mix and size.
    """
    from matplotlib.figure import Figure

    rows = [dict(zip(detail.header, row, strict=True)) for row in detail.rows]
    mixes = list(dict.fromkeys(str(row["mix"]) for row in rows))
    with style(NAME):
        figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
        panels = figure.subplots(2, 1, sharex=True)
        for axes, (column, label) in zip(panels, PANELS, strict=True):
            for place, mix in enumerate(mixes):
                here = [row for row in rows if row["mix"] == mix]
                axes.step(
                    [float(row["boards"] or 0) for row in here],
                    [float(row[column] or 0) for row in here],
                    where="post",
                    color=HUES[place % len(HUES)],
                    linestyle=("-", "--", ":")[place % 3],
                    linewidth=1.6,
                    label=mix,
                )
            axes.set_xscale("log", base=2)
            axes.set_ylim(0, 102)
            axes.set_ylabel(label)
            axes.grid(color=GRID, linewidth=0.5)
            axes.tick_params(colors=MUTED)
            bare(axes)
        ticks = [1 << power for power in range(0, 14, 2)]
        largest = max(float(row["boards"] or 0) for row in rows)
        ticks = [tick for tick in ticks if tick <= 2 * largest]
        panels[1].set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        panels[1].set_xticks([], minor=True)
        panels[1].set_xlabel("boards of a job")
        panels[0].legend(loc="lower right")
    return figure
