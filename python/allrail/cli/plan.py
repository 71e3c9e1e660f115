"""`allrail plan`: make a scenario's plan, print what it does, keep it."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.cli import layout_rows, options, output
from allrail.cli.function import function
from allrail.results.plans import Plan
from allrail.scenario import load_any_fabric

if TYPE_CHECKING:
    from allrail.results.plans import Plan
    from allrail.search.layouts.answer import Layouts

_LETTERS = {
    "reduce_scatter": "RS",
    "all_gather": "AG",
    "all_reduce": "AR",
    "all_to_all": "A2A",
    "broadcast": "BC",
}


@contextmanager
def _ended_with_rows() -> Iterator[None]:
    """Let SIGTERM end a search as Ctrl-C does, so that what it has is shown."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(number: int, frame: object) -> None:
        del number, frame
        raise KeyboardInterrupt("terminated")

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command()
@click.argument("scenario", metavar="[FILE]", type=options.Input(), required=False)
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
    "for_",
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
@function("plan", doing="planning", folder="report", around=_ended_with_rows)
def command(answer: Plan | Layouts, *, out: Path | None) -> None:
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
    if not isinstance(answer, Plan):
        _show_layouts(answer, out)
        return
    show(answer)
    if out is not None:
        output.note(f"written to {out}")


def _show_layouts(answer: Layouts, out: Path | None) -> None:
    for note in answer.unsaid:
        output.note(note)
    layout_rows.show(answer)
    layout_rows.tell(answer)
    if out is not None:
        output.note(f"the recommended one is in {out}: `allrail simulate {out}`")
    output.predicted(["dims"], calibrated=load_any_fabric(answer.job.fabric).calibrated)
    output.known(answer.plain_scenario)


def show(plan: Plan) -> None:
    """Print how many chunks take which route through the dimensions.

    Args:
        plan: What was planned.
    """
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
