"""What `allrail place --out` writes: how much mixes use, one map of boards, a queue over time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail import _core
from allrail.base.files import staged_folder, yaml_text
from allrail.base.units import show_count, show_number
from allrail.output.frames import write_frame
from allrail.output.report import style as pictures
from allrail.output.report.placement_page import page
from allrail.output.report.style import GRID, HUES, INK, MUTED, PAPER, WIDTH, bare, lighter, style
from allrail.output.write import MADE_BY, OUTPUT, REPORT_FILE, RESULT_FILE, check_folder, write_json
from allrail.simulation.placed import placed_jobs

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from allrail.simulation.placed import Whereabouts

PICTURES = ("utilisation", "boards", "queue")
MOST_NAMED = 6
"""Jobs with a colour and a line in the legend of their own, the largest."""
BINS = 50
JOBS = "jobs"
"""The folder of the jobs' scenarios."""
MAX_SCENARIOS = 1000
MAX_NPUS = 1 << 20
"""More jobs and NPUs than these have no scenario and no line of their own."""


def write(folder: Path, told: dict[str, Any], *, where: Whereabouts | None = None) -> None:
    """Write `result.json`, tables, pictures and `report.html` of a placement or a queue.

    Args:
        folder: Where; an earlier run's files are replaced.
        told: What `allrail.simulation.placement.place` or `queue` returned.
        where: The jobs of its first mix: their boards, NPUs and scenarios are written, too.

    Raises:
        InputError: The folder cannot be written, or a file of another program is in the way.
    """
    import polars as pl

    check_folder(folder)
    drawn, tables = {}, {}
    if "mixes" in told:
        drawn = {"utilisation": utilisation(told), "boards": boards(told)}
        tables["mixes"] = [
            {
                "mix": index,
                "utilisation": mix["utilisation"],
                "placed": mix["placed"],
                "left_out": mix["left_out"],
                "all_to_all_above_leaves": (mix["upper"] or {}).get("all_to_all"),
                "rings_above_leaves": (mix["upper"] or {}).get("rings"),
            }
            for index, mix in enumerate(told["mixes"])
        ]
        if told.get("shares"):
            tables["shares"] = [
                {**job, "rows": job["boards"][0], "columns": job["boards"][1]}
                for job in told["shares"]["jobs"]
            ]
            for row in tables["shares"]:
                del row["boards"]
    else:
        drawn = {"queue": queue(told)}
        tables["jobs"] = told["ran"]
        tables["timeline"] = [{"time_s": at, "boards": busy} for at, busy in told["timeline"]]
    long = ("mixes", "ran", "timeline")
    result: dict[str, Any] = {
        "schema_version": 1,
        "made_by": MADE_BY,
        "versions": {"allrail": _core.version()},
        "placement": {key: value for key, value in told.items() if key not in long},
    }
    if where is not None:
        result["placement"]["placed"] = [job.to_dict() for job in where.jobs]
    with staged_folder(folder, OUTPUT) as staged:
        if where is not None:
            for name, frame in frames(where).items():
                write_frame(frame, folder=staged, name=name)
            (staged / JOBS).mkdir()
            for name, scenario in scenarios(where).items():
                (staged / JOBS / name).write_text(yaml_text(scenario), encoding="utf-8")
        svgs = pictures.write(staged, drawn)
        for name, rows in tables.items():
            write_frame(pl.DataFrame(rows, infer_schema_length=None), folder=staged, name=name)
        html = page(told, pictures=svgs, version=_core.version())
        (staged / REPORT_FILE).write_text(html, encoding="utf-8")
        write_json(staged / RESULT_FILE, result)


def frames(where: Whereabouts) -> dict[str, pl.DataFrame]:
    """Return the tables of the first mix's jobs: one row a job, a board, an NPU.

    Args:
        where: The jobs.
    """
    import polars as pl

    each = math.prod(where.board)
    flat = len(where.board) == 2
    axes = ("row", "column") if flat else tuple(f"physical_{axis}" for axis in range(3))
    virtual = tuple(f"virtual_{axis}" for axis in (axes if flat else range(3)))
    sides = ("rows", "columns") if flat else tuple(f"side_{axis}" for axis in range(3))
    jobs = [
        {
            "job": job.job,
            "asked": "x".join(map(str, job.asked))
            if isinstance(job.asked, tuple)
            else f"{job.asked}",
            **dict(zip(sides, job.shape, strict=True)),
            "boards": math.prod(job.shape),
            "npus": math.prod(job.shape) * each,
            "half_plane_cut_share": where.half_plane_cut_share(job),
        }
        for job in where.jobs
    ]
    boards = [
        (job.job, *board.virtual, *board.physical) for job in where.jobs for board in job.boards
    ]
    names = (*virtual, *axes)
    found = {
        "placed": pl.DataFrame(jobs, infer_schema_length=None),
        "boards": pl.DataFrame(boards, schema=["job", *names], orient="row"),
    }
    if len(boards) * each <= MAX_NPUS:
        npus = [
            (job.job, rank, *own, *place, npu)
            for job in where.jobs
            for rank, (own, place, npu) in enumerate(
                zip(where.virtual(job), where.places(job), where.npus(job), strict=True)
            )
        ]
        columns = ["job", "rank", *names, "npu"]
        found["npus"] = pl.DataFrame(npus, schema=columns, orient="row")
    return found


def scenarios(where: Whereabouts) -> dict[str, dict[str, Any]]:
    """Return a scenario for each job of more than one NPU, by the name of its file.

    Args:
        where: The jobs.
    """
    each = math.prod(where.board)
    some = [job for job in where.jobs if 1 < len(job.rows) * len(job.columns) * each <= MAX_NPUS]
    return {f"job-{job.job}.yaml": where.scenario(job) for job in some[:MAX_SCENARIOS]}


def utilisation(told: dict[str, Any]) -> Figure:
    """Draw how many mixes use how much of the working boards.

    Args:
        told: What `allrail.simulation.placement.place` returned.
    """
    from matplotlib.figure import Figure

    values = [100 * mix["utilisation"] for mix in told["mixes"]]
    summary = told["utilisation"]
    low = min(10 * (min(values) // 10), 90.0)
    with style("utilisation"):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.hist(values, bins=BINS, range=(low, 100), color=HUES[0], linewidth=0)
        top = axes.get_ylim()[1]
        for rank, (name, key) in enumerate((("1st percentile", "p1"), ("mean", "mean"))):
            at = 100 * summary[key]
            axes.axvline(at, color=INK, linewidth=1, linestyle=("-", "--")[rank])
            right = at < (low + 100) / 2
            axes.annotate(
                f"{name} {at:.1f} %",
                (at, top * (0.95 - 0.1 * rank)),
                xytext=(5 if right else -5, 0),
                textcoords="offset points",
                ha="left" if right else "right",
                color=INK,
            )
        axes.set_xlim(low, 100.6)
        axes.set_title(
            f"{told['name']}, {show_count(len(values), 'mix', 'mixes')} of {told['mix']}: median "
            f"{100 * summary['median']:.1f} %",
            loc="left",
        )
        axes.set_xlabel("working boards in use (%)")
        axes.set_ylabel("mixes")
        axes.grid(axis="y", color=GRID, linewidth=0.5)
        axes.tick_params(colors=MUTED)
        bare(axes)
    return figure


def boards(told: dict[str, Any]) -> Figure:
    """Draw the boards of the first mix: which job each belongs to, and which have failed.

    Args:
        told: What `allrail.simulation.placement.place` returned.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    fabric, drawn = told["fabric"], told["map"]
    rows, columns = fabric["rows"], fabric["columns"]
    wrapped = rows == 1
    if wrapped:  # one row of NPUs: folded into lines, read like text
        width = max(1, round(columns**0.5))
        rows, columns = -(-columns // width), width
    free, failed, single = to_rgb(PAPER), to_rgb(INK), to_rgb("#c3cad3")
    cells = [[free] * columns for _ in range(rows)]

    def paint(row: int, column: int, colour: tuple[float, float, float]) -> None:
        at = divmod(column, columns) if wrapped else (row, column)
        cells[at[0]][at[1]] = colour

    jobs = sorted(
        drawn["jobs"], key=lambda job: (-len(job["rows"]) * len(job["columns"]), job["job"])
    )
    shapes = {job.job: job.shape for job in placed_jobs(told)}
    legend = []
    used = {"other": False, "single": False}
    for rank, job in enumerate(jobs):
        count = len(job["rows"]) * len(job["columns"])
        hue = to_rgb(HUES[rank % len(HUES)])
        if count == 1:
            colour, used["single"] = single, True
        elif rank < MOST_NAMED:
            colour = hue
            shape = str(count) if wrapped else " × ".join(map(str, shapes[job["job"]]))
            legend.append(Patch(color=hue, label=f"job {job['job']}: {shape}"))
        else:
            colour, used["other"] = lighter(hue, amount=0.5 + 0.1 * (rank // 6 % 3)), True
        for row in job["rows"]:
            for column in job["columns"]:
                paint(row, column, colour)
    for row, column in drawn["failed"]:
        paint(row, column, failed)
    if used["other"]:
        legend.append(Patch(color=lighter(to_rgb(HUES[0]), amount=0.55), label="smaller jobs"))
    if used["single"]:
        legend.append(Patch(color=single, label="jobs of one board"))
    legend.append(Patch(facecolor=free, edgecolor=MUTED, label="free"))
    if drawn["failed"]:
        legend.append(Patch(color=failed, label=f"failed ({len(drawn['failed'])})"))
    with style("boards"):
        height = min(8.0, max(2.5, 7.2 * rows / columns))
        figure = Figure(figsize=(WIDTH, height + 0.8), layout="constrained")
        axes = figure.subplots()
        axes.imshow(cells, interpolation="none", aspect="equal")
        if max(rows, columns) <= 64:
            for axis, count in (("x", columns), ("y", rows)):
                ticks = [edge - 0.5 for edge in range(count + 1)]
                getattr(axes, f"set_{axis}ticks")(ticks, minor=True)
            axes.grid(which="minor", color=PAPER, linewidth=0.8)
        axes.tick_params(which="both", length=0, colors=MUTED)
        for side in axes.spines.values():
            side.set_visible(True)
        mix = told["mixes"][0]
        axes.set_title(
            f"{told['name']}, mix 0: {100 * mix['utilisation']:.1f} % of the working boards, "
            f"{show_count(mix['placed'], 'job')} placed, {mix['left_out']:,} left out",
            loc="left",
        )
        across, down = "column of boards", "row of boards"
        if fabric.get("sides"):
            across, down = "boards along dimensions 1 and 2, line by line", "dimension 0"
        axes.set_xlabel("NPUs, line by line" if wrapped else across)
        axes.set_ylabel("" if wrapped else down)
        axes.legend(handles=legend, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def queue(told: dict[str, Any]) -> Figure:
    """Draw the boards in use over time.

    Args:
        told: What `allrail.simulation.placement.queue` returned.
    """
    from matplotlib.figure import Figure

    times = [at for at, _ in told["timeline"]]
    busy = [count for _, count in told["timeline"]]
    with style("queue"):
        figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.stairs(busy[:-1], times, fill=True, color=HUES[0], linewidth=0)
        axes.axhline(told["fabric"]["boards"], color=INK, linewidth=1)
        axes.set_ylim(0, 1.08 * told["fabric"]["boards"])
        axes.set_title(
            f"{told['name']}, {show_count(told['jobs'], 'job')} of {told['source']}: "
            f"{100 * told['utilisation']['mean']:.1f} % in use, median wait "
            f"{show_number(told['waiting_s']['median'])} s",
            loc="left",
        )
        axes.set_xlabel("time (s)")
        axes.set_ylabel("boards in use; the line is all")
        axes.grid(axis="y", color=GRID, linewidth=0.5)
        axes.tick_params(colors=MUTED)
        bare(axes)
    return figure
