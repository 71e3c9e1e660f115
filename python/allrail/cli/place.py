"""`allrail place`: jobs on the boards of a fabric, and how much of it they use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from allrail.base.errors import InputError
from allrail.base.units import show_count, show_number
from allrail.cli import options, output
from allrail.cli.function import function, option_of
from allrail.results.network_accuracy import TRAFFIC

if TYPE_CHECKING:
    from allrail.simulation.placing import Placed


def _explain(error: InputError, typed: Mapping[str, Any]) -> None:
    """Say by which option a value came that is wrong."""
    if not error.source and error.field in typed:
        error.source = option_of(error.field)
        error.field = error.field if error.value is not None else ""


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
@function("place", doing="placing", folder="out", explain=_explain)
def command(told: Placed) -> None:
    """Place mixes of jobs on a fabric's boards and print how much of it they use.

    Each mix asks for as many boards as the fabric has. With --trace or --jobs, jobs arrive, wait
    and leave instead. Where the jobs of the first mix are, --json and --out say; of --out each job
    is a scenario, too, in `jobs/`.
    """
    if told.is_queue:
        _show_queue(told)
    else:
        _show_mixes(told)


_RUNS = ("alone", "in_place", "together")
"""Bandwidths of jobs that run: alone on a contiguous block, alone in place, with the others."""


def _show_mixes(told: dict[str, Any]) -> None:
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
            f"`{shares['network_model']}` over all shortest paths"
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
