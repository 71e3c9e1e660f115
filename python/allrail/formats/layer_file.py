"""A file of ASTRA-sim's layers as a scenario that points to it."""

from __future__ import annotations

import json
from pathlib import Path

from allrail.base.errors import InputError
from allrail.base.files import staged_folder
from allrail.base.units import show_count
from allrail.formats.astra_sim.loops import split_by_loop
from allrail.formats.imported import Imported, named_in, write_scenario
from allrail.formats.recognised import LAYERS
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.workload import read_workload


def import_layers(files: list[Path], folder: Path, name: str) -> Imported:
    """Write the scenario of a file of layers.

    Args:
        files: The file.
        folder: Where the scenario goes.
        name: What it is called.

    Raises:
        InputError: There are several, or the file is no layer file.
    """
    if len(files) > 1:
        raise InputError(
            "a layer file stands for all ranks",
            hint="import one",
            source="allrail import",
            value=str(files[1]),
        )
    notes = Notes()
    work = read_workload(files[0], notes=notes)
    runs, leaves = split_by_loop(work)
    kinds = [phase.kind for _, phase in runs if phase.kind]
    loop = work.header.loop
    scenario = folder / f"{name}.yaml"
    with staged_folder(folder, f"trace {name}") as staged:
        path = json.dumps(named_in(staged, files[0], name=name))
        write_scenario(
            staged / scenario.name, npus=work.header.all_gpus, model=f"astra_sim: {path}"
        )
    warning = notes.warning()
    told = []
    if leaves:
        told.append(
            f"`{loop}` runs {len(runs)} of the file's"
            f" {show_count(len(runs) + len(leaves), 'collective')}, as in ASTRA-sim;"
            f" the first that it leaves out is of layer `{leaves[0][0].name}`",
        )
    return Imported(
        source=LAYERS,
        npus=work.header.all_gpus,
        kept={"layers": len(work.layers)}
        | {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        measured={},
        measured_us={},
        dropped={f"collectives that `{loop}` does not run": len(leaves)} if leaves else {},
        notes=(warning,) if warning else (),
        warnings=tuple(told),
        files=0,
        nodes=0,
        bytes=0,
        scenario=scenario,
    )
