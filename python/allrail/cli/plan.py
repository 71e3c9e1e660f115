"""`allrail plan`: make a scenario's plan, print what it does, keep it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allrail.cli import options

if TYPE_CHECKING:
    from allrail.plans import Plan

_LETTERS = {
    "reduce_scatter": "RS",
    "all_gather": "AG",
    "all_reduce": "AR",
    "all_to_all": "A2A",
    "broadcast": "BC",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@options.sets
@options.plugin
@click.option("--json", "as_json", is_flag=True, help="Print the plan itself, or all layouts.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    callback=options.writable_file,
    metavar="PATH",
    help="Write the plan to this file; of --model, the best layout's scenario.",
)
@options.cache
@click.option("--model", help="Rank layouts of this model instead: preset, config.json, file.")
@click.option("--fabric", help="With --model: on this network, a preset or a file.")
@click.option("--npus", type=click.IntRange(1), help="With --model: on so many NPUs of it.")
@click.option("--global-batch", type=click.IntRange(1), help="Samples of a step; NPUs if left out.")
@click.option("--sequence", type=click.IntRange(1), help="Tokens of a sample; the model's own.")
@click.option("--device", default="h100", show_default=True, help="With --model: what computes.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Rows shown.")
@click.option(
    "--exhaustive", is_flag=True, help="Simulate layouts too that cannot be in these rows."
)
@click.option(
    "--schedules",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="For so many of the best, try other schedules of communication.",
)
def command(
    *,
    file: Path | None,
    sets: tuple[str, ...],
    as_json: bool,
    out: Path | None,
    cache: bool,
    model: str | None,
    fabric: str | None,
    npus: int | None,
    global_batch: int | None,
    sequence: int | None,
    device: str,
    top: int,
    exhaustive: bool,
    schedules: int,
) -> None:
    """Plan the scenario in FILE: every chunk, its stages, and the order on every dimension.

    `allrail simulate FILE --plan PLAN` runs the plan again.

    With --model, --fabric and --npus the layouts of a transformer are ranked by tokens a second and
    NPU instead: tensor, context, expert, pipeline and data parallelism, mapping, ZeRO, schedules
    and stages of a pipeline, microbatch, and the least recomputation that fits the memory. Each row
    says what it loses by. What a bound shows to be no better than these rows is not simulated.

    \b
    Examples:
      allrail plan scenario.yaml --out plan.json
      allrail plan --model llama3_8b --fabric dgx-h100 --npus 64 --out best.yaml
    """  # noqa: D301, click wants the character
    from allrail import api
    from allrail.cli import output
    from allrail.errors import InputError

    if model is not None or fabric is not None or npus is not None:
        if model is None or fabric is None or npus is None or file is not None:
            raise InputError(
                "layouts are ranked of --model, --fabric and --npus together, without FILE",
                hint="allrail plan --model llama3_8b --fabric dgx-h100 --npus 64",
            )
        from allrail.cli.layouts import job_of, rank

        job = job_of(
            model,
            fabric,
            npus,
            global_batch=global_batch,
            sequence=sequence,
            device=device,
        )
        rank(job, top=top, exhaustive=exhaustive, schedules=schedules, out=out, json=as_json)
        return
    if file is None:
        raise InputError(
            "there is nothing to plan",
            hint="name a scenario's FILE, or --model, --fabric and --npus",
        )
    plan = api.plan(file, sets=sets, cache=cache)
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


def _route(chunk: dict[str, Any]) -> str:
    return ",".join(
        f"{_LETTERS.get(stage['operation'], stage['operation'])}{stage['dimension'] + 1}"
        for stage in chunk["stages"]
    )
