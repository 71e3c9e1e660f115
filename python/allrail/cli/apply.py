"""`allrail apply`: files that make tools do what a scenario has decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from allrail.cli import options, output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.targets import Written
    from allrail.targets.asked import Applied


@click.command()
@click.argument("scenario", metavar="FILE", type=options.Input())
@options.sets
@click.option(
    "--out",
    required=True,
    type=options.Output(),
    callback=options.writable,
    metavar="DIR",
    help="Folder to write",
)
@click.option(
    "--for",
    "for_",
    multiple=True,
    callback=options.listed,
    metavar="A,B,...",
    help="Tools: allrail, ddp, fsdp, megatron, torchtitan, nccl; all that can do it if left out",
)
@options.plugin
@options.as_json
@function("apply", doing="simulating")
def command(applied: Applied) -> None:
    """Write what makes tools do what the scenario in FILE has decided.

    \b
      allrail     allrail.yaml and a plan, for `allrail.torch`
      ddp         bucket caps of DistributedDataParallel, and the buckets; the fastest of six
                  caps where the scenario has no buckets
      fsdp        a function that shards a model's blocks by FSDP2 and sets its prefetches
      megatron    flags of Megatron-LM
      torchtitan  flags of torchtitan
      nccl        a file for NCCL's tuner plugin, and settings of its environment, with why

    A tool that cannot do what was decided gets no file, and a line that says what it lacks. What it
    leaves to others of `schedule`, such as the library that runs its collectives, is in its line.

    \b
    Examples:
      allrail apply scenario.yaml --out job
      allrail apply scenario.yaml --out job --for megatron --for nccl
      allrail apply scenario.yaml --set workload.parallelism.tp=8 --out job
    """  # noqa: D301, click wants the character
    output.pairs([(one.target, _line(one)) for one in applied.written])


def _line(one: Written) -> str:
    if not one.files:
        return f"- ({one.why})"
    left = f"; not in it: {', '.join(one.left)}" if one.left else ""
    return ", ".join(map(str, one.files)) + left
