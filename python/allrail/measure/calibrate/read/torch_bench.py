"""Tables of PyTorch's `all_reduce_bench.py` and its kin."""

from __future__ import annotations

import re

from allrail.base.errors import InputError
from allrail.measure.calibrate.table import AROUND, Row, Table, ranks_of

_NUMBER = r"([0-9]{1,18}(?:\.[0-9]*)?)"
_SIZE = re.compile(rf"^{_NUMBER}\s*([KMGT]?i?)B$", re.IGNORECASE)
_RATE = re.compile(rf"^{_NUMBER}\s*GBps$", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_AVERAGE = re.compile(rf"tput_avg \(Gbps\):\s*{_NUMBER}\s+busbw_avg \(Gbps\):\s*{_NUMBER}")
_DATA = re.compile(rf"data size:\s*{_NUMBER}\s*GB")
_GPUS = re.compile(r"(?:NUM_GPUS=|nproc[_-]per[_-]node[= ])([0-9]{1,9})")
_HOSTS = re.compile(r"(?:NUM_NODES=|nnodes[= ])([0-9]{1,9})")


def recognise(text: str) -> bool:
    """Whether a text is a table of PyTorch's benchmarks."""
    return "GBps" in text or _AVERAGE.search(text) is not None


def read(text: str, source: str) -> list[Table]:
    """Return the tables of a benchmark: one for each column of bus bandwidths.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: It has no row.
    """
    ranks, hosts = (_first(pattern, text) for pattern in (_GPUS, _HOSTS))
    average, data = _AVERAGE.search(text), _DATA.search(text)
    if average and data and float(average[1]) > 0:
        sent = float(data[1]) * 1e9
        row = Row(int(sent), sent / (float(average[1]) / 8 * 1e3))
        return [Table("all_reduce", ranks, hosts, "", (row,), source)]
    heads: list[str] = []
    columns: dict[str, list[tuple[int, float]]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        size = _size(cells[0])
        if size is None:
            heads = cells if "payload" in cells[0].lower() else heads
            continue
        for place, cell in enumerate(cells[1:], 1):
            rate = _RATE.match(cell)
            if rate and place < len(heads) and float(rate[1]) > 0:
                columns.setdefault(heads[place], []).append((size, float(rate[1])))
    if not columns:
        raise InputError(
            "it has no row of a payload and a rate", source=source, hint="give the whole table"
        )
    algbw, busbw = columns.pop("algbw", None), columns.get("busbw")
    if algbw and busbw:
        both = zip(busbw, algbw, strict=False)
        pairs = sorted((alg, bus) for (_, bus), (_, alg) in both)
        counted = ranks_of("all_reduce", pairs[-4:])
        rows = tuple(Row(size, size / rate / 1e3) for size, rate in algbw)
        return [Table("all_reduce", counted or ranks, hosts, "", rows, source)]
    return [_of_busbw(head, column, source) for head, column in columns.items() if len(column) > 1]


def _of_busbw(head: str, column: list[tuple[int, float]], source: str) -> Table:
    """Of bus bandwidths alone: times follow with the ranks that the head tells, or 8 a node."""
    nodes = re.search(r"([1-9][0-9]{0,5})\s*nodes?", head)
    ranks = 8 * int(nodes[1]) if nodes else 8
    around = AROUND["all_reduce"](ranks)
    rows = tuple(Row(size, around * size / rate / 1e3) for size, rate in column)
    note = f"{head}: bus bandwidths alone, taken as of {ranks} ranks"
    return Table("all_reduce", ranks, int(nodes[1]) if nodes else None, "", rows, source, (note,))


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return (int(found[1]) or None) if found else None


def _size(cell: str) -> int | None:
    found = _SIZE.match(cell)
    if not found:
        return None
    unit = found[2].lower()
    base = 1024 if unit.endswith("i") else 1000
    return int(float(found[1]) * base ** _UNITS[unit.rstrip("i")])
