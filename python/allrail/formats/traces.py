"""Traces of other tools as Chakra traces.

    report = import_trace([Path("rank0.json.gz")], folder=Path("out"))
    report.kept      # nodes by kind
    report.dropped   # events by why they were left out

The work is the core's (`crates/formats/src`). `recognised.py` says which format a file
has; `config_json.py` and `layer_file.py` import what is no trace; `chakra_export.py` is the other
way.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from allrail.base import leftovers
from allrail.base.errors import InputError
from allrail.base.files import check_name, staged_folder
from allrail.base.manifest import note_source, note_trace, reading
from allrail.formats.chakra_export import parts_of
from allrail.formats.config_json import NotesOf, import_model
from allrail.formats.flight_recorder import read_dumps
from allrail.formats.flight_trace import left_out, write_traces
from allrail.formats.imported import Imported, write_scenario
from allrail.formats.in_core import ask
from allrail.formats.layer_file import import_layers
from allrail.formats.recognised import (
    FLIGHT,
    LAYERS,
    MODEL,
    PROFILER,
    check_options,
    expanded,
    name_of,
    prefix_of,
    recognise,
)


def import_trace(
    files: list[Path],
    *,
    folder: Path,
    name: str | None = None,
    step: int | None = None,
    groups: Path | None = None,
    npus: int | None = None,
    at: int | None = None,
    grow: tuple[str, ...] = (),
    notes_of: NotesOf = lambda _: (),
) -> Imported:
    """Read a trace and write it as a Chakra trace with a scenario that runs it.

    Args:
        files: The trace.
        folder: Where it goes.
        name: What it is called; as its first file if None.
        step: Of a Kineto trace, only this profiler step.
        groups: Of a Chakra trace, its `comm_group.json` if that is elsewhere.
        npus: Of a trace of PyTorch that does not say it, how many ranks the job had; of a Chakra
            trace, repeat it over so many NPUs.
        at: With `npus`, the size of the block of ranks that is repeated.
        grow: With `npus`, the process groups that grow.
        notes_of: Of a model, what a simulation of its scenario says that was assumed.

    Raises:
        InputError: Anything in it is wrong, or an option does not belong to its format.
    """
    options = {"step": step, "groups": groups, "npus": npus, "at": at, "grow": grow}
    with reading():
        return _import(files, folder, name, options, notes_of)[0]


def import_timed(
    files: list[Path], *, folder: Path, step: int | None = None, npus: int | None = None
) -> tuple[Imported, dict[str, Any]]:
    """Read a trace of PyTorch's profiler as `import_trace` does, with what it measured.

    Args:
        files: The trace.
        folder: Where it goes, under the name `trace`.
        step: Only this profiler step.
        npus: How many ranks the job had, where the trace does not say it.

    Returns:
        What was imported, and what the core's `kineto::Timed` has: `span_us`, `exposed_us`,
        `alike`, `steps` and `collectives` with `operation`, `bytes`, `ranks` and `us`.

    Raises:
        InputError: As of `import_trace`; or the trace holds no times.
    """
    options = {"step": step, "groups": None, "npus": npus, "at": None, "grow": ()}
    with reading():
        done, timed = _import(files, folder, "trace", options, lambda _: ())
    if timed is None:
        raise InputError(
            "it holds no times of communication",
            source=str(files[0]),
            hint='PyTorch\'s profiler writes some: `prof.export_chrome_trace("rank0.json.gz")`',
        )
    return done, timed


def _import(
    files: list[Path],
    folder: Path,
    name: str | None,
    options: dict[str, Any],
    notes_of: NotesOf,
) -> tuple[Imported, dict[str, Any] | None]:
    """What was imported, and what the trace measured, if it did."""
    if name is None and len(files) == 1 and files[0].is_dir():
        name = files[0].resolve().name
    files = expanded(files)
    source = recognise(files)
    check_options(source, **options)
    name = check_name(name_of(files[0]) if name is None else name)
    for file in files:
        _note_trace(file)
    if options["groups"] is not None:
        note_source(options["groups"])
    if source == LAYERS:
        return import_layers(files, folder, name), None
    if source == MODEL:
        return import_model(files, folder, name, notes_of), None
    if source != FLIGHT:
        return _in_core_as(source, files, folder, name, options)
    dumps = read_dumps(files)
    with leftovers.folder() as scratch:
        written = write_traces(dumps, scratch)
        done, timed = _in_core_as(PROFILER, written, folder, name, options)
    return replace(done, source=FLIGHT, warnings=(*left_out(dumps), *done.warnings)), timed


def _in_core_as(
    source: str, files: list[Path], folder: Path, name: str, options: dict[str, Any]
) -> tuple[Imported, dict[str, Any] | None]:
    """What the core makes of files of a format that it reads."""
    npus = options["npus"]
    read: dict[str, Any] = {
        "files": [str(file) for file in files],
        "step": options["step"],
        "groups": str(options["groups"]) if options["groups"] else None,
        "npus": npus,
        "scale": None
        if npus is None or source == PROFILER
        else {"at": options["at"], "grow": list(options["grow"]) or None},
    }
    request = {"format": source, "source": read, "name": name}
    with staged_folder(folder, f"trace {name}", foreign=parts_of(name)) as staged:
        told = ask("import_trace", json.dumps(request | {"folder": str(staged)}), folder=staged)
        model = f"trace: {json.dumps(name)}"
        write_scenario(staged / f"{name}.yaml", npus=told["npus"], model=model)
    done = Imported(
        source=source,
        npus=told["npus"],
        kept=told["kept"],
        measured=told["measured"],
        measured_us=told["measured_us"],
        dropped=told["dropped"],
        notes=tuple(told["notes"]),
        warnings=tuple(told["warnings"]),
        files=told["files"],
        nodes=told["nodes"],
        bytes=told["bytes"],
        scenario=folder / f"{name}.yaml",
    )
    return done, told.get("timed")


def _note_trace(file: Path) -> None:
    """Remember the files of a trace that one of them, or their prefix, stands for."""
    note_source(file)
    prefix = prefix_of(file)
    if prefix != file or not file.is_file():
        note_trace(prefix)
