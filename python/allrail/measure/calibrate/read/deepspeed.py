"""Tables of DeepSpeed's communication benchmark (DeepSpeedExamples, benchmarks/communication).

A row has the size in words, `elements x bytes of one`, a duration and two bandwidths, in the unit
that the header names (Gbps unless `--bw-unit GBps` was given). The exact size is that of the
description; an all-gather's is what one rank brings. Which of the two is meant, and which unit a
duration of `--raw` has, says the bus bandwidth, which is the whole buffer's in every version.
"""

from __future__ import annotations

import math
import re
from itertools import product

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.lines import plain
from allrail.measure.calibrate.table import AROUND, Row, Table

_TITLE = re.compile(r"Performance of (?P<name>\w+) on (?P<ranks>\d{1,9}) devices")
_UNIT = re.compile(r"BusBW \((?P<unit>G[bB]ps)\)")
_ROW = re.compile(
    r"\b(?P<count>\d{1,18})x(?P<each>\d{1,3})\s+(?P<time>\d+(?:\.\d*)?)\s*(?P<unit>us|ms|s)?\s+"
    r"(?P<tput>\d+(?:\.\d*)?)\s+(?P<bus>\d+(?:\.\d*)?)\s*$"
)
_NAMES = {"pt2pt": "sendrecv", "broadcast": "broadcast", "reduce": "reduce"}
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}
_MOST = 1 << 50


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return _TITLE.search(text) is not None


def read(text: str, source: str) -> list[Table]:
    """Return the tables of an output: one for each collective and number of devices.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: It has no row.
    """
    made: dict[tuple[str | None, int, int], list[Row]] = {}
    name, ranks, bits = None, 0, 8.0
    for number, line in enumerate(text.splitlines()):
        words = plain(line)
        if title := _TITLE.search(words):
            told = title["name"]
            name = _NAMES.get(told, told if told in AROUND else None)
            ranks = int(title["ranks"])
            key = (name, ranks, number)
        if unit := _UNIT.search(words):
            bits = 8.0 if unit["unit"] == "Gbps" else 1.0
        row = _ROW.search(words)
        if row and ranks and float(row["time"]) > 0 and float(row["bus"]) > 0:
            found = _row(row, name, ranks, float(row["bus"]) / bits)
            if found is not None:
                made.setdefault(key, []).append(found)
    if not made:
        raise InputError(
            "it has no row of a size, a duration and bandwidths",
            source=source,
            hint="give the whole output of the benchmark",
        )
    return [
        Table(name, ranks, None, "", tuple(sorted(rows, key=lambda row: row.bytes)), source)
        for (name, ranks, _), rows in made.items()
    ]


def _row(row: re.Match[str], name: str | None, ranks: int, busbw: float) -> Row | None:
    """Of the readings of a row, the one whose bus bandwidth is nearest to what is printed.

    Args:
        row: The match.
        name: Our name of the collective.
        ranks: How many.
        busbw: As printed, GB/s.
    """
    size, time = int(row["count"]) * int(row["each"]), float(row["time"])
    around = AROUND[name](ranks) if name in AROUND and ranks > 1 else 1.0
    units = [_US[row["unit"]]] if row["unit"] else [1.0, 1e3]
    wholes = [size, size * ranks] if name == "all_gather" else [size]

    def off(reading: tuple[int, float]) -> float:
        whole, unit = reading
        return abs(math.log(around * whole / (time * unit) / 1e3 / busbw)) if whole else math.inf

    whole, unit = min(product(wholes, units), key=off)
    return Row(whole, time * unit) if 0 < whole < _MOST else None
