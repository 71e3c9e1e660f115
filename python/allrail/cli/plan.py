"""`allrail plan`: make a scenario's plan, print what it does, keep it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.cli import options

if TYPE_CHECKING:
    from allrail.cli.options import OfModel
    from allrail.results.plans import Plan

_EXAMPLE = "allrail plan --model llama3_8b --fabric dgx-h100 --npus 64"
_LETTERS = {
    "reduce_scatter": "RS",
    "all_gather": "AG",
    "all_reduce": "AR",
    "all_to_all": "A2A",
    "broadcast": "BC",
}


@click.command()
@click.argument("file", type=options.Input(), required=False)
@options.sets
@options.plugin
@click.option("--json", "as_json", is_flag=True, help="Print the plan, or all layouts, as JSON")
@click.option(
    "--out",
    type=options.Output(),
    callback=options.writable_file,
    metavar="PATH",
    help="Write the plan to this file; with --model, the recommended layout's scenario",
)
@options.cache
@options.of_model
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Number of rows")
@click.option("--exhaustive", is_flag=True, help="Disable pruning: simulate every layout")
@click.option(
    "--schedules",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Also try communication schedules for the N best layouts",
)
@click.option(
    "--for",
    "tool",
    type=click.Choice(["megatron", "torchtitan", "fsdp", "ddp", "allrail", "any"]),
    default="any",
    show_default=True,
    help="Only layouts that this tool can run",
)
@click.option(
    "--fix",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Only layouts with these values, such as `tp=8,pp=4,zero=1,mb=2,recompute=full`",
)
@click.option(
    "--score",
    type=options.Input(),
    metavar="FILE",
    help="Also simulate this layout (a scenario, or keys of `parallelism`) and say why it loses",
)
@click.option(
    "--headroom",
    type=click.FloatRange(0, 90),
    metavar="PERCENT",
    help="Part of an NPU's memory that layouts leave free  [default: 5]",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Time budget; then print the best so far, as Ctrl-C does",
)
@options.report
def command(
    *,
    file: Path | None,
    sets: tuple[str, ...],
    as_json: bool,
    out: Path | None,
    cache: bool,
    of_model: OfModel,
    top: int,
    exhaustive: bool,
    schedules: int,
    tool: str,
    fix: tuple[str, ...],
    score: Path | None,
    headroom: float | None,
    budget: float | None,
    report: Path | None,
) -> None:
    """Plan the scenario in FILE: every chunk, its stages, and the order on every dimension.

    `allrail simulate FILE --plan PLAN` runs the plan again.

    With --model, --fabric and --npus the layouts of a transformer are ranked by tokens a second and
    NPU instead: tensor, context, expert, pipeline and data parallelism, mapping, ZeRO, schedules
    and stages of a pipeline, microbatch, and the least recomputation that fits the memory. Each row
    says which tools can do it and what it loses by; a star is at the recommended one. What a bound
    shows to be no better than these rows is not simulated.

    \b
    Examples:
      allrail plan scenario.yaml --out plan.json
      allrail plan --model llama3_8b --fabric dgx-h100 --npus 64 --out best.yaml
      allrail plan --model llama3_8b --fabric dgx-h100 --npus 64 --for megatron --fix tp=8
    """  # noqa: D301, click wants the character
    from allrail.cli import output
    from allrail.cli.layout_job import Asked, job_of
    from allrail.cli.layouts import rank
    from allrail.simulation import api

    asked = Asked(top, exhaustive, schedules, tool, fix, headroom, score, budget, sets)
    job = job_of(file, of_model, example=_EXAMPLE, more=asked)
    if not isinstance(job, Path):
        options.refuse(
            "cache",
            why="a model that is laid out has no scenario yet",
            hint="`--out best.yaml` writes the best one's, which `allrail simulate` takes",
        )
        rank(job, asked, out=out, report=report, json=as_json)
        return
    options.refuse(
        "top",
        "exhaustive",
        "schedules",
        "tool",
        "fix",
        "score",
        "headroom",
        "budget",
        "report",
        why="it is of layouts, which --model, --fabric and --npus ask for",
        hint="leave it out; `allrail simulate --out DIR` writes a report of what a plan does",
    )
    with output.Progress("planning") as progress:
        plan = api.plan(job, sets=sets, cache=cache, progress=progress)
    if out is not None:
        plan.save(out)
    if as_json:
        output.print_json(plan.to_dict())
        return
    show(plan)
    if out is not None:
        output.note(f"written to {out}")


def show(plan: Plan) -> None:
    """Print how many chunks take which route through the dimensions.

    Args:
        plan: What was planned.
    """
    from allrail.cli import output

    rows = []
    for index, one in enumerate(plan.plans):
        routes = Counter(_route(chunk) for chunk in one["chunks"])
        rows += [
            [str(index), one["policy"], one["operation"], str(count), route]
            for route, count in routes.most_common()
        ]
    output.table(["collective", "policy", "operation", "chunks", "route"], rows)
    output.note("a route: operation and dimension (from 1) of each stage, in the chunk's order")
    for said in dict.fromkeys(_algorithms(one) for one in plan.plans):
        output.note(f"algorithms: {said}")


def _algorithms(plan: dict[str, Any]) -> str:
    names = plan["algorithms"]
    return ", ".join(f"{names[at]} on dim{at + 1}" for at in sorted(plan["dimensions"]))


def _route(chunk: dict[str, Any]) -> str:
    return ",".join(
        f"{_LETTERS.get(stage['operation'], stage['operation'])}{stage['dimension'] + 1}"
        for stage in chunk["stages"]
    )
