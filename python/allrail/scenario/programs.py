"""Programs that are named as algorithms: XML files of MSCCL, and what is written in place.

A file is read, proved and laid out anew by the Rust core when a scenario or a job file is read, and
its program put under `programs`, by the file's name as it is written: what is simulated, saved or
handed to a rank on another machine names no file any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.base.manifest import note_source
from allrail.scenario.fields import _Field, refuse

ENDING = ".xml"


def is_file(name: object) -> bool:
    """Return whether an algorithm's name is that of a program's file.

    Args:
        name: As it is written.
    """
    return isinstance(name, str) and name.lower().endswith(ENDING)


def files_in(said: Any) -> list[str]:
    """Return the files that algorithms name.

    Args:
        said: Algorithms of dimensions, or whatever stands in their place.
    """
    return [name for name in said if is_file(name)] if isinstance(said, (list, tuple)) else []


def with_programs(
    schedule: Any, *, folder: FilePath, elsewhere: Mapping[str, FilePath] | None = None
) -> Any:
    """Return a schedule with the programs of the files that its algorithms name.

    Args:
        schedule: As it is written: `algorithms`, `algorithms_by_operation`, `programs`.
        folder: Where a relative path starts.
        elsewhere: Names that are of other files.

    Raises:
        InputError: A file cannot be read, is no program, or is wrong; the step is named.
    """
    if not isinstance(schedule, Mapping):
        return schedule
    programs = schedule.get("programs")
    known: dict[str, Any] = dict(programs) if isinstance(programs, Mapping) else {}
    read = {}
    for field, name in _named(schedule):
        if name not in known and name not in read:
            path = (elsewhere or {}).get(name, folder / name)
            read[name] = _read(path, name, field=f"schedule.{field}")
    return {**schedule, "programs": known | read} if read else schedule


def _named(schedule: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The files that a schedule names, and where."""
    by_operation = schedule.get("algorithms_by_operation")
    lists = {"algorithms": schedule.get("algorithms")}
    if isinstance(by_operation, Mapping):
        lists |= {f"algorithms_by_operation.{key}": said for key, said in by_operation.items()}
    for key, said in lists.items():
        if isinstance(said, (list, tuple)):
            for place, name in enumerate(said):
                if is_file(name):
                    yield f"{key}[{place}]", name


def _read(path: FilePath, name: str, *, field: str) -> Any:
    note_source(path)
    try:
        return json.loads(_core.read_program(str(path), name))
    except _core.InputError as error:
        told = json.loads(str(error.args[0]))
        raise InputError(told["why"], hint=told["hint"], field=field, value=name) from None


@lru_cache(maxsize=64)
def _wrong(programs: str) -> str | None:
    """What is wrong with programs, as the core finds when it proves them."""
    try:
        _core.check_programs(programs)
    except _core.InputError as error:
        return str(json.loads(str(error.args[0]))["why"])
    return None


class Programs(_Field):
    """Name to program; the core says whether one is right."""

    def check(self, value: Any) -> dict[str, Any]:
        """Return the mapping."""
        hint = "`allrail plan` writes them for the XML files that a scenario names"
        if not isinstance(value, Mapping):
            refuse("it is not a mapping of names to programs", hint=hint)
        for name, program in value.items():
            if not isinstance(name, str) or not isinstance(program, Mapping):
                refuse(f"`{name}` is no program", hint=hint)
        if (wrong := _wrong(json.dumps(value))) is not None:
            refuse(wrong, hint=hint)
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "object", "additionalProperties": {"type": "object"}}
