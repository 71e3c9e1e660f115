"""Traces of other tools as Chakra traces, and our scenarios as Chakra traces.

    report = import_trace([Path("rank0.json.gz")], folder=Path("out"))
    report.kept      # nodes by kind
    report.dropped   # events by why they were left out

The work is the core's (`crates/workload/src/formats`); here are the guess of the format and the
scenario file that points to what was written.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from allrail.errors import InputError
from allrail.files import check_name, staged_folder
from allrail.formats.flight_recorder import is_dump, read_dumps
from allrail.formats.flight_trace import left_out, write_traces
from allrail.formats.lookalikes import check_lookalike
from allrail.manifest import note_source, note_trace, reading

if TYPE_CHECKING:
    from allrail.scenario import Scenario
    from allrail.scenario.places import Places

Ranks = Literal["all", "representative"]
"""Whose files an export writes."""

LAYERS = "astra-sim"
"""The one format that is read here, and not in the core: a file of layers, and no trace."""

MODEL = "hugging-face"
"""The one that is a model, and no trace."""

FLIGHT = "flight-recorder"
"""Dumps of torch's Flight Recorder, which the core reads as traces of the profiler."""

PROFILER = "kineto"
"""The core's format of the profiler's traces."""

_MODEL_ABOUT = "a Hugging Face `config.json`, a `.json` with `model_type`, or its folder"
_LARGEST_MODEL = 1 << 20
_FLIGHT_ABOUT = "dumps of torch's Flight Recorder: `nccl_trace_rank_0`, or their folder"
_LAYERS_ABOUT = "an ASTRA-sim 1.0 layer file, also SimAI's: `.txt`"


@cache
def formats() -> dict[str, dict[str, Any]]:
    """Return what is read, by name: `about` (what it is recognised by) and its `options`."""
    from allrail import _core

    rows = {row["name"]: row for row in json.loads(_core.formats())}
    ours = {
        LAYERS: (_LAYERS_ABOUT, []),
        MODEL: (_MODEL_ABOUT, []),
        FLIGHT: (_FLIGHT_ABOUT, ["npus"]),
    }
    return rows | {
        name: {"name": name, "about": about, "options": options}
        for name, (about, options) in ours.items()
    }


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        source: The format that was read.
        npus: How many NPUs the job has; None if its file does not say.
        kept: Nodes by kind.
        measured: Communication of which only the measured time was kept, by why.
        measured_us: Microseconds that the trace measured, by what was kept and what is only
            measured: together the trace's. Empty where a trace measures nothing.
        dropped: What was left out, by why.
        notes: What was taken otherwise than written, or assumed.
        warnings: What makes the result less than it seems.
        files: How many files were written.
        nodes: Nodes in them.
        bytes: Bytes in them.
        scenario: The scenario file that points to them.
    """

    source: str
    npus: int | None
    kept: dict[str, int]
    measured: dict[str, int]
    measured_us: dict[str, float]
    dropped: dict[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    files: int
    nodes: int
    bytes: int
    scenario: Path

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        tree = {name: getattr(self, name) for name in self.__slots__}
        lists = {"notes": list(self.notes), "warnings": list(self.warnings)}
        return tree | lists | {"scenario": str(self.scenario)}


def recognise(files: list[Path]) -> str:
    """Which of the `formats` files have, by their names.

    Args:
        files: One or several of one format.

    Raises:
        InputError: None of them, or several.
    """
    found = {_format(file) for file in files}
    if len(found) != 1:
        raise InputError(
            "they are of several formats",
            hint="import one trace at a time",
            source="allrail import",
            value=" ".join(str(file) for file in files),
        )
    return found.pop()


def _expanded(files: list[Path]) -> list[Path]:
    """The files, and of folders the traces in them: of a Chakra trace one rank's file.

    A model's folder has other `.json` files beside its `config.json`.
    """
    found: list[Path] = []
    for file in files:
        if not file.is_dir():
            found.append(file)
            continue
        if _is_model(file / "config.json"):
            found.append(file / "config.json")
            continue
        if is_dump(file):
            found.append(file)
            continue
        ranks = sorted(file.glob("*.et"))
        inside = ranks[:1] or sorted([*file.glob("*.json"), *file.glob("*.json.gz")], key=_in_order)
        if not inside:
            raise InputError(
                "the folder has no trace in it",
                hint="name the files, or a folder with one `.json`, `.json.gz` or `.et` a rank",
                source=str(file),
            )
        found.extend(inside)
    return found


def _in_order(file: Path) -> list[str | int]:
    """Numbers in a name count as numbers: `rank2` comes before `rank10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file.name)]


def _format(file: Path) -> str:
    from allrail import _core

    if _is_model(file):
        return MODEL
    if is_dump(file):
        return FLIGHT
    check_lookalike(file)
    known = _core.recognise(str(file))
    if known is not None:
        return known
    if file.suffix == ".txt":
        return LAYERS
    if not file.exists():
        raise InputError("there is no such file", hint="check the path", source=str(file))
    if file.name.endswith((".tar", ".tar.gz", ".tgz", ".zip")):
        raise InputError(
            "it is an archive", hint="unpack it, and give a file of it", source=str(file)
        )
    raise InputError(
        "its format is not known by its name",
        hint="; ".join(row["about"] for row in formats().values()),
        source=str(file),
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

    Raises:
        InputError: Anything in it is wrong, or an option does not belong to its format.
    """
    options = {"step": step, "groups": groups, "npus": npus, "at": at, "grow": grow}
    with reading():
        return _import(files, folder, name, options)[0]


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
        done, timed = _import(files, folder, "trace", options)
    if timed is None:
        raise InputError(
            "it holds no times of communication",
            source=str(files[0]),
            hint='PyTorch\'s profiler writes some: `prof.export_chrome_trace("rank0.json.gz")`',
        )
    return done, timed


def _import(
    files: list[Path], folder: Path, name: str | None, options: dict[str, Any]
) -> tuple[Imported, dict[str, Any] | None]:
    """What was imported, and what the trace measured, if it did."""
    if name is None and len(files) == 1 and files[0].is_dir():
        name = files[0].resolve().name
    files = _expanded(files)
    source = recognise(files)
    _check_options(source, **options)
    name = check_name(_name(files[0]) if name is None else name)
    for file in files:
        _note_trace(file)
    if options["groups"] is not None:
        note_source(options["groups"])
    if source == LAYERS:
        return _layer_file(files, folder, name), None
    if source == MODEL:
        return _model(files, folder, name), None
    if source != FLIGHT:
        return _in_core_as(source, files, folder, name, options)
    dumps = read_dumps(files)
    with TemporaryDirectory() as scratch:
        written = write_traces(dumps, Path(scratch))
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
    with staged_folder(folder, f"trace {name}", foreign=_parts(name)) as staged:
        told = _ask("import_trace", json.dumps(request | {"folder": str(staged)}), folder=staged)
        model = f"trace: {json.dumps(name)}"
        _write_scenario(staged / f"{name}.yaml", npus=told["npus"], model=model)
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


def _parts(name: str) -> list[str]:
    """Patterns of the files that whoever reads a trace takes for a part of it."""
    prefix = glob.escape(name)
    return [f"{prefix}.{'[0-9]' * digits}.et" for digits in range(1, 11)] + [f"{prefix}.ranks.json"]


def export_chakra(
    scenario: Scenario, *, folder: Path, name: str, ranks: Ranks = "all"
) -> dict[str, int]:
    """Write one iteration of a scenario's workload as a Chakra trace.

    Args:
        scenario: With a `workload`.
        folder: Where it goes.
        name: What it is called.
        ranks: Whose files are written: of `all`, or of ranks that are alike a `representative`,
            which allrail alone reads.

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
        staged_folder(folder, f"trace {name}", option="--chakra", foreign=_parts(name)) as staged,
        _in_core(scenario._places, staged),
    ):
        told: dict[str, int] = json.loads(
            _core.export_chakra(scenario.to_json(), str(staged), name, ranks)
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


@contextmanager
def _in_core(places: Places, folder: Path | None = None) -> Iterator[None]:
    """Explain what the core refuses; what the system refused it in `folder`, as Python tells it."""
    from allrail import _core
    from allrail.scenario.explain import from_core

    try:
        yield
    except _core.InputError as error:
        told = json.loads(str(error.args[0]))
        number = re.search(r"\(os error (\d+)\)", told["why"])
        if folder and number and str(told.get("value", "")).startswith(str(folder)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None
        raise from_core(error, places=places) from None


def _ask(what: str, request: str, *, folder: Path | None = None) -> dict[str, Any]:
    from allrail import _core
    from allrail.scenario.places import Places

    with _in_core(Places(), folder):
        told: dict[str, Any] = json.loads(getattr(_core, what)(request))
    return told


def _check_options(source: str, **options: Any) -> None:
    for name, value in options.items():
        if value not in (None, ()) and name not in formats()[source]["options"]:
            home = next(row for row in formats().values() if name in row["options"])
            raise InputError(
                f"it belongs to {home['about']}",
                hint="leave it out",
                source=f"--{name}",
                value=str(value),
            )
    for name in ("at", "grow"):
        if options[name] not in (None, ()) and options["npus"] is None:
            raise InputError(
                "it says how a trace is scaled, and `--npus` to how many",
                hint="add `--npus`",
                source=f"--{name}",
                value=str(options[name]),
            )


def _prefix(file: Path) -> Path:
    stem = file.name.removesuffix(".et")
    head, dot, rank = stem.rpartition(".")
    return file.with_name(head) if file.suffix == ".et" and dot and rank.isdigit() else file


def _note_trace(file: Path) -> None:
    """Remember the files of a trace that one of them, or their prefix, stands for."""
    note_source(file)
    prefix = _prefix(file)
    if prefix != file or not file.is_file():
        note_trace(prefix)


def _name(file: Path) -> str:
    name = _prefix(file).name
    for ending in (".gz", ".json", ".txt", ".et"):
        name = name.removesuffix(ending)
    return name or "trace"


def _layer_file(files: list[Path], folder: Path, name: str) -> Imported:
    from allrail.formats.astra_sim.loops import split_by_loop
    from allrail.formats.astra_sim.notes import Notes
    from allrail.formats.astra_sim.workload import read_workload

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
    path = json.dumps(str(files[0].resolve()))
    with staged_folder(folder, f"trace {name}") as staged:
        _write_scenario(
            staged / scenario.name, npus=work.header.all_gpus, model=f"astra_sim: {path}"
        )
    warning = notes.warning()
    told = []
    if leaves:
        told.append(
            f"`{loop}` runs {len(runs)} of the file's {len(runs) + len(leaves)} collectives, as in"
            f" ASTRA-sim; the first that it leaves out is of layer `{leaves[0][0].name}`",
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


def _is_model(file: Path) -> bool:
    """Whether a file is a model's `config.json`; traces are larger, or have no `model_type`."""
    if file.suffix != ".json" or not file.is_file() or file.stat().st_size > _LARGEST_MODEL:
        return False
    try:
        tree = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and "model_type" in tree


_ASSUMED = {"batch_per_replica": 1, "compute": {"device": "a100"}}
"""What a model does not say, and a step needs."""


def _model(files: list[Path], folder: Path, name: str) -> Imported:
    """A model's scenario, and what its file leaves open."""
    from allrail.scenario.models import load_model, parameters_of
    from allrail.training import simulate_training

    if len(files) > 1:
        raise InputError(
            "a model is one file", hint="import one", source="allrail import", value=str(files[1])
        )
    scenario = folder / f"{name}.yaml"
    path = files[0].resolve()
    with staged_folder(folder, f"trace {name}") as staged:
        made = staged / scenario.name
        _write_scenario(made, npus=8, model="", workload={"model": str(path), **_ASSUMED})
        try:
            notes = simulate_training(str(made)).to_dict()["notes"]
        except InputError as error:
            # The scenario is ours, and gone.
            error.source, error.line = str(files[0]), None
            raise
    parameters = f"{parameters_of(load_model(str(path))):,} parameters"
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


def _write_scenario(
    path: Path, *, npus: int | None, model: str, workload: dict[str, Any] | None = None
) -> None:
    """A scenario that runs what was imported, on a network to be replaced."""
    about = "Imported; the network is an example, to be replaced by yours."
    size = npus or 64
    if npus == 1:
        # A network joins two NPUs at least.
        size, model = 2, f"trace: {{path: {model.removeprefix('trace: ')}, scale: {{}}}}"
        about += " One NPU has none: it is on both."
    text = f"""\
# {about}
schema_version: 1
fabric:
  name: one-switch
  dimensions:
    - {{kind: switch, size: {size}, bandwidth: 400 Gb/s, latency: 1 us}}
workload: {json.dumps(workload) if workload else f"{{model: {{{model}}}}}"}
schedule: {{policy: baseline, chunks: 16}}
"""
    path.write_text(text, encoding="utf-8", newline="\n")
