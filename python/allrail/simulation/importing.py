"""Other tools' traces and models: `allrail.import_`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from allrail.base.arguments import FILES, Names, PathLike, check, checked, several
from allrail.base.errors import AllrailWarning
from allrail.formats.imported import Imported
from allrail.formats.traces import import_trace
from allrail.scenario import load_scenario
from allrail.simulation.one import simulate_one


@checked
def import_(
    files: PathLike | Sequence[PathLike],
    *,
    out: PathLike,
    name: str | None = None,
    step: int | None = None,
    groups: PathLike | None = None,
    npus: int | None = None,
    at: int | None = None,
    grow: Names = (),
) -> Imported:
    """Read another tool's trace, write it as a Chakra trace, and a scenario that runs it.

    Args:
        files: Of PyTorch's profiler or Flight Recorder, Chakra, ASTRA-sim, SimAI, or a Hugging Face
            `config.json`: a file, several, or a folder with one of every rank.
        out: Folder for the trace and the scenario.
        name: Name of the trace; that of its first file if None.
        step: Of a trace of PyTorch's profiler, this profiler step alone.
        groups: `comm_group.json` of a Chakra trace, where it lies elsewhere.
        npus: Number of ranks, where a trace does not state it; repeats a Chakra trace.
        at: With `npus`, the size of the block of ranks that is repeated.
        grow: With `npus`, the process groups that grow.

    Returns:
        What was kept, measured and left out, by kind; `scenario` is the file to simulate.

    Raises:
        InputError: A file is wrong, or an option does not belong to its format.

    Warns:
        AllrailWarning: The trace lacks something, so that the scenario is less than it seems.

    Example:
        `allrail.simulate(allrail.import_("rank0.json.gz", out="out").scenario)`
    """
    paths = [files] if isinstance(files, (str, os.PathLike)) else files
    check("files", paths, kind=FILES)
    done = import_trace(
        [Path(file) for file in paths],
        folder=Path(out),
        name=name,
        step=step,
        groups=None if groups is None else Path(groups),
        npus=npus,
        at=at,
        grow=several(grow),
        notes_of=_notes_of,
    )
    for text in done.warnings:
        warnings.warn(text, AllrailWarning, stacklevel=3)
    return done


def _notes_of(scenario: Path) -> Sequence[str]:
    return simulate_one(load_scenario(scenario)).notes
