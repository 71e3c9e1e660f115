"""What nccl-tests and rccl-tests print, of any version and as people paste it.

Versions differ in their columns (`redop`, `root`, `error` or `#wrong`, timestamps, per-iteration
times); people leave some out, indent, and tag lines; logs put times and names before them. So
columns are not counted: a row has a size, and behind it twice a time, an algorithm bandwidth and a
bus bandwidth, of which the second is the size over the first. That holds in every version, and
tells microseconds from milliseconds. Where the size is says what follows it: a count and a type.

Rows of different types (`-d all`) or reductions (`-o all`) are different tables, and so are two
outputs that were pasted side by side. The rank list names the group of each rank
(`NCCL_TESTS_SPLIT`): a table is of the ranks of one group, and the groups run at the same time.
"""

from __future__ import annotations

import re

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.lines import plain as _plain
from allrail.measure.calibrate.read.nccl_part import Part
from allrail.measure.calibrate.read.nccl_rows import rows_in
from allrail.measure.calibrate.read.programs import COLLECTIVES, MISTAKES, PROGRAM, algorithm_of
from allrail.measure.calibrate.table import Table

_HEADER = re.compile(r"\bsize\b.*\btime\b.*\balgbw\b.*\bbusbw\b")
_RANK = re.compile(
    r"Rank\s+(?P<rank>\d{1,9})\s+(?:Group\s+(?P<group>\d{1,9})\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)"
    r"\s+device\s+\d+\s+\[[^]]*\]\s*(?P<device>.*)$"
)
_RANK_BEGINS = re.compile(r"(?=\bRank\s+\d+\s+(?:Group|Pid)\b)")
_FAILED = re.compile(r"\bOut of bounds values\s*:\s*(\d+)\s+FAILED")
_CUT = re.compile(r"\d{4,}\s+\d+(?:\s+[a-z]|\s*$|\s*\.\.)")
"""Begins as a row does: a size, a count and a type, as far as they are there."""
_STARTS = re.compile(r"\bnThreads?\b.*\bminBytes\b")


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return any(_HEADER.search(line.lower()) for line in text.splitlines()) or any(
        rows_in(_plain(line)) for line in text.splitlines()
    )


def read(text: str, source: str) -> list[Table]:
    """Return the tables of an output: one for each header that rows follow, type and reduction.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: A row's result was wrong, or there is no row.
    """
    made: list[Table] = []
    # More than one only where outputs stand side by side.
    parts = [Part()]

    def end() -> None:
        """Make tables of what was seen, and begin again."""
        for part in parts:
            if part.rows:
                made.extend(part.tables(source))
        parts[:] = [Part(algorithm=parts[0].algorithm)]

    def at(place: int) -> Part:
        while len(parts) <= place:
            parts.append(parts[0].beside())
        return parts[place]

    for number, line in enumerate(text.splitlines(), 1):
        plain = _plain(line)
        named = PROGRAM.findall(plain)
        ranks = [found for part in _RANK_BEGINS.split(plain) if (found := _RANK.search(part))]
        failed = _FAILED.search(plain)
        if failed:
            raise InputError(
                f"{failed[1]} of its values are wrong", source=source, line=number, hint=MISTAKES
            )
        parts[0].algorithm = algorithm_of(plain) or parts[0].algorithm
        if parts[0].rows and (ranks or _STARTS.search(plain)):
            # Another run begins, and what it lists is its own.
            end()
        if _HEADER.search(plain.lower()):
            if parts[0].rows:
                told = parts[0].told
                end()
                parts[0].told = told or (made[-1].ranks if made else None)
            for part in parts:
                part.headers = re.findall(r"[^\s,;|]+", plain.lower())
        elif named:
            if parts[0].rows:
                end()
            for place, name in enumerate(named):
                at(place).name = COLLECTIVES[name]
        elif ranks:
            for place, rank in enumerate(ranks):
                group = None if rank["group"] is None else int(rank["group"])
                at(place).list_rank(int(rank["rank"]), group, rank["host"], rank["device"])
        elif rows := rows_in(plain):
            for place, row in enumerate(rows):
                if row is not None:
                    at(place).add(row, source, number)
        elif _CUT.match(plain):
            parts[0].cut += 1
    end()
    if not made:
        raise InputError(
            "there is no row with a size, a time and bandwidths",
            source=source,
            hint="give the whole output of nccl-tests, with its table",
        )
    return made
