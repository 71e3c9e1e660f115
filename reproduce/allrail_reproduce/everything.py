"""Every publication at once: each with its own pages, and one page of all numbers.

Which there are is `PARTS`; a new one is a line there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from allrail.base.errors import InputError
from allrail_reproduce import (
    astra_sim,
    bytescheduler,
    hammingmesh,
    horovod,
    runs,
    themis,
    themis_workloads,
)
from allrail_reproduce.astra_sim import REFERENCE
from allrail_reproduce.hammingmesh import workloads
from allrail_reproduce.rows import Detail, Progress, Reproduction
from allrail_reproduce.runs import memory

TITLE = "Published numbers beside ours"

Reproduce = Callable[[Path | None, Progress | None], Reproduction]
"""Of a folder with reference files, where there is one, and who is told how far it is."""


def _astra_sim(reference: Path | None, progress: Progress | None) -> Reproduction:
    cases = None if reference is None else reference / "astra-sim"
    return astra_sim.run(
        reference=cases if cases is not None and cases.exists() else None, progress=progress
    )


def _runs(reference: Path | None, progress: Progress | None) -> Reproduction:
    table = None if reference is None else reference / "training_runs.csv"
    found = runs.run(table if table is not None and table.exists() else None, progress=progress)
    return found.reproduction()


PARTS: Mapping[str, Reproduce] = {
    "themis": lambda _, progress: themis.run(progress=progress),
    "themis-workloads": lambda _, progress: themis_workloads.run(progress=progress),
    "astra-sim": _astra_sim,
    "bytescheduler": lambda _, progress: bytescheduler.run(progress=progress),
    "horovod": lambda _, progress: horovod.run(progress=progress),
    "hammingmesh": lambda _, progress: hammingmesh.run(hammingmesh.Scope(), progress=progress),
    "hammingmesh-workloads": lambda _, progress: workloads.run(
        ("flows", "packets"), progress=progress
    ),
    "memory": lambda _, progress: memory.run(progress=progress),
    "runs": _runs,
}
"""By name, in the order in which they run: the longest last but for the runs of a table."""


def reference_folder(given: Path | None) -> Path | None:
    """Return the folder with ASTRA-sim's printed times and tables of runs, if there is one.

    Args:
        given: By the user; else by the environment.

    Raises:
        InputError: It is named, and is no folder.
    """
    named = os.environ.get(REFERENCE)
    folder = given or (Path(named) if named else None)
    if folder is not None and not folder.is_dir():
        raise InputError(
            "there is no such folder",
            source="--reference" if given else REFERENCE,
            value=str(folder),
            hint="a folder with `astra-sim/expected.json` and `training_runs.csv`, or leave it out",
        )
    return folder


def together(parts: Mapping[str, Reproduction]) -> Reproduction:
    """Return all numbers on one page, with what each publication comes to.

    Args:
        parts: By name.
    """
    judged = ("published", "met", "out", "missing")
    header = ("publication", *judged, "fitted", "chosen", "not_published")
    comes = Detail("publications", header, [_line(name, one) for name, one in parts.items()])
    return Reproduction(
        TITLE,
        [
            replace(row, case=f"{name}: {row.case}")
            for name, one in parts.items()
            for row in one.rows
        ],
        [f"{name}: {note}" for name, one in parts.items() for note in one.notes],
        [comes],
    )


def _line(name: str, one: Reproduction) -> tuple[str | float | None, ...]:
    words = [row.made.word for row in one.rows]
    return (
        name,
        len(one.targets),
        len(one.targets) - len(one.misses),
        len(one.misses),
        sum(row.verdict == "missing" for row in one.rows),
        words.count("fitted"),
        words.count("chosen"),
        sum(row.published is None for row in one.rows),
    )
