"""Tables of Intel MPI Benchmarks (IMB-MPI1): one for each benchmark and number of processes.

Of a row's times the slowest process counts (`t_max`). Sizes are those of MPI's arguments: what one
process brings to an all-gather or sends to each in an all-to-all, and the buffer elsewhere (IMB
user guide, IMB-MPI1 benchmarks). Of those that do not block the time without computing counts
(`t_pure`). Old versions begin a row with the benchmark's name and the number of processes. One
process alone measures nothing.
"""

from __future__ import annotations

import re

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.lines import plain
from allrail.measure.calibrate.table import Row, Table

_NAME = re.compile(r"Benchmarking\s+(?P<name>\w+)")
_PROCESSES = re.compile(r"#?\s*processes\s*=\s*(?P<count>\d{1,9})")
_GROUPS = re.compile(r"(?P<groups>\d{1,9}) groups of (?P<count>\d{1,9}) processes")
_HEAD = re.compile(r"(?P<before>.*?)#?bytes\s+#repetitions\s+(?P<columns>t.*)$")
_COLLECTIVES = {
    "allreduce": ("all_reduce", False),
    "allgather": ("all_gather", True),
    "allgatherv": ("all_gather", True),
    "alltoall": ("all_to_all", True),
    "alltoallv": ("all_to_all", True),
    "reduce_scatter": ("reduce_scatter", False),
    "reduce_scatter_block": ("reduce_scatter", False),
    "bcast": ("broadcast", False),
    "reduce": ("reduce", False),
    "sendrecv": ("sendrecv", False),
    "pingpong": ("sendrecv", False),
}
"""Our collectives, and whether a size is of a part, by IMB's names in lower case."""
_TIMES = ("t_max", "t_pure", "t")
"""Columns that may be the time, the first that there is."""


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return _NAME.search(text) is not None and any(
        _HEAD.search(plain(line)) for line in text.splitlines()
    )


def read(text: str, source: str) -> list[Table]:
    """Return the tables of an output.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: It has no row.
    """
    made: list[tuple[str | None, bool, int | None, int, list[Row]]] = []
    name, parts, ranks, groups, before, column = None, False, None, 1, 0, 0
    for line in text.splitlines():
        words = plain(line)
        if found := _NAME.search(words):
            told = found["name"].lower()
            name, parts = _COLLECTIVES.get(told.removeprefix("i"), (None, False))
            ranks, groups, column = None, 1, 0
        elif found := _GROUPS.search(words):
            groups, ranks = int(found["groups"]), int(found["count"])
        elif found := _PROCESSES.search(words):
            ranks = int(found["count"])
        elif found := _HEAD.search(words):
            before = len(found["before"].split())
            columns = found["columns"].split()
            column = 2 + next(
                place for wanted in _TIMES for place, one in enumerate(columns) if wanted in one
            )
            made.append((name, parts, ranks, groups, []))
        elif made and column and (row := _row(words.split()[before:], column)) is not None:
            made[-1][-1].append(row)
    tables = [
        Table(
            name,
            ranks,
            None,
            "",
            tuple(sorted(rows, key=lambda row: row.bytes)),
            source,
            groups=groups,
            per_rank=parts,
        ).counted()
        for name, parts, ranks, groups, rows in made
        if rows and ranks != 1
    ]
    if not tables and any(ranks == 1 and rows for _, _, ranks, _, rows in made):
        raise InputError(
            "one process took part, which sends nothing",
            source=source,
            hint="start it with more of them: `mpirun -np 16 IMB-MPI1 allreduce`",
        )
    if not tables:
        raise InputError(
            "it has no row of a size and a time", source=source, hint="give the whole output of IMB"
        )
    return tables


def _row(words: list[str], column: int) -> Row | None:
    """A row; none of 0 bytes, which have no bandwidth."""
    if len(words) <= column or not all(word.isdecimal() for word in words[:2]):
        return None
    try:
        time = float(words[column])
    except ValueError:
        return None
    size = int(words[0][:18])
    return Row(size, time) if size and time > 0 else None
