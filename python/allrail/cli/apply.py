"""`allrail apply`: files that make tools do what a scenario has decided."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options

if TYPE_CHECKING:
    from allrail.targets import Written


@click.command()
@click.argument("file", type=options.Input())
@options.sets
@click.option(
    "--out",
    "folder",
    required=True,
    type=options.Output(),
    callback=options.writable,
    metavar="DIR",
    help="Folder to write",
)
@click.option(
    "--for",
    "targets",
    multiple=True,
    callback=options.listed,
    metavar="A,B,...",
    help="Tools: allrail, ddp, fsdp, megatron, torchtitan, nccl; all that can do it if left out",
)
@options.plugin
@options.as_json
def command(
    *, file: Path, sets: tuple[str, ...], folder: Path, targets: tuple[str, ...], as_json: bool
) -> None:
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
    from allrail.cli import output
    from allrail.targets import apply

    with output.Progress("simulating") as progress:
        written = apply(file, folder, targets=targets, sets=sets, progress=progress)
    if as_json:
        output.print_json(
            {
                one.target: {
                    "files": [str(path) for path in one.files],
                    "why": one.why or None,
                    "left": list(one.left),
                }
                for one in written
            }
        )
        return
    output.pairs([(one.target, _line(one)) for one in written])


def _line(one: Written) -> str:
    if not one.files:
        return f"- ({one.why})"
    left = f"; not in it: {', '.join(one.left)}" if one.left else ""
    return ", ".join(map(str, one.files)) + left
