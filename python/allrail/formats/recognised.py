"""Which format files have that are to be imported, by their names and what is in them.

The core knows Chakra's traces and the profiler's; a file of layers, a model's `config.json` and
dumps of the Flight Recorder are known here.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.formats.flight_recorder import is_dump
from allrail.formats.lookalikes import check_lookalike

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


def expanded(files: list[Path]) -> list[Path]:
    """Return the files, and of folders the traces in them: of a Chakra trace one rank's file.

    A model's folder has other `.json` files beside its `config.json`.

    Args:
        files: Files and folders.

    Raises:
        InputError: A folder has no trace in it.
    """
    found: list[Path] = []
    for file in files:
        if not file.is_dir():
            found.append(file)
            continue
        if is_model(file / "config.json"):
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
    if is_model(file):
        return MODEL
    if is_dump(file):
        return FLIGHT
    if file.name.endswith((".json", ".json.gz")) and not file.exists():
        raise InputError("there is no such file", hint="check the path", source=str(file))
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


def is_model(file: Path) -> bool:
    """Return whether a file is a model's `config.json`; traces are larger, or have no `model_type`.

    Args:
        file: It need not be there.
    """
    if file.suffix != ".json" or not file.is_file() or file.stat().st_size > _LARGEST_MODEL:
        return False
    try:
        tree = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and "model_type" in tree


def check_options(source: str, **options: Any) -> None:
    """Refuse options that a format does not have.

    Args:
        source: The format.
        options: By name; None or empty are those that were not given.

    Raises:
        InputError: One does not belong to the format, or lacks another one.
    """
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


def prefix_of(file: Path) -> Path:
    """Return what the names of a Chakra trace's files begin with; of others the file itself.

    Args:
        file: One of its files.
    """
    stem = file.name.removesuffix(".et")
    head, dot, rank = stem.rpartition(".")
    return file.with_name(head) if file.suffix == ".et" and dot and rank.isdigit() else file


def name_of(file: Path) -> str:
    """Return what a trace is called by its file: without ending and rank.

    Args:
        file: The first of its files.
    """
    name = prefix_of(file).name
    for ending in (".gz", ".json", ".txt", ".et"):
        name = name.removesuffix(ending)
    return name or "trace"
