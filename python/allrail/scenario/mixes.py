"""Sizes of jobs and how many there are of each: the presets, CSV and YAML files.

from allrail.scenario.mixes import read_mix

read_mix("alibaba-2020").rows
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError, did_you_mean, show
from allrail.base.stdin import STDIN
from allrail.scenario.places import Places, show_path
from allrail.scenario.text import read_bytes, read_file

MIXES = Path(__file__).parents[1] / "presets" / "mixes"
_FOR_PEOPLE = ("schema_version", "name", "about", "licence", "sources", "unit")

HEADERS = ("size", "sizes", "gpus", "npus", "boards", "arrive")
"""What the first cell of a CSV file's header may be."""

Size = int | tuple[int, ...]
"""Of a job: how many boards or NPUs, or how many along each of two or three dimensions."""

MixLike = str | os.PathLike[str] | Sequence[tuple[int | str | tuple[int, ...], int]]
"""A preset's name, a CSV or YAML file, or (size, number of jobs) pairs; a size may be `"2x4"`."""

_SHAPE = re.compile(r"\d+(\s*[xX×]\s*\d+){1,2}")


class Mix:
    """Sizes of jobs and how many there are of each.

    Attributes:
        rows: (size, number of jobs) pairs.
        unit: What a size counts, `boards` or `npus`; None if the file does not say.
        source: The file or preset; empty for pairs.
        lines: The line of each row in its file.
    """

    def __init__(
        self,
        rows: list[tuple[Size, int]],
        *,
        unit: str | None = None,
        source: str = "",
        lines: list[int | None] | None = None,
    ) -> None:
        self.rows = rows
        self.unit = unit
        self.source = source
        self.lines = lines or [None] * len(rows)


@cache
def mix_names() -> tuple[str, ...]:
    """Return the names of the packaged mixes."""
    return tuple(sorted(path.stem for path in MIXES.glob("*.yaml")))


def read_mix(mix: MixLike) -> Mix:
    """Read sizes of jobs and how many there are of each.

    Args:
        mix: A preset's name, a CSV file of `size,jobs` lines (perhaps below a header), a YAML
            file with `jobs: {size: jobs}` and perhaps `unit: npus`, or pairs. A size is a number
            or a shape, such as `2x4` for 2 rows and 4 columns, or `2x4x1` in three dimensions.

    Raises:
        InputError: There is no such mix, or a size or a number is none.
    """
    if not isinstance(mix, str | os.PathLike):
        return Mix([(job_size(size, {}), whole(jobs, {})) for size, jobs in mix])
    name = os.fspath(mix)
    if name in mix_names():
        return _yaml_mix(MIXES / f"{name}.yaml")
    path = Path(name)
    if path.suffix == ".csv" or (path == STDIN and _has_columns(path)):
        return _csv_mix(path)
    if path == STDIN or path.suffix in (".yaml", ".yml", ".json"):
        return _yaml_mix(path)
    raise InputError(
        "there is no such mix",
        hint=did_you_mean(name, mix_names(), others="name a .csv or .yaml file, or a preset"),
        field="mix",
        value=name,
    )


def whole(value: object, where: dict[str, Any], *, low: int = 0) -> int:
    """Return a whole number.

    Args:
        value: What was given.
        where: What the error says of its place.
        low: The least that is taken.

    Raises:
        InputError: It is none, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        why, hint = "it is not a whole number", "for example `16`"
    elif value < low:
        why, hint = f"it is below {low}", "for example `16`"
    elif value >= 2**63:
        why, hint = "it is above 2^63", "take a smaller number"
    else:
        return value
    raise InputError(why, hint=hint, **{"value": show(value), **where})


def _whole_text(text: str, where: dict[str, Any]) -> int:
    try:
        value: object = int(text)
    except ValueError:
        value = text
    return whole(value, where)


def job_size(value: object, where: dict[str, Any]) -> Size:
    """Return what a job asks for: a number, or a shape of two or three sides.

    Args:
        value: Such as `8`, `"8"`, `"2x4"`, `(2, 4)` or `"2x4x1"`.
        where: What the error says of its place.

    Raises:
        InputError: It is neither.
    """
    if isinstance(value, tuple | list) and len(value) in (2, 3):
        return tuple(whole(side, where) for side in value)
    if not isinstance(value, str):
        return whole(value, where)
    if _SHAPE.fullmatch(value.strip()):
        return tuple(whole(int(side), where) for side in re.findall(r"\d+", value))
    try:
        number: object = int(value)
    except ValueError:
        raise InputError(
            "it is neither a whole number nor a shape",
            hint="for example `16`, `2x4` for 2 rows and 4 columns, or `2x4x1` in 3 dimensions",
            **{"value": show(value), **where},
        ) from None
    return whole(number, where)


def at(path: Path, line: int | None, field: str) -> dict[str, Any]:
    """Return a place, as `InputError` takes it.

    Args:
        path: The file.
        line: Its line.
        field: What stands there.
    """
    return {"source": str(path), "line": line, "field": field}


def read_csv(path: Path, names: tuple[str, ...]) -> tuple[list[list[str]], list[int | None]]:
    """Return the cells of a CSV file and the line of each row; a header is passed over.

    Args:
        path: The file.
        names: Of its columns.

    Raises:
        InputError: It cannot be read, or a row has other columns.
    """
    rows: list[list[str]] = []
    lines: list[int | None] = []
    reader = csv.reader(read_bytes(path).splitlines())
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped) or stripped[0].startswith("#"):
                continue
            if len(stripped) != len(names):
                raise InputError(
                    f"it has {len(stripped)} columns, not {len(names)}",
                    hint=f"write `{','.join(names)}`",
                    source=str(path),
                    line=reader.line_num,
                    value=",".join(stripped),
                )
            if not rows and stripped[0].lower() in HEADERS:
                continue
            rows.append(stripped)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(
            str(error), hint="save it as CSV", source=str(path), line=reader.line_num
        ) from None
    return rows, lines


def _has_columns(path: Path) -> bool:
    """Whether a file without an ending is CSV: its first line has a comma, and no key."""
    lines = (line.strip() for line in read_bytes(path).splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return "," in first and ":" not in first


def _csv_mix(path: Path) -> Mix:
    rows, lines = read_csv(path, ("size", "jobs"))
    pairs = [
        (job_size(size, at(path, line, "size")), _whole_text(jobs, at(path, line, "jobs")))
        for (size, jobs), line in zip(rows, lines, strict=True)
    ]
    return Mix(pairs, source=str(path), lines=lines)


def _yaml_mix(path: Path) -> Mix:
    tree, places = read_file(path)
    source = path.stem if path.parent == MIXES else str(path)
    jobs = tree.get("jobs") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(jobs, dict):
        raise InputError(
            "it is not a mapping with `jobs`, from sizes to numbers of jobs",
            hint="for example `jobs: {1: 60, 4: 30, 16: 10}`",
            source=str(path),
        )
    for key in tree:
        if key not in ("jobs", *_FOR_PEOPLE):
            hint = did_you_mean(str(key), ("jobs", *_FOR_PEOPLE))
            raise InputError(
                "there is no such key",
                hint=hint,
                **_placed(places, (key,), path),
                value=show(tree[key]),
            )
    rows, lines = [], []
    for size, count in jobs.items():
        where = _placed(places, ("jobs", size), path)
        rows.append((job_size(str(size), {**where, "value": show(size)}), whole(count, where)))
        lines.append(where["line"])
    unit = tree.get("unit")
    return Mix(rows, unit=None if unit is None else show(unit), source=source, lines=lines)


def _placed(places: Places, path: tuple[Any, ...], file: Path) -> dict[str, Any]:
    place = places.of(path)
    return {"source": place.source or str(file), "line": place.line, "field": show_path(path)}
