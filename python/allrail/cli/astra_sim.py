"""ASTRA-sim's files on the command line: its options, its columns, its own result beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from allrail.base.errors import InputError
from allrail.cli.options import Input

if TYPE_CHECKING:
    from allrail.formats.astra_sim import AstraCase
    from allrail.formats.astra_sim.printed import Printed
    from allrail.results.result import CollectivesResult

TABLE = "astra_sim.csv"
"""The file of ASTRA-sim's columns in a folder of results."""

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--network",
        "--network-configuration",
        type=Input(),
        metavar="N",
        help="ASTRA-sim's network (.json, .yml)",
    ),
    click.option(
        "--system",
        "--system-configuration",
        type=Input(),
        metavar="S",
        help="ASTRA-sim's system (.txt, .json)",
    ),
    click.option(
        "--workload",
        "--workload-configuration",
        type=Input(),
        metavar="W",
        help="ASTRA-sim's workload (.txt), or its trace: the path without `.<rank>.et`",
    ),
    click.option(
        "--comm-group",
        "--comm-group-configuration",
        type=Input(spooled=True),
        metavar="G",
        help="Process groups of ASTRA-sim's trace",
    ),
    click.option(
        "--remote-memory",
        "--remote-memory-configuration",
        type=Input(),
        metavar="R",
        help="ASTRA-sim's remote memory, which is not modelled; prints a warning",
    ),
    click.option("--comm-scale", type=float, metavar="X", help="Multiply ASTRA-sim's sizes"),
    click.option(
        "--compute-scale", type=float, metavar="X", help="Multiply ASTRA-sim's compute times"
    ),
    click.option("--num-passes", type=int, metavar="N", help="Repeat ASTRA-sim's workload"),
)


def files(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--network`, `--system`, `--workload` and ASTRA-sim's other options.

    Args:
        command: What takes them.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def given(foreign: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ASTRA-sim's options that were given.

    Args:
        foreign: All of them.
    """
    return {name: value for name, value in foreign.items() if value is not None}


def read(options: dict[str, Any], world: str | None, *, verb: str) -> AstraCase:
    """Read a case from its files, and say what of them is not modelled.

    Args:
        options: Those that were given.
        world: Of `--world`.
        verb: Who asks, such as `allrail simulate --astra-sim`.

    Raises:
        InputError: A file is missing or wrong.
    """
    from allrail.cli import output
    from allrail.formats.astra_sim import read_case

    for name in ("network", "system", "workload"):
        if name not in options:
            raise InputError(
                f"`--{name}` is missing",
                hint="an ASTRA-sim case has `--network`, `--system` and `--workload`",
                source=verb,
            )
    if world is not None:
        from allrail.base.errors import did_you_mean
        from allrail.scenario.fields import names
        from allrail.scenario.model import GRAPH_WORLDS

        known = [name for name in names("worlds") if name not in GRAPH_WORLDS]
        if world not in known:
            raise InputError(
                "it is not a world of dimensions",
                hint=did_you_mean(world, known),
                source="--world",
                value=world,
            )
        options["world"] = world
    case = read_case(options.pop("network"), **options)
    if case.warning:
        output.warn(case.warning)
    return case


def refuse(options: Mapping[str, Any], *, verb: str) -> None:
    """Refuse ASTRA-sim's options without `--astra-sim`.

    Args:
        options: Those that were given.
        verb: Who asks.

    Raises:
        InputError: There is one.
    """
    for name, value in options.items():
        raise InputError(
            f"`--{name.replace('_', '-')}` belongs to ASTRA-sim's files",
            hint="add `--astra-sim`, or leave it out",
            source=verb,
            value=str(value),
        )


def write(folder: Path, rows: list[dict[str, str]]) -> None:
    """Write rows of ASTRA-sim's columns beside the results of a folder.

    Args:
        folder: Where results were written.
        rows: With the same columns.

    Raises:
        InputError: The file cannot be written.
    """
    from allrail.base.files import write_bytes
    from allrail.formats.astra_sim import columns_csv
    from allrail.output.write import OUTPUT

    write_bytes(folder / TABLE, columns_csv(*rows).encode(), output=OUTPUT)


def compare(
    results: tuple[Path, ...],
    options: dict[str, Any],
    *,
    world: str | None,
    run: str | None,
    as_json: bool,
    out: Path | None,
) -> None:
    """Print what ASTRA-sim printed of a case beside ours.

    Args:
        results: What it printed.
        options: The files of the case.
        world: Of `--world`.
        run: Which line of its result.
        as_json: Whether one JSON object is printed.
        out: A folder for both.

    Raises:
        InputError: A file is missing, wrong, or of another version than the others.
    """
    from allrail.cli import folders, output
    from allrail.formats.astra_sim import columns
    from allrail.formats.astra_sim.printed import check_versions, read_printed

    verb = "allrail compare --astra-sim"
    if len(results) != 1:
        raise InputError(
            "one result of ASTRA-sim is compared",
            hint="name `tutorial_result.csv` of 1.0, or the saved output of 2.x",
            source=verb,
            value=", ".join(map(str, results)) or None,
        )
    theirs = read_printed(results[0], run=run)
    inputs: dict[str, Path] = {
        name: options[name] for name in ("system", "workload") if name in options
    }
    version = check_versions([theirs], inputs)
    case = read(options, world, verb=verb)
    with output.Progress("simulating") as progress:
        result = _simulate(case, progress, out)
    ours = columns(case, result=result)
    rows = compared(theirs, ours)
    if out is not None:
        first = {"Name": theirs.name or "ASTRA-sim", **dict.fromkeys(list(ours)[1:], "")}
        first |= {name: f"{value:.10g}" for name, value in theirs.values.items() if name in ours}
        write(out, [first, {**ours, "Name": f"allrail: {ours['Name']}"}])
    if as_json:
        told = [
            {"column": name, "astra_sim": one, "allrail": mine, "difference": off}
            for name, one, mine, off in rows
        ]
        output.print_json({"name": ours["Name"], "version": version, "rows": told})
        return
    output.table(
        ["column", "astra_sim", "allrail", "difference_%"],
        [
            [name, f"{one:.3f}", f"{mine:.3f}", "-" if off is None else f"{100 * off:+.3f}"]
            for name, one, mine, off in rows
        ],
    )
    output.note(f"ASTRA-sim {version}: `{theirs.file}`{f', {theirs.name}' if theirs.name else ''}")
    if out is not None:
        folders.tell(out)


def compared(
    theirs: Printed, ours: Mapping[str, str]
) -> list[tuple[str, float, float, float | None]]:
    """Return each column that both have: theirs, ours, and the difference as a part of theirs.

    Args:
        theirs: What ASTRA-sim printed.
        ours: Our columns.
    """
    rows = []
    for name, one in theirs.values.items():
        if not ours.get(name):
            continue
        mine = float(ours[name])
        off = mine / one - 1 if one else (0.0 if mine == one else None)
        rows.append((name, one, mine, off))
    return rows


def _simulate(case: AstraCase, progress: Any, out: Path | None) -> dict[str, Any]:
    """Simulate a case, and write its results where a folder is named."""
    from allrail.cli import folders
    from allrail.results.training_result import TrainingResult
    from allrail.scenario import load_scenario
    from allrail.simulation import api

    scenario = load_scenario(case.scenario)
    result = api.simulate(scenario, progress=progress, timeline=out is not None)
    if out is None:
        return result.to_dict()
    from allrail.output.training import write_training
    from allrail.output.write import write_results

    folders.tell_replaced(out)
    if isinstance(result, TrainingResult):
        write_training(out, results={case.name: result}, scenarios={case.name: scenario})
    else:
        collectives = cast("CollectivesResult", result)
        name = collectives.policy
        write_results(out, results={name: collectives}, scenarios={name: scenario})
    return result.to_dict()
