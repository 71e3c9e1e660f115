"""What ASTRA-sim printed of a case, beside the simulation of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allrail.base.errors import AllrailWarning, InputError
from allrail.base.progress import Progress
from allrail.formats.astra_sim import columns
from allrail.formats.astra_sim.asked import read_asked
from allrail.formats.astra_sim.printed import Printed, check_versions, read_printed
from allrail.results.answer import renderers
from allrail.results.table import ToldTable
from allrail.scenario import load_scenario
from allrail.simulation.one import simulate_one

_VERB = "allrail compare --astra-sim"


class BesideAstraSim(ToldTable):
    """ASTRA-sim's columns of a case, theirs and ours: a row each.

    Attributes:
        theirs: What ASTRA-sim printed.
    """

    PLOTTED = ("column", "allrail")
    __slots__ = ("theirs",)
    theirs: Printed


def beside_astra_sim(
    results: list[Any],
    options: dict[str, Any],
    *,
    network_model: str | None,
    run: str | None,
    out: Path | None,
    progress: Progress | None,
) -> BesideAstraSim:
    """Simulate a case, and hold it against what ASTRA-sim printed of it.

    Args:
        results: What it printed: one file.
        options: The files of the case.
        network_model: Network model; the case's own if None.
        run: Which line of its result.
        out: A folder for both.
        progress: Told how far the simulation is.

    Returns:
        Each column that both have: theirs, ours, and the difference as a part of theirs.

    Raises:
        InputError: A file is missing, wrong, or of another version than the others.
    """
    if len(results) != 1:
        raise InputError(
            "one result of ASTRA-sim is compared",
            hint="name `tutorial_result.csv` of 1.0, or the saved output of 2.x",
            source=_VERB,
            value=", ".join(map(str, results)) or None,
        )
    theirs = read_printed(Path(results[0]), run=run)
    inputs: dict[str, Path] = {
        name: options[name] for name in ("system", "workload") if name in options
    }
    version = check_versions([theirs], inputs)
    case = read_asked(options, network_model, verb=_VERB)
    if case.warning:
        warnings.warn(case.warning, AllrailWarning, stacklevel=4)
    scenario = load_scenario(case.scenario)
    result = simulate_one(scenario, progress=progress, timeline=out is not None)
    ours = columns(case, result=result.to_dict())
    if out is not None:
        first = {"Name": theirs.name or "ASTRA-sim", **dict.fromkeys(list(ours)[1:], "")}
        first |= {name: f"{value:.10g}" for name, value in theirs.values.items() if name in ours}
        rows = [first, {**ours, "Name": f"allrail: {ours['Name']}"}]
        label = case.name if result.kind == "workload" else result.policy
        renderers().write_results(result.kind, {label: result}, out)
        renderers().write_columns(out, rows)
    told = [
        {"column": name, "astra_sim": one, "allrail": mine, "difference": off}
        for name, one, mine, off in compared(theirs, ours)
    ]
    beside = BesideAstraSim(name=ours["Name"], version=version, rows=told)
    beside.theirs = theirs
    return beside


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
