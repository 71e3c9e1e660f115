"""What nccl-tests write with `-J FILE` (versions 1 to 3)."""

from __future__ import annotations

import math
from typing import Any

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.nccl_part import Members
from allrail.measure.calibrate.read.programs import COLLECTIVES, MISTAKES, PROGRAM, algorithm_of
from allrail.measure.calibrate.table import Row, Table, ranks_of
from allrail.scenario.text import read_json


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return text.lstrip().startswith("{")


def read(text: str, source: str) -> list[Table]:
    """Return the tables of a file: one for each type and reduction.

    Args:
        text: What is in it.
        source: The file, for messages.

    Raises:
        InputError: It is no such file, or a result was wrong.
    """
    hint = "give the file of `nccl-tests -J FILE`"
    try:
        tree = read_json(text, source)
    except InputError as error:
        error.hint = hint
        raise
    if not isinstance(tree, dict) or not isinstance(tree.get("results"), list):
        raise InputError("it has no `results`", source=source, hint=hint)
    kinds: dict[tuple[str, str], tuple[list[Row], list[tuple[float, float]]]] = {}
    for each in map(_tree, tree["results"]):
        halves = [_tree(each.get(key)) for key in ("out_of_place", "in_place")]
        size = _number(each.get("size"))
        for one in halves:
            wrong = _number(one.get("nwrong"))
            if wrong:
                at = f" at {size:,.0f} bytes" if size else ""
                raise InputError(
                    f"{wrong:.0f} of its values are wrong{at}", source=source, hint=MISTAKES
                )
        half = halves[0] or halves[1]
        algbw, busbw = (_number(half.get(key)) for key in ("alg_bw", "bus_bw"))
        time = _time(half)
        if not time or not size:
            continue
        kind = (str(each.get("type") or ""), str(each.get("redop") or ""))
        rows, ratios = kinds.setdefault(kind, ([], []))
        rows.append(Row(int(size), time, _time(halves[1])))
        if algbw and busbw:
            ratios.append((algbw, busbw))
    wrong = _number(_tree(tree.get("out_of_bounds")).get("count"))
    if wrong:
        raise InputError(f"{wrong:.0f} of its values are wrong", source=source, hint=MISTAKES)
    if not kinds:
        raise InputError("it has no result with a time", source=source, hint=hint)
    words = " ".join(map(str, _list(tree.get("args"))))
    named = PROGRAM.search(words)
    sums = any(bus > 1.01 * alg for _, ratios in kinds.values() for alg, bus in ratios)
    name = COLLECTIVES[named[1]] if named else "all_reduce" if sums else None
    devices = [_tree(one) for one in _list(_tree(tree.get("config")).get("devices"))]
    listed = {
        place: (_whole(one.get("group")), str(one.get("hostname")))
        for place, one in enumerate(devices)
    }
    members = Members.of(listed)
    algorithms = {algorithm_of(str(one)) for one in _list(tree.get("env"))} - {None}
    made = []
    for (dtype, redop), (rows, ratios) in kinds.items():
        counted = None if name is None else ranks_of(name, ratios[-4:], members.ranks)
        made.append(
            Table(
                collective=name,
                ranks=counted or members.ranks,
                hosts=members.hosts if members.complete else None,
                device=str(devices[0].get("device_info", "")) if devices else "",
                rows=tuple(sorted(rows, key=lambda row: row.bytes)),
                source=source,
                groups=members.groups if members.complete else 1,
                dtype=dtype,
                redop="" if redop == "none" else redop,
                algorithm=next(iter(algorithms)) if len(algorithms) == 1 else None,
            )
        )
    return made


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if number > 0 and math.isfinite(number) else None


def _time(half: dict[str, Any]) -> float | None:
    """Of a half, µs; `-C 1` measures that of the CPU."""
    return _number(half.get("time")) or _number(half.get("cpu_time"))


def _tree(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
