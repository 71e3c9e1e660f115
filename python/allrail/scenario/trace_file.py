"""A file of messages, for `pattern: trace`.

CSV has a header: a time column (`time` with units, or `time_ps`, `time_ns`, `time_us`, `time_ms`,
`time_s`), `source`, `destination`, and `size` with units or `bytes`. YAML or JSON is a list of rows
`[time, source, destination, size]`, or of mappings with these four keys.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError, show
from allrail.scenario.places import Place, Places
from allrail.scenario.text import read_bytes, read_file

_TIMES = {"time": "", **{f"time_{unit}": f" {unit}" for unit in ("ps", "ns", "us", "ms", "s")}}
_SIZES = {"size": "", "bytes": " B"}
_KEYS = ("time", "source", "destination", "size")
_HINT = "the columns are `time_us,source,destination,bytes`"


def read_trace(path: Path) -> tuple[list[list[Any]], Places]:
    """Read rows of time, source, destination and size.

    Args:
        path: The file.

    Returns:
        The rows, and where each of them stands.

    Raises:
        InputError: It cannot be read, or is not one; the line is named.
    """
    if path.suffix == ".csv":
        return _table(read_bytes(path), str(path))
    tree, places = read_file(path)
    before: tuple[str, ...] = ()
    if isinstance(tree, dict) and "messages" in tree:
        tree, before = tree["messages"], ("messages",)
    if not isinstance(tree, list):
        raise InputError("it is not a list of messages", source=str(path), hint=_HINT)
    lines = [places.of((*before, index)) for index in range(len(tree))]
    rows = [
        _row(row, index, line) for index, (row, line) in enumerate(zip(tree, lines, strict=True))
    ]
    return rows, _places(lines)


def _places(lines: Sequence[Place]) -> Places:
    return Places({(index,): line for index, line in enumerate(lines)})


def _row(row: Any, index: int, place: Place) -> list[Any]:
    if isinstance(row, dict) and set(row) == set(_KEYS):
        return [row[key] for key in _KEYS]
    if isinstance(row, list) and len(row) == len(_KEYS):
        return row
    raise InputError(
        "it is not a message",
        source=place.source,
        line=place.line,
        field=f"[{index}]",
        value=show(row),
        hint="write rows such as `[0 us, 0, 1, 1 MiB]`: time, source, destination, size",
    )


def _table(text: str, source: str) -> tuple[list[list[Any]], Places]:
    lines = csv.reader(text.splitlines())
    header = [name.strip() for name in next(lines, [])]
    times = [name for name in header if name in _TIMES]
    sizes = [name for name in header if name in _SIZES]
    known = {"source", "destination", *_TIMES, *_SIZES}
    wrong = next((name for name in header if name not in known), None)
    if wrong is not None:
        raise InputError("there is no such column", source=source, line=1, value=wrong, hint=_HINT)
    if len(times) != 1 or len(sizes) != 1 or len(header) != 4 or len(set(header)) != 4:
        raise InputError(
            "its columns are not the four of a trace", source=source, line=1, hint=_HINT
        )
    columns = [header.index(name) for name in (times[0], "source", "destination", sizes[0])]
    rows, written = [], []
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        if len(line) != 4:
            raise InputError(f"it has {len(line)} values", source=source, line=number, hint=_HINT)
        time, sender, receiver, size = (line[column].strip() for column in columns)
        for name, npu in (("source", sender), ("destination", receiver)):
            if not (npu.isascii() and npu.isdecimal()):
                raise InputError(
                    "it is not the number of an NPU",
                    source=source,
                    line=number,
                    field=name,
                    value=npu,
                    hint="NPUs are numbered from 0",
                )
        rows.append([time + _TIMES[times[0]], int(sender), int(receiver), size + _SIZES[sizes[0]]])
        written.append(Place(source, number))
    return rows, _places(written)
