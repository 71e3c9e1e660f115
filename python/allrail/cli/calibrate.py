"""`allrail calibrate`: a fabric, or a device's file, of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options, output
from allrail.cli.device import show
from allrail.cli.function import function
from allrail.cli.group import Group
from allrail.measure.calibrate.ran import DEFAULT

if TYPE_CHECKING:
    from allrail.measure.calibrate.network import Calibrated
    from allrail.measure.calibrations import Calibration, DeviceCalibration

_out = click.option(
    "-o",
    "--out",
    type=options.Output(),
    callback=options.writable_file,
    metavar="FABRIC",
    help="Fabric file to write",
)


@click.group(cls=Group)
def command() -> None:
    """Make inputs of what was measured."""


@command.command("network")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=options.Input())
@_out
@click.option(
    "--collective", help="Collective, where a file has several: all_reduce, all_gather, ..."
)
@click.option(
    "--ranks",
    type=click.IntRange(2),
    help="Number of ranks: selects a table, or states it where a table (OSU's) does not",
)
@click.option(
    "--table",
    type=click.IntRange(1),
    help="Number of the table in FILE: 1, 2, ...",
)
@click.option("--type", help="Element type, where FILE has several (`-d all`): float, ...")
@click.option(
    "--algorithm",
    multiple=True,
    callback=options.listed,
    metavar="A,B,...",
    help="Algorithm of each FILE, in order: ring, double_binary_tree, ...",
)
@click.option(
    "--nic",
    metavar="RATE",
    help="Rate of one rank's network interfaces, such as `400 Gb/s`",
)
@options.as_json
@options.report
@function("calibrate.network")
def network(made: Calibration, *, out: Path | None, report: Path | None) -> None:
    """Make a fabric of tables that nccl-tests, MPI's or PyTorch's benchmarks print.

    One FILE gives one dimension over its ranks. Several, of one collective on one machine, on
    several, or over one rank of each, give the dimension within the machine and the one around it.
    Output of nccl-tests is read of any version, as people paste it, and of `-J`; a result that was
    wrong, or faster than the network interfaces, is refused.

    With --algorithm, files are of one collective over the same ranks under several algorithms
    (`NCCL_ALGO=Ring`, `NCCL_ALGO=Tree`). The fabric then says from which size on which is the
    fastest, and scenarios with `schedule.algorithms: auto` follow it.

    Shown are each size's time, that of the fit (pieces of a fixed time and a rate, with the sizes
    where the algorithm switches) and that of the simulator with the fabric under the default
    schedule; how far the fit is from sizes that it has not seen; and what the tables cannot tell.

    \b
    Examples:
      allrail calibrate network all_reduce.txt -o measured.yaml
      allrail calibrate network one_node.txt four_nodes.txt -o measured.yaml
      allrail calibrate network ring.txt tree.txt --algorithm ring --algorithm double_binary_tree
    """  # noqa: D301, click wants the character
    _show(made.made)
    if out is not None:
        output.note(f"the fabric is in {out}")
    if report is not None:
        output.note(f"the report is in {report}")


@command.command("live")
@_out
@click.option(
    "--collective",
    type=click.Choice(["all_reduce", "all_gather"]),
    default="all_reduce",
    help="Collective to measure",
)
@click.option(
    "--sizes",
    metavar="FROM:TO",
    default="4 KiB:64 MiB",
    help="Sizes to measure, each twice the one before",
)
@options.as_json
@function("calibrate.live", doing="measuring")
def live(made: Calibration, *, out: Path | None) -> None:
    """Make a fabric of what the processes of a job measure of themselves.

    Start it as the job is started, on the job's own machines: by NCCL where there are GPUs, by gloo
    otherwise. Measured are a collective over the ranks of each machine and over all, and messages
    between every two ranks: a rank or a pair that is slower than the others is named. Rank 0
    prints what `calibrate network` prints, and writes the fabric. Needs PyTorch.

    \b
    Examples:
      torchrun --nproc-per-node 4 --no-python allrail calibrate live -o measured.yaml
      torchrun --nnodes 2 --nproc-per-node 8 ... --no-python allrail calibrate live -o measured.yaml
    """  # noqa: D301, click wants the character
    _show(made.made)
    for line in made.told or ["no rank, and no pair of ranks, is slower than the others"]:
        output.note(line)
    if out is not None:
        output.note(f"the fabric is in {out}")


@command.command("device")
@click.option(
    "-o",
    "--out",
    type=options.Output(),
    callback=options.writable_file,
    metavar="FILE",
    help="Device file to write",
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Device as PyTorch names it: `cuda:1`, `cpu`; the first GPU, else the CPU, if left out",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Time budget in seconds",
)
@options.as_json
@function("calibrate.device", doing="measuring", counts=False)
def device(made: DeviceCalibration, *, out: Path | None) -> None:
    """Make a device's file of what PyTorch measures on the device at hand.

    Measured are products of matrices over a grid of shapes and formats, fused attention by kind and
    size of a head, copies and elementwise work, and what starting a kernel costs: each in rounds
    until its median is steady, as far as there is time. Shown is every point beside what the file
    predicts for it. `workload.compute.device` takes the file. Needs PyTorch.

    \b
    Examples:
      allrail calibrate device -o mine.json
      allrail calibrate device --device cpu --seconds 20 -o cpu.json
      allrail simulate step.yaml --set workload.compute.device=mine.json
    """  # noqa: D301, click wants the character
    show(made.fitted)
    for line in (*made.notes, *made.fitted.notes):
        output.note(line)
    if out is not None:
        output.note(f"the device's file is in {out}")


def _show(made: Calibrated) -> None:
    several = len(made.judged) > 1
    rows = []
    for each in made.judged:
        for row in each.table.rows:
            fitted, simulated = each.fit.time_us(row.bytes), each.simulated_us[row.bytes]
            rows.append(
                [
                    *([str(each.table.ranks)] if several else []),
                    str(row.bytes),
                    f"{row.time_us:.2f}",
                    f"{fitted:.2f}",
                    f"{100 * (fitted / row.time_us - 1):+.1f}",
                    f"{simulated:.2f}",
                    f"{100 * (simulated / row.time_us - 1):+.1f}",
                ]
            )
    header = ["bytes", "measured_us", "fitted_us", "fitted_off_%"]
    header += ["simulated_us", "simulated_off_%"]
    output.table(["ranks", *header] if several else header, rows)
    for one in made.fabric["dimensions"]:
        output.note(f"{one['size']} NPUs, {one['bandwidth']}, {one['latency']} a step")
        for operation, points in one.get("fastest", {}).items():
            told = ", ".join(f"from {point['from']} {point['algorithm']}" for point in points)
            output.note(f"the fastest for {operation}: {told}")
    error, rows_error = made.fabric["error"], made.rows_error
    output.note(
        f"under the default schedule, the simulator is within {100 * made.error:.0f} % of half of"
        f" the rows, within {100 * rows_error:.3g} % of nine of ten"
        + (", which predictions carry" if error <= rows_error else "")
    )
    if error > rows_error:
        output.note(
            f"predictions carry {100 * error:.3g} %: by as much the default schedule differs from"
            " what the tables show, in other collectives"
        )
    if made.ran != DEFAULT:
        output.note(
            f"the tables show {made.ran}: within {100 * made.ran_error:.3g} % of nine of ten rows"
        )
    if made.every_second is not None and made.upper_half is not None:
        output.note(
            f"fitted to every second size: half of the others within {100 * made.every_second:.1f}"
            f" %; to the lower half: of the upper half within {100 * made.upper_half:.0f} %"
        )
    if made.fit.switches:
        output.note(f"it switches at {', '.join(f'{one:,}' for one in made.fit.switches)} bytes")
    for size in made.fit.left_out:
        output.note(f"left out: {size:,} bytes, slower than the next size")
    notes = dict.fromkeys(note for each in made.judged for note in each.table.notes)
    for line in (*notes, *(f"not known: {one}" for one in made.unknown)):
        output.note(line)
