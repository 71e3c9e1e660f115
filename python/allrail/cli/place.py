"""`allrail place`: jobs on the boards of a fabric, and how much of it they use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from allrail.base.errors import InputError
from allrail.base.units import show_count, show_number
from allrail.cli import options

_OPTIONS = {
    "count": "--count",
    "jobs": "--jobs",
    "failed": "--failed",
    "aspect": "--aspect",
    "leaf_boards": "--leaf-boards",
    "locality": "--locality",
    "memory": "--memory",
    "load": "--load",
    "duration": "--duration",
    "unit": "--unit",
    "seed": "--seed",
    "mix": "--mix",
    "fabric": "--fabric",
    "run": "--run",
}


@click.command()
@click.option(
    "--fabric",
    type=options.Named(),
    required=True,
    help="HammingMesh, torus or fat tree: preset or file",
)
@click.option(
    "--mix",
    type=options.Named(),
    default="alibaba-2020",
    show_default=True,
    help="Job sizes: preset or file",
)
@click.option("--unit", help="Unit of sizes: `boards` (default) or `npus`")
@click.option("--count", type=int, help="Number of mixes: 1000, or 1 with --run")
@click.option("--sort", is_flag=True, help="Place the largest job first")
@click.option("--transpose", is_flag=True, help="Also try shapes with rows and columns exchanged")
@click.option("--aspect", type=int, help="Try shapes up to this ratio of length to width")
@click.option("--locality", is_flag=True, help="Prefer boards under the same leaf switches")
@click.option(
    "--leaf-boards", type=int, help="Boards under a leaf switch; the fabric's own if left out"
)
@click.option("--failed", type=int, default=0, help="Number of failed boards, drawn for each mix")
@click.option(
    "--memory", metavar="SIZE", help="Memory of a board; then jobs move to make room for others"
)
@click.option(
    "--run", help="Run all jobs of a mix at once: `all_reduce` or `all_to_all` (HammingMesh)"
)
@click.option("--seed", type=int, default=0, help="Random seed of mixes and failures")
@click.option(
    "--trace",
    type=options.Input(),
    metavar="FILE",
    help="Run a queue instead: `arrive,duration,size` lines",
)
@click.option("--jobs", type=int, help="Run a queue of this number of jobs from the mix instead")
@click.option("--load", type=float, help="Load of the drawn jobs; 0.9 if left out, 1 is all boards")
@click.option("--duration", help="Mean duration of drawn jobs; `3600 s` if left out")
@click.option("--backfill", is_flag=True, help="In a queue, let later jobs fill gaps")
@options.as_json
@options.out
def command(
    *,
    fabric: str,
    mix: str,
    unit: str | None,
    count: int | None,
    sort: bool,
    transpose: bool,
    aspect: int | None,
    locality: bool,
    leaf_boards: int | None,
    failed: int,
    memory: str | None,
    run: str | None,
    seed: int,
    trace: Path | None,
    jobs: int | None,
    load: float | None,
    duration: str | None,
    backfill: bool,
    as_json: bool,
    out: Path | None,
) -> None:
    """Place mixes of jobs on a fabric's boards and print how much of it they use.

    Each mix asks for as many boards as the fabric has. With --trace or --jobs, jobs arrive, wait
    and leave instead. Where the jobs of the first mix are, --json and --out say; of --out each job
    is a scenario, too, in `jobs/`.
    """
    from allrail.cli import folders, output
    from allrail.simulation import placement
    from allrail.simulation.placed import Whereabouts, placed_jobs

    shapes = {"transpose": transpose, "aspect": aspect, "locality": locality}
    waits = trace is not None or jobs is not None
    _refuse_mixed(
        {
            "--sort": sort,
            "--failed": failed,
            "--memory": memory,
            "--leaf-boards": leaf_boards,
            "--run": run,
            "--count": count is not None,
        }
        if waits
        else {
            "--backfill": backfill,
            "--load": load is not None,
            "--duration": duration is not None,
        },
        "it means nothing for a queue" if waits else "it means nothing without a queue",
        "leave out `--trace` and `--jobs`" if waits else "add `--trace` or `--jobs`",
    )
    if trace is not None:
        _refuse_mixed(
            {
                "--jobs": jobs is not None,
                "--load": load is not None,
                "--duration": duration is not None,
            },
            "it means nothing for jobs from a file",
            "leave it out, or `--trace`",
        )
    try:
        with output.Progress("placing") as progress:
            if waits:
                told = placement.queue(
                    fabric,
                    trace=trace,
                    mix=mix,
                    jobs=1000 if jobs is None else jobs,
                    load=0.9 if load is None else load,
                    duration="3600 s" if duration is None else duration,
                    unit=unit,
                    backfill=backfill,
                    seed=seed,
                    progress=progress,
                    **shapes,  # type: ignore[arg-type]
                )
            else:
                told = placement.place(
                    fabric,
                    mix=mix,
                    count=count,
                    unit=unit,
                    sort=sort,
                    failed=failed,
                    leaf_boards=leaf_boards,
                    memory=memory,
                    run=run,
                    seed=seed,
                    progress=progress,
                    **shapes,  # type: ignore[arg-type]
                )
    except InputError as error:
        if not error.source:
            error.source = _OPTIONS.get(error.field, "")
        raise
    if out is not None:
        from allrail.output.report.placement import write

        folders.tell_replaced(out)
        write(out, told, where=None if waits else Whereabouts(fabric, told))
    if as_json:
        tree = {key: value for key, value in told.items() if key not in _LONG}
        if not waits:
            tree["placed"] = [job.to_dict() for job in placed_jobs(told)]
        output.print_json(tree)
    elif waits:
        _show_queue(told)
    else:
        _show_mixes(told)
    if out is not None and not as_json:
        folders.tell(out)


_RUNS = ("alone", "in_place", "together")
"""Bandwidths of jobs that run: alone on a contiguous block, alone in place, with the others."""

_LONG = ("mixes", "map", "timeline", "ran")
"""What is in `result.json` and the tables only."""


def _refuse_mixed(given: dict[str, object], why: str, hint: str) -> None:
    for name, value in given.items():
        if value:
            raise InputError(why, hint=hint, source=name)


def _show_mixes(told: dict[str, Any]) -> None:
    from allrail.cli import output
    from allrail.results.network_accuracy import TRAFFIC

    upper, moved = told["upper_level"], told["defragmentation"]
    rows = [_row("utilisation_%", told["utilisation"], 100)]
    if max(told["fabric"]["leaves"]) > 1:
        rows.append(_row("all_to_all_above_leaves_%", upper["all_to_all"], 100))
        rows.append(_row("rings_above_leaves_%", upper["rings"], 100))
    rows += [_row("jobs", told["jobs"]), _row("jobs_left_out", told["left_out"])]
    if moved:
        rows.append(_row("placed_by_moving", moved["jobs_placed"]))
        rows.append(_row("jobs_moved", moved["jobs_moved"]))
        rows.append(_row("TB_moved", moved["bytes"], 1e-12))
        rows.append(_row("moving_s", moved["time_us"], 1e-6))
    shares = told.get("shares")
    if shares:
        rows.append(_row("share_of_alone_%", shares, 100))
        rows += [_row(f"{key}_%_of_injection", shares[key], 100) for key in _RUNS]
    output.table(["of_a_mix", "mean", "median", "p1", "p99", "min", "max"], rows)
    _notes(told)
    if shares:
        algorithms = ", ".join(sorted({job["algorithm"] for job in shares["jobs"]}))
        output.note(
            f"{show_count(len(shares['jobs']), 'job runs', 'jobs run')} `{shares['run']}`"
            f" ({algorithms}) at once, in "
            f"`{shares['world']}` over all shortest paths"
        )
        above = output.percent(shares["above_leaves"])
        output.note(f"{above} % of what they send into trees goes above leaf switches")
    mixes = show_count(told["count"], "mix", "mixes")
    output.note(f"{mixes} of `{told['mix']}`, sizes in {told['unit']}")
    if told["sizes_dropped"]:
        output.note(
            f"never drawn, larger than the fabric: {show_count(told['sizes_dropped'], 'job')} of it"
        )
    if shares:
        output.note(TRAFFIC.told)


def _show_queue(told: dict[str, Any]) -> None:
    from allrail.cli import output

    output.table(
        ["of_the_jobs", "mean", "median", "p1", "p99", "min", "max"],
        [_row("waiting_s", told["waiting_s"])],
    )
    _notes(told)
    output.note(
        f"{show_count(told['jobs'], 'job')} of `{told['source']}`, sizes in {told['unit']}; over "
        f"{show_number(told['makespan_s'], 6)} s they use "
        f"{output.percent(told['utilisation']['mean'])} %"
    )


def _notes(told: dict[str, Any]) -> None:
    from allrail.cli import output

    fabric = told["fabric"]
    *sides, last = fabric.get("sides") or (fabric["rows"], fabric["columns"])
    grid = " x ".join([*map(str, sides), show_count(last, "board")])
    grid += f" of {show_count(fabric['npus_per_board'], 'NPU')}"
    if fabric["rows"] == 1 == fabric["npus_per_board"]:
        grid = f"{fabric['columns']:,} NPUs, each counted as a board"
    failed = len(fabric["failed_boards"]) + told.get("failed", 0)
    output.note(f"{told['name']}: {grid}, {failed} failed")


def _row(name: str, summary: dict[str, float] | None, factor: float = 1) -> list[str]:
    keys = ("mean", "median", "p1", "p99", "min", "max")
    if summary is None:
        return [name, *("-" for _ in keys)]
    return [name, *(f"{factor * summary[key]:.2f}" for key in keys)]
