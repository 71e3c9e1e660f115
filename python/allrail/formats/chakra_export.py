"""Our scenarios' training steps as Chakra traces."""

from __future__ import annotations

import glob
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from allrail import _core
from allrail.base.arguments import PathLike, checked
from allrail.base.errors import InputError, show
from allrail.base.files import check_name, staged_folder
from allrail.base.manifest import reading
from allrail.base.stdin import stem
from allrail.formats.in_core import in_core
from allrail.results.answer import Told
from allrail.scenario import ScenarioLike, load_scenario
from allrail.scenario.overrides import Sets

if TYPE_CHECKING:
    from allrail.base.progress import Progress
    from allrail.scenario import Scenario

Ranks = Literal["all", "representative"]
"""Whose files an export writes."""


@checked
def export(
    scenario: ScenarioLike,
    *,
    chakra: PathLike,
    sets: Sets = (),
    name: str | None = None,
    ranks: Ranks = "all",
    progress: Progress | None = None,
) -> Told:
    """Write the step graph of a training scenario as a Chakra trace, one file a rank.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        chakra: Folder for `NAME.<rank>.et` and `comm_group.json`.
        sets: Overrides, such as `{"workload.parallelism.tp": 8}`.
        name: Name of the trace; that of the scenario's file, else `scenario`, if None.
        ranks: Whose files are written: `all`, or one `representative` of each group of identical
            ranks, which allrail alone reads.
        progress: Called with the number of nodes written and to write.

    Returns:
        `folder`, `name`, and how many `files`, `nodes`, `bytes` and `groups` were written.

    Raises:
        InputError: It trains nothing, or the folder cannot be written.

    Example:
        `allrail.export("scenario.yaml", chakra="out")["nodes"]`
    """
    if ranks not in get_args(Ranks):
        raise InputError(
            "it is neither `all` nor `representative`", field="ranks", value=show(ranks)
        )
    named = isinstance(scenario, (str, os.PathLike))
    own = stem(Path(cast("str", scenario))) if named else "scenario"
    loaded = load_scenario(scenario, sets=sets)
    folder, name = Path(chakra), own if name is None else name
    told = export_chakra(loaded, folder=folder, name=name, ranks=ranks, progress=progress)
    return Told(folder=str(chakra), name=name, **told)


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
