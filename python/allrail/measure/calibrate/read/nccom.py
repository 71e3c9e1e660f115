"""Tables of `nccom-test`, the benchmark of AWS Neuron: one for each header.

The command line before a table says the collective, `-r` (`--nworkers`) the ranks and `-N`
(`--nnodes`) the machines. Sizes are nccl-tests'; bandwidths are in GiB or GB a second, by version,
so only times count. A time is a median or a mean, whichever column comes first (AWS Neuron
documentation, NCCOM-TEST User Guide).
"""

from __future__ import annotations

import re

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.lines import plain
from allrail.measure.calibrate.table import Row, Table

_HEAD = re.compile(r"\bsize\(B\)\s+count\(elems\)")
_COMMAND = re.compile(r"\bnccom-test\s+(?P<arguments>.*)")
_RANKS = re.compile(r"(?:^|\s)(?:-r|--nworkers)[ =](\d{1,9})\b")
_HOSTS = re.compile(r"(?:^|\s)(?:-N|--nnodes)[ =](\d{1,9})\b")
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "allr": "all_reduce",
    "all_gather": "all_gather",
    "allg": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "redsct": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "sendrecv",
}
"""Ours by what the command calls them."""


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return _HEAD.search(text) is not None


def read(text: str, source: str) -> list[Table]:
    """Return the tables of an output.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: It has no row.
    """
    made: list[tuple[str | None, int | None, int | None, dict[str, list[Row]]]] = []
    name, ranks, hosts = None, None, None
    columns: list[str] = []
    for line in text.splitlines():
        words = plain(line)
        if found := _COMMAND.search(words):
            arguments = found["arguments"]
            name = next((_COLLECTIVES[w] for w in arguments.split() if w in _COLLECTIVES), None)
            told = _RANKS.search(arguments), _HOSTS.search(arguments)
            ranks = int(told[0][1]) if told[0] else None
            hosts = int(told[1][1]) if told[1] else 1
        elif _HEAD.search(words):
            columns = words.split()
            made.append((name, ranks, hosts, {}))
        elif made and (found_row := _row(columns, words.split())) is not None:
            dtype, row = found_row
            made[-1][-1].setdefault(dtype, []).append(row)
    tables = [
        Table(name, ranks, hosts, "", tuple(sorted(rows, key=_size)), source, dtype=dtype)
        for name, ranks, hosts, types in made
        for dtype, rows in types.items()
    ]
    if not tables:
        raise InputError(
            "it has no row of a size and a time",
            source=source,
            hint="give the whole output of nccom-test, with its command",
        )
    return tables


def _size(row: Row) -> int:
    return row.bytes


def _row(columns: list[str], words: list[str]) -> tuple[str, Row] | None:
    """The type of a row's elements, and the row."""
    if len(words) != len(columns) or not words[0][:18].isdecimal():
        return None
    times = [place for place, one in enumerate(columns) if one.startswith("time")]
    try:
        time = float(words[times[0]])
    except (ValueError, IndexError):
        return None
    dtype = words[columns.index("type")] if "type" in columns else ""
    size = int(words[0][:18])
    return (dtype, Row(size, time)) if size and time > 0 else None
