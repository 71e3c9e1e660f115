"""What a network interface carries: no rate between machines may be above it.

`--nic` says it; else the device that the list of ranks names does, by the preset of its machine
(`machine.py`); else, where ranks are known to be on several machines, nothing carries more than the
fastest interface that there is: 800 Gb/s (NVIDIA ConnectX-8 datasheet). Machines that NVLink joins
(GB200 NVL72) have no interface between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import median

from allrail.base.errors import InputError
from allrail.measure.calibrate.joint import Joint
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.table import Table
from allrail.scenario import load_any_fabric
from allrail.scenario.dimensions import aggregate, dimensions_of

FASTEST = 100e9
"""Bytes a second."""
_NVLINK = re.compile(r"\bGB[23]00\b")
_PRESETS = {
    r"\bA100-SXM": "dgx-a100",
    r"\bH[12]00\b(?!.*(PCIe|NVL))": "dgx-h100",
    r"(?<!G)\bB200\b": "dgx-b200",
}
"""What the driver calls a GPU, and the preset of its machine, which has the sources."""
_HINT = (
    "check which table is of how many machines; `--nic '800 Gb/s'` says what one rank's interfaces"
    " carry"
)
_ROOM = 1.03
"""Clocks and rounding: so much above is none."""
_FASTER = 0.15
"""Large sizes that are so much faster than the interface allows show that it is another."""


def nic_rate(tables: Sequence[Table], levels: Levels, nic: float | None) -> float | None:
    """Return what joins machines carries at most, bytes a second of one rank; None if unknown.

    Args:
        tables: With the devices that their lists of ranks name.
        levels: Where they lie.
        nic: What was said.
    """
    if nic is not None:
        return nic * _ROOM
    if levels.between is None:
        return None
    devices = [table.device for table in tables if table.device]
    if any(_NVLINK.search(device) for device in devices):
        return None
    found = [rate for device in devices if (rate := _preset(device)) is not None]
    if found:
        return max(found) * _ROOM
    told = any((table.hosts or 1) > 1 for table in tables)
    return FASTEST * _ROOM if told else None


def check_rates(
    tables: Sequence[Table],
    levels: Levels,
    joint: Joint,
    nic: float | None,
    *,
    forward: Callable[..., float],
) -> None:
    """Refuse tables that are faster than what a network interface carries.

    Args:
        tables: By ranks.
        levels: Where they lie.
        joint: The fit, whose rates are no larger than an interface's.
        nic: What was said.
        forward: Predicts a row.

    Raises:
        InputError: Names the table, its rate and the interface's.
    """
    limit = nic_rate(tables, levels, nic)
    if limit is None or levels.between is None:
        return
    at = [p for p in range(len(levels.sizes)) if p >= levels.between]
    if all(joint.rates[place] * 1e6 < 0.97 * limit for place in at):
        return
    for table, part in zip(tables, levels.parts, strict=True):
        if all(part[place] < 2 for place in at):
            continue
        large = table.rows[-3:]
        off = median(
            forward(table, part, joint.rates, joint.latencies, row.bytes) / row.time_us - 1
            for row in large
        )
        if off > _FASTER:
            raise InputError(
                f"its {table.ranks} ranks are {100 * off:.0f} % faster than {_interfaces(limit)} a"
                " rank allow",
                source=table.source,
                hint=_HINT,
            )


def check_need(tables: Sequence[Table], levels: Levels, joint: Joint, limit: float) -> None:
    """Refuse tables that only rates above those of network interfaces explain.

    Args:
        tables: By ranks.
        levels: Where they lie.
        joint: A fit without limits, much better than that within them.
        limit: What the interfaces of a rank carry, bytes a second, with room.

    Raises:
        InputError: Names the first table over several machines, and both rates.
    """
    between = levels.between
    if between is None:
        return
    needed = max(joint.rates[between:]) * 1e6
    table = next(
        table
        for table, part in zip(tables, levels.parts, strict=True)
        if any(one > 1 for one in part[between:])
    )
    if needed > limit:
        raise InputError(
            f"with the others it tells of {needed / 1e9:.4g} GB/s a rank between machines: faster"
            f" than {_interfaces(limit)} allow",
            source=table.source,
            hint=_HINT,
        )


def _interfaces(limit: float) -> str:
    """What a rank's interfaces are called in a message: what they carry, without the room."""
    each = limit / _ROOM / 1e9
    return f"network interfaces of {each:.4g} GB/s ({8 * each:.4g} Gb/s)"


def _preset(device: str) -> float | None:
    """What the interfaces of a GPU carry in the preset of its machine, bytes a second."""
    for words, name in _PRESETS.items():
        if re.search(words, device):
            return aggregate(dimensions_of(load_any_fabric(name)).dimensions[-1].model_dump())
    return None
