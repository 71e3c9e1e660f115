"""What nccl-tests write with `-J FILE` (versions 1 to 3)."""

from __future__ import annotations

import json
from typing import Any

from allrail.calibrate.read.nccl_tests import _NAMED, _NAMES
from allrail.calibrate.table import Row, Table, ranks_of
from allrail.errors import InputError


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return text.lstrip().startswith("{")


def read(text: str, source: str) -> list[Table]:
    """Return the table of a file.

    Args:
        text: What is in it.
        source: The file, for messages.

    Raises:
        InputError: It is no such file, or a result was wrong.
    """
    hint = "give the file of `nccl-tests -J FILE`"
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise InputError(f"it is no JSON: {error}", source=source, hint=hint) from None
    if not isinstance(tree, dict) or not isinstance(tree.get("results"), list):
        raise InputError("it has no `results`", source=source, hint=hint)
    rows, ratios = [], []
    for each in tree["results"]:
        half = each.get("out_of_place") or each.get("in_place")
        if not half:
            continue
        if half.get("nwrong"):
            raise InputError(
                f"{half['nwrong']} of its values are wrong at {each['size']:,} bytes",
                source=source,
                hint="a network that makes mistakes is no basis: find the cause, run it again",
            )
        time, algbw, busbw = (_number(half.get(key)) for key in ("time", "alg_bw", "bus_bw"))
        if not time or not each.get("size"):
            continue
        again = _number((each.get("in_place") or {}).get("time"))
        rows.append(Row(int(each["size"]), time, again))
        if algbw and busbw:
            ratios.append((algbw, busbw))
    if not rows:
        raise InputError("it has no result with a time", source=source, hint=hint)
    words = " ".join(map(str, tree.get("args", [])))
    named = _NAMED.search(words)
    name = (
        _NAMES[named[1]]
        if named
        else ("all_reduce" if any(bus > 1.01 * alg for alg, bus in ratios) else None)
    )
    devices = (tree.get("config") or {}).get("devices") or []
    counted = None if name is None else ranks_of(name, ratios[-4:], len(devices) or None)
    return [
        Table(
            collective=name,
            ranks=counted or len(devices) or None,
            hosts=len({one.get("hostname") for one in devices}) or None,
            device=str(devices[0].get("device_info", "")) if devices else "",
            rows=tuple(sorted(rows, key=lambda row: row.bytes)),
            source=source,
        )
    ]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
