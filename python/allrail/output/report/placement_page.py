"""The report of jobs on boards: mixes that are placed at once, or a queue over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from allrail.base.units import show_count, show_number, show_percent
from allrail.output.report.document import (
    Block,
    Cell,
    Cells,
    Page,
    Picture,
    Section,
    Table,
    share,
)
from allrail.output.report.rendering import render
from allrail.output.report.style import GRID, HUES
from allrail.output.report.timeline import Bar, Row, timeline
from allrail.simulation.placed import placed_jobs

TITLES = {
    "utilisation": "How much of the boards mixes use",
    "boards": "The boards of the first mix",
    "queue": "Boards in use over time",
}
CAPTIONS = {
    "utilisation": "How many mixes use how much of the working boards.",
    "boards": "Which job each board belongs to, and which have failed.",
    "queue": "The line is all of them.",
}
COLUMNS = {
    "mixes": ("mix", "used", "placed", "left out", "all-to-all above leaves", "rings above leaves"),
    "jobs": ("job", "boards", "arrives (s)", "starts (s)", "ends (s)", "waits (s)"),
}


def page(told: Mapping[str, Any], *, pictures: Mapping[str, str], version: str) -> str:
    """The report as HTML.

    Args:
        told: What `allrail.simulation.placement.place` or `queue` returned.
        pictures: SVG by name.
        version: Of allrail.
    """
    drawn = [
        Picture(name, TITLES[name], CAPTIONS[name], svg, _words(told))
        for name, svg in pictures.items()
    ]
    fabric = told["fabric"]
    *sides, last = fabric.get("sides") or (fabric["rows"], fabric["columns"])
    grid = " × ".join([*(f"{side:,}" for side in sides), show_count(last, "board")])
    boards = f"{grid} of {show_count(fabric['npus_per_board'], 'NPU')}"
    waits = "ran" in told
    mean = told["utilisation"]["mean"]
    if waits:
        headline = f"{show_percent(mean)} of the boards are in use, on average."
        what = f"{show_count(told['jobs'], 'job')} of {told['source']}: arriving, waiting, leaving"
        sections = [
            Section("timeline", "Timeline", _queue(told)),
            Section("results", "Boards in use", drawn),
            Section("jobs", "Jobs", [_jobs(told)]),
        ]
    else:
        headline = f"Mixes use {show_percent(mean)} of the working boards, on average."
        what = f"{show_count(told['count'], 'mix', 'mixes')} of {told['mix']}"
        sections = [
            Section("results", "Boards in use", drawn),
            Section("mixes", "Mixes", [_mixes(told)]),
            Section("shares", "Jobs of the first mix", _shares(told)),
            Section("where", "Where the jobs of the first mix are", _where(told)),
        ]
    return render(
        Page(
            title=f"Jobs on {told['name']}",
            subtitle=what,
            badges=[("plain", "placement, nothing is timed")] if not waits else [],
            headline=headline,
            summary=[f"Placed: {what}, on {boards}, seed {told['seed']}.", *_dominates(told)],
            sections=sections,
            beside="The tables are beside it as CSV and Parquet.",
        ),
        version=version,
    )


def _words(told: Mapping[str, Any]) -> str:
    used = told["utilisation"]
    return ", ".join(f"{name} {show_percent(one)}" for name, one in used.items())


def _dominates(told: Mapping[str, Any]) -> list[str]:
    if "ran" in told:
        wait = told["waiting_s"]
        median, longest = show_number(wait["median"]), show_number(wait["max"])
        waits = f"Jobs wait {median} s in the median and {longest} s at most"
        hint = "" if told["backfill"] else "; `--backfill` lets small ones go before large ones"
        return [f"{waits}{hint if wait['max'] > 0 else ''}."]
    said = []
    left = told["left_out"]
    if left["mean"] > 0:
        said.append(
            f"What is left idle: {left['mean']:.2f} jobs of a mix find no place, on average; "
            "shapes with rows and columns exchanged (`--transpose`, `--aspect`) or the largest "
            "job first (`--sort`) may help."
        )
    return said


def _mixes(told: Mapping[str, Any]) -> Table:
    rows: list[Cells] = [
        [
            Cell(f"mix {index}", index),
            share(mix["utilisation"]),
            Cell(f"{mix['placed']:,}", mix["placed"]),
            Cell(f"{mix['left_out']:,}", mix["left_out"]),
            share((mix["upper"] or {}).get("all_to_all")),
            share((mix["upper"] or {}).get("rings")),
        ]
        for index, mix in enumerate(told["mixes"])
    ]
    return Table("each", COLUMNS["mixes"], rows, [0])


def _shares(told: Mapping[str, Any]) -> list[Table]:
    if not told.get("shares"):
        return []
    jobs = told["shares"]["jobs"]
    keys = [key for key in jobs[0] if key not in ("job", "boards")]
    rows: list[Cells] = [
        [
            Cell(f"job {job['job']}", job["job"]),
            Cell(" × ".join(map(str, job["boards"])), job["boards"][0] * job["boards"][1]),
            *(
                Cell(show_number(job[key]), job[key]) if isinstance(job[key], (int, float)) else "–"
                for key in keys
            ),
        ]
        for job in jobs
    ]
    header = ["job", "boards", *(key.replace("_", " ") for key in keys)]
    return [Table("alone", header, rows, [0])]


def _where(told: Mapping[str, Any]) -> list[Table]:
    """Each job's rows and columns of boards; it has the boards where they cross."""
    jobs = placed_jobs(told)
    if not jobs:
        return []
    rows: list[Cells] = [
        [
            Cell(f"job {job.job}", job.job),
            Cell(" × ".join(map(str, job.shape)), math.prod(job.shape)),
            *(_spans(lines) for lines in job.along),
        ]
        for job in jobs
    ]
    axes = ["rows", "columns"] if jobs[0].sides is None else [f"dimension {k}" for k in range(3)]
    text = [0, *range(2, 2 + len(axes))]
    return [Table("placed", ["job", "boards", *axes], rows, text)]


def _spans(numbers: Sequence[int]) -> str:
    """Numbers in their order, neighbours that ascend as `first-last`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _jobs(told: Mapping[str, Any]) -> Table:
    rows: list[Cells] = [
        [
            Cell(f"job {index}", index),
            Cell(f"{job['boards']:,}", job["boards"]),
            *(
                Cell(f"{value:,.1f}", value)
                for value in (
                    job["arrive_s"],
                    job["start_s"],
                    job["end_s"],
                    job["start_s"] - job["arrive_s"],
                )
            ),
        ]
        for index, job in enumerate(told["ran"])
    ]
    return Table("each", COLUMNS["jobs"], rows, [0])


def _queue(told: Mapping[str, Any]) -> list[Block]:
    def bars(first: str, last: str, colour: str) -> list[Bar]:
        return [
            Bar(
                1e6 * job[first],
                1e6 * job[last],
                f"job {index}",
                colour,
                show_count(job["boards"], "board"),
            )
            for index, job in enumerate(told["ran"])
            if job[last] > job[first]
        ]

    rows = [
        Row(told["name"], "running", "", bars("start_s", "end_s", HUES[0])),
        Row(told["name"], "waiting", "", bars("arrive_s", "start_s", HUES[1])),
    ]
    end = max((job["end_s"] for job in told["ran"]), default=1.0)
    return [
        timeline(
            "jobs-timeline",
            rows,
            title="Which job runs or waits, and when",
            caption="One bar a job; jobs at the same time stand below each other.",
            legend=[(HUES[0], "running"), (HUES[1], "waiting"), (GRID, "nothing")],
            end_us=1e6 * end,
            example="such as waiting, or job 7",
        )
    ]
