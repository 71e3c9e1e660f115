"""`allrail calibrate`: a fabric, or a device's file, of what was measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.cli import options
from allrail.cli.group import Group

if TYPE_CHECKING:
    from allrail.measure.calibrate.live import Measured
    from allrail.measure.calibrate.network import Calibrated

_TABLES = 16
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
    "number",
    type=click.IntRange(1),
    help="Number of the table in FILE: 1, 2, ...",
)
@click.option("--type", "dtype", help="Element type, where FILE has several (`-d all`): float, ...")
@click.option(
    "--algorithm",
    "algorithms",
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
def network(
    *,
    files: tuple[Path, ...],
    out: Path | None,
    collective: str | None,
    ranks: int | None,
    number: int | None,
    dtype: str | None,
    algorithms: tuple[str, ...],
    nic: str | None,
    as_json: bool,
    report: Path | None,
) -> None:
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
    from allrail.cli import output
    from allrail.measure.calibrate.network import calibrate
    from allrail.measure.calibrate.read import read_tables
    from allrail.measure.calibrate.table import chosen

    if algorithms:
        each = (
            chosen(
                read_tables(file),
                source=str(file),
                collective=collective,
                ranks=ranks,
                number=number,
                dtype=dtype,
            )
            for file in files
        )
        made = calibrate([table for tables in each for table in tables], algorithms=algorithms)
    else:
        every = [table for file in files for table in read_tables(file)]
        tables = chosen(
            every,
            source=str(files[0]),
            collective=collective,
            ranks=ranks,
            number=number,
            dtype=dtype,
            most=_TABLES,
        )
        made = calibrate(tables, nic=_rate(nic))
    if out is not None:
        from allrail.base.files import write_yaml

        write_yaml(out, made.fabric)
    if report is not None:
        from allrail.output.report import answer

        answer.write(report, "calibration", _tree(made))
    if as_json:
        output.print_json(_tree(made))
        return
    _show(made)
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
def live(*, out: Path | None, collective: str, sizes: str, as_json: bool) -> None:
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
    from allrail.base.files import write_yaml
    from allrail.cli import output
    from allrail.measure.calibrate.network import calibrate
    from allrail.measure.calibrate.pairs import unlike

    ladder = _ladder(sizes)
    measured, rank = _measured(ladder, collective)
    if rank:
        return
    made = calibrate(measured.tables)
    if out is not None:
        write_yaml(out, made.fabric)
    told = unlike(measured.pairs, measured.inside)
    if as_json:
        output.print_json(
            {**_tree(made), "pairs": [asdict(pair) for pair in measured.pairs], "unlike": told}
        )
        return
    _show(made)
    for line in told or ["no rank, and no pair of ranks, is slower than the others"]:
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
    "which",
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
def device(*, out: Path | None, which: str | None, seconds: float, as_json: bool) -> None:
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
    import json

    from allrail.cli import output
    from allrail.cli.device import measured, show, tree

    if out is not None and out.suffix != ".json":
        from allrail.base.errors import InputError

        raise InputError(
            "a device's file is JSON", source="--out", value=str(out), hint="such as `mine.json`"
        )
    fitted, warnings, notes = measured(which, seconds)
    if out is not None:
        from allrail.base.files import write_text

        write_text(out, json.dumps(fitted.file, indent=2, ensure_ascii=False) + "\n")
    for line in warnings:
        output.warn(line)
    if as_json:
        output.print_json(
            {
                "device": fitted.file,
                "rows": [tree(row) for row in fitted.rows],
                "notes": [*notes, *fitted.notes],
                "warnings": list(warnings),
            }
        )
        return
    show(fitted)
    for line in (*notes, *fitted.notes):
        output.note(line)
    if out is not None:
        output.note(f"the device's file is in {out}")


def _ladder(text: str) -> list[int]:
    """Sizes from one to another."""
    from allrail import _core
    from allrail.base.errors import InputError
    from allrail.scenario.fields import parse_quantity

    hint = "for example `4 KiB:64 MiB`"
    ends = text.split(":")
    if len(ends) != 2:
        raise InputError("it is no range", source="--sizes", value=text, hint=hint)
    try:
        low, high = (parse_quantity("size", end.strip()) for end in ends)
    except _core.InputError:
        raise InputError(
            "it is no range of sizes", source="--sizes", value=text, hint=hint
        ) from None
    if not 4 <= low <= high <= 16 << 30:
        raise InputError(
            "it is not from 4 B on, upwards, and to 16 GiB", source="--sizes", value=text, hint=hint
        )
    return [low << power for power in range(high.bit_length()) if low << power <= high]


def _measured(sizes: list[int], collective: str) -> tuple[Measured, int]:
    from allrail.base.errors import InputError
    from allrail.base.installed import install
    from allrail.cli import output
    from allrail.runtime.environment import place_of

    place = place_of()
    try:
        from allrail.measure.calibrate import live as job
    except ImportError:
        raise InputError(
            "torch is not installed", hint=install("torch"), source="calibrate live"
        ) from None
    if place.ranks < 2:
        raise InputError(
            "there is one rank, and nobody to measure with",
            source="calibrate live",
            hint="`torchrun --nproc-per-node 4 --no-python allrail calibrate live`",
        )
    job.begin(place.local_rank)
    with output.Progress("measuring") as progress:
        found = job.measure(
            sizes,
            collective=collective,
            inside=job.ranks_inside(),
            progress=progress if place.rank == 0 else None,
        )
    job.end()
    return found, place.rank


def _rate(text: str | None) -> float | None:
    """Bytes a second."""
    from allrail import _core
    from allrail.base.errors import InputError
    from allrail.scenario.fields import parse_quantity

    if text is None:
        return None
    try:
        return float(parse_quantity("bandwidth", text))
    except _core.InputError:
        raise InputError(
            "it is no rate", source="--nic", value=text, hint="for example `400 Gb/s`"
        ) from None


def _tree(made: Calibrated) -> dict[str, object]:
    return {
        "fabric": made.fabric,
        "collective": made.table.collective,
        "ranks": made.table.ranks,
        "error": made.error,
        "error_of_larger_half": made.large,
        "ran": made.ran,
        "every_second": made.every_second,
        "upper_half": made.upper_half,
        "switches": list(made.fit.switches),
        "left_out": list(made.fit.left_out),
        "unknown": list(made.unknown),
        "notes": list(made.table.notes),
        "rows": [
            {
                "ranks": each.table.ranks,
                "bytes": row.bytes,
                "measured_us": row.time_us,
                "fitted_us": each.fit.time_us(row.bytes),
                "simulated_us": each.simulated_us[row.bytes],
            }
            for each in made.judged
            for row in each.table.rows
        ],
    }


def _show(made: Calibrated) -> None:
    from allrail.cli import output
    from allrail.measure.calibrate.ran import DEFAULT

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
