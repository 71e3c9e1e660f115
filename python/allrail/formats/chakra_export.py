"""Our scenarios' training steps as Chakra traces."""

from __future__ import annotations

import glob
import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from allrail.base.errors import InputError
from allrail.base.files import check_name, staged_folder
from allrail.base.manifest import reading
from allrail.formats.in_core import in_core

if TYPE_CHECKING:
    from allrail.scenario import Scenario
    from allrail.simulation.many import Progress

Ranks = Literal["all", "representative"]
"""Whose files an export writes."""


def export_chakra(
    scenario: Scenario,
    *,
    folder: Path,
    name: str,
    ranks: Ranks = "all",
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write one iteration of a scenario's workload as a Chakra trace.

    Args:
        scenario: With a `workload`.
        folder: Where it goes.
        name: What it is called.
        ranks: Whose files are written: of `all`, or of ranks that are alike a `representative`,
            which allrail alone reads.
        progress: Told how many nodes are written.

    Returns:
        How many `files`, `nodes`, `bytes` and `groups` were written.

    Raises:
        InputError: It trains nothing, or the folder cannot be written.
    """
    if scenario.workload is None:
        raise InputError(
            "it has no `workload`",
            hint="a collective on its own has no step graph; train a model",
            source="allrail export",
        )
    from allrail import _core

    check_name(name)
    with (
        reading(_sources(scenario)),
        staged_folder(folder, f"trace {name}", option="--chakra", foreign=parts_of(name)) as staged,
        in_core(scenario._places, staged),
    ):
        told: dict[str, int] = json.loads(
            _core.export_chakra(scenario.to_json(), str(staged), name, ranks, progress)
        )
    return told


def _sources(scenario: Scenario) -> list[Path]:
    """The files of ranks that a scenario's workload is read from."""
    trace = json.loads(scenario.to_json())["workload"].get("model", {}).get("trace")
    path = trace.get("path") if isinstance(trace, dict) else trace
    if not isinstance(path, str):
        return []
    prefix = Path(path)
    return list(prefix.parent.glob(f"{glob.escape(prefix.name)}.*"))


def parts_of(name: str) -> list[str]:
    """Return patterns of the files that whoever reads a trace takes for a part of it.

    Args:
        name: What the trace is called.
    """
    prefix = glob.escape(name)
    return [f"{prefix}.{'[0-9]' * digits}.et" for digits in range(1, 11)] + [f"{prefix}.ranks.json"]
