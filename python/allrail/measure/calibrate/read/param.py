"""Tables of PARAM's comms benchmark (facebookresearch/param, comms.py): rows of `COMMS-RES-...`.

A row names the collective and the type, and has the size of the whole buffer, elements a rank, the
latency's percentiles over ranks, and the bandwidths. The median counts, as in PARAM's own
bandwidths. How many ranks there were is not printed: the ratio of the bandwidths says. People
shorten rows to size and bandwidths.
"""

from __future__ import annotations

import re
from itertools import pairwise

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.lines import plain
from allrail.measure.calibrate.table import AROUND, Row, Table, ranks_of

_ROW = re.compile(
    r"COMMS-RES-(?P<name>[a-z0-9_]+)-(?P<dtype>[a-z]+[a-z0-9_]*)\S*\s+(?P<rest>[0-9][0-9.\s]*)"
)
_WORLD = re.compile(r"\bworld[_ ]?size[\"']?\s*[:=]?\s*(\d{1,9})", re.IGNORECASE)
_ENDINGS = ("_single", "_base", "_v", "v")
_NAMES = {"pt2pt": "sendrecv"}
_NEAR = 0.02
_ROUNDED = 0.00051


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return "COMMS-RES" in text


def read(text: str, source: str) -> list[Table]:
    """Return the tables of an output: one for each collective and type.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: It has no row.
    """
    world = _WORLD.search(text)
    told = int(world[1]) if world else None
    rows: dict[tuple[str | None, str], list[Row]] = {}
    ratios: dict[tuple[str | None, str], list[tuple[float, float]]] = {}
    for line in text.splitlines():
        found = _ROW.search(plain(line))
        if not found:
            continue
        read_row = _row(found["rest"].split(), found["name"])
        if read_row is None:
            continue
        row, rates = read_row
        key = (_collective(found["name"]), found["dtype"])
        rows.setdefault(key, []).append(row)
        ratios.setdefault(key, []).extend([rates] if rates else [])
    if not rows:
        raise InputError(
            "it has no `COMMS-RES` row of a size and a latency",
            source=source,
            hint="give the whole output of PARAM's comms.py",
        )
    made = []
    for (name, dtype), each in rows.items():
        fastest = sorted(ratios[name, dtype])[-4:]
        ranks = ranks_of(name or "", fastest, told) or told
        ordered = tuple(sorted(each, key=lambda row: row.bytes))
        made.append(
            Table(
                name,
                2 if name == "sendrecv" and ranks is None else ranks,
                None,
                "",
                ordered,
                source,
                dtype=dtype,
            )
        )
    return made


def _collective(name: str) -> str | None:
    """Our name."""
    for ending in ("", *_ENDINGS):
        bare = name.removesuffix(ending)
        if bare in AROUND or bare in _NAMES:
            return _NAMES.get(bare, bare)
    return None


def _row(words: list[str], name: str) -> tuple[Row, tuple[float, float] | None] | None:
    """A row, and its bandwidths in GB/s, where they are there."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return None
    size = int(numbers[0])
    if not size or len(numbers) < 2:
        return None
    if name == "pt2pt":
        return (Row(size, numbers[1]), None) if numbers[1] > 0 else None
    # Elements a rank are whole numbers; the latencies have a point.
    times = [number for number, word in zip(numbers[1:], words[1:], strict=True) if "." in word]
    if len(times) == 2 and times[0] > 0:
        return Row(size, size / times[0] / 1e3), (times[0], times[1])
    if not times or times[0] <= 0:
        return None
    rates = next(
        (
            (alg, bus)
            for alg, bus in pairwise(times[1:])
            if abs(alg - size / times[0] / 1e3) < _NEAR * alg + _ROUNDED and bus <= 2 * alg + 0.01
        ),
        None,
    )
    return Row(size, times[0]), rates
