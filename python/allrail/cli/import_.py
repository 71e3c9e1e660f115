"""`allrail import`: traces of other tools as Chakra traces and scenarios."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.base.units import show_count
from allrail.cli import options, output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.formats.imported import Imported


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=options.Input(spooled=True), metavar="FILE..."
)
@click.option(
    "-o",
    "--out",
    required=True,
    type=options.Output(),
    metavar="DIR",
    help="Folder to write",
)
@click.option("--name", metavar="NAME", help="Name of the trace; that of FILE if left out")
@click.option("--step", type=int, metavar="N", help="Only ProfilerStep#N of a Kineto trace")
@click.option(
    "--groups",
    type=options.Input(spooled=True),
    metavar="JSON",
    help="comm_group.json of a Chakra trace",
)
@click.option(
    "--npus",
    type=int,
    metavar="N",
    help="Number of ranks, where a trace does not state it; repeats a Chakra trace",
)
@click.option("--at", type=int, metavar="N", help="Repeat blocks of N ranks, not all of them")
@click.option(
    "--grow",
    multiple=True,
    callback=options.listed,
    metavar="GROUP",
    help="Process group that grows; repeatable",
)
@options.as_json
@function("import_")
def command(done: Imported, *, out: Path) -> None:
    """Read a trace, write it as a Chakra trace, and a scenario that runs it.

    \b
    FILE is recognised by its name:
      NAME.0.et, or NAME       a Chakra trace of all its ranks
      *.json, *.json.gz        PyTorch's profiler (Kineto): one rank for all, or every rank
      nccl_trace_rank_0        a dump of torch's Flight Recorder, with durations
      a folder                 of such files, one a rank
      *.txt                    an ASTRA-sim layer file, also SimAI's
      config.json              a model of Hugging Face, or its folder: a scenario, and what was
                               assumed for it

    What was read is counted and timed, and what was left out counted, each with why. Communication
    that is not understood keeps the time that was measured.

    \b
    Examples:
      allrail import rank0.json.gz --step 3 -o out
      allrail import traces/gpt.0.et --npus 1024 -o out    # from 4 ranks to 1,024
      allrail simulate out/gpt.yaml

    Repeated over more NPUs, process groups that reach over all ranks of a block grow (replicas),
    the others are repeated with the block (tensor parallel); --grow names them instead.
    """  # noqa: D301, click wants the character
    sets = (("kept", done.kept), ("measured", done.measured), ("dropped", done.dropped))
    rows = [
        [what, str(count), _time(done.measured_us.get(kind)), kind]
        for what, counts in sets
        for kind, count in counts.items()
    ]
    if done.measured_us:
        rows.append(["sum", "-", _time(sum(done.measured_us.values())), "as the trace measured it"])
        output.table(["what", "count", "measured_us", "of"], rows)
    else:
        output.table(["what", "count", "of"], [[row[0], row[1], row[3]] for row in rows])
    for note in done.notes:
        output.note(note)
    if done.files:
        output.note(
            f"{show_count(done.files, 'file')} with {show_count(done.nodes, 'node')},"
            f" {show_count(done.bytes, 'byte')} in {out}"
        )
    output.note(f"run it: {shlex.join(['allrail', 'simulate', str(done.scenario)])}")


def _time(us: float | None) -> str:
    return "-" if us is None else f"{us:.1f}"
