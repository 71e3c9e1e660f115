"""A model's `config.json` as a scenario that points to it, and what it leaves open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from allrail.base.errors import InputError
from allrail.base.files import staged_folder
from allrail.formats.imported import Imported, named_in, write_scenario
from allrail.formats.recognised import MODEL
from allrail.scenario.models import load_model, parameters_of

_ASSUMED = {"batch_per_replica": 1, "compute": {"device": "a100"}}
"""What a model does not say, and a step needs."""


NotesOf = Callable[[Path], Sequence[str]]
"""What a simulation of a scenario's file says that was assumed."""


def import_model(files: list[Path], folder: Path, name: str, notes_of: NotesOf) -> Imported:
    """Write a model's scenario, and tell what its file leaves open.

    Args:
        files: The `config.json`.
        folder: Where the scenario goes.
        name: What it is called.
        notes_of: What a simulation of a scenario's file says that was assumed.

    Raises:
        InputError: There are several, or the model is not read.
    """
    if len(files) > 1:
        raise InputError(
            "a model is one file", hint="import one", source="allrail import", value=str(files[1])
        )
    scenario = folder / f"{name}.yaml"
    with staged_folder(folder, f"trace {name}") as staged:
        made = staged / scenario.name
        path = named_in(staged, files[0], name=name)
        write_scenario(made, npus=8, model="", workload={"model": path, **_ASSUMED})
        try:
            notes = notes_of(made)
        except InputError as error:
            # The scenario is ours, and gone.
            error.source, error.line = str(files[0]), None
            raise
    parameters = f"{parameters_of(load_model(str(files[0]))):,} parameters"
    assumed = "assumed, to be replaced by yours: 1 sample a replica, an A100, 8 NPUs"
    return Imported(
        source=MODEL,
        npus=None,
        kept={"models": 1},
        measured={},
        measured_us={},
        dropped={},
        notes=(parameters, *notes, assumed),
        warnings=(),
        files=0,
        nodes=0,
        bytes=0,
        scenario=scenario,
    )
