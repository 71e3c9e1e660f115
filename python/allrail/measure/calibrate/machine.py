"""Which preset a table was measured on, by what it says of itself.

nccl-tests list the device of every rank; a machine of these devices is a preset, or none. Where no
device is named, the bandwidth excludes what could not carry it, and the ranks what has not so many;
a machine that is slower than it should be looks like a smaller one that is not, so only where a
single preset is left is it taken. What joins machines no table says: the preset's interfaces are
assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from allrail.base.errors import InputError
from allrail.measure.calibrate.expected import expect
from allrail.measure.calibrate.table import Table
from allrail.scenario import load_any_fabric
from allrail.scenario.dimensions import aggregate, dimensions_of

_MACHINES = {
    "dgx2": (r"\bV100-SXM3", 1.0),
    "dgx-a100": (r"\bA100-SXM", 1.0),
    "dgx-h100": (r"\bH[12]00\b(?!.*(PCIe|NVL))", 2.0),
    "dgx-b200": (r"\bB200\b", 2.0),
    "gb200-nvl72": (r"\bGB200\b", 2.0),
}
"""Machines: what the driver calls their devices, and the most bus bandwidth over a link's.

An H200's machine has the links and interfaces of an H100's (NVIDIA DGX H200 datasheet). Cards, and
devices with fewer links (A800, H800, H20), are in none of them. From NVLink 4 on switches may sum
an all-reduce (NCCL user guide, NCCL_NVLS_ENABLE), and an NPU then sends half of what a ring does.
"""
_UNNAMED = ("", "NVIDIA Graphics Device")
"""What a driver says that does not know the device."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A preset that a table is taken for.

    Attributes:
        fabric: Its name.
        why: What says so, and what is assumed.
        sums: Whether its switches sum all-reduces: NCCL has them do so (NVLS) where they can.
    """

    fabric: str
    why: str
    sums: bool = False


def machine_of(table: Table, *, collective: str) -> Machine:
    """Return the preset that a table was measured on.

    Args:
        table: With the ranks that took part.
        collective: What it is of.

    Raises:
        InputError: It cannot be known, or no preset is such a machine.
    """
    if table.ranks is None:
        raise InputError(
            "it does not say how many ranks took part",
            source=table.source,
            hint="say it by `--ranks`",
        )
    table = replace(table, collective=collective)
    if table.device not in _UNNAMED:
        found = [one for one, (words, _) in _MACHINES.items() if re.search(words, table.device)]
        if not found:
            raise InputError(
                f"no preset is a machine of `{table.device}`",
                source=table.source,
                hint="name a fabric: `allrail fabric list` has them, or a file of yours",
            )
        [name] = found
        ranks = table.ranks or 0
        if ranks > math.prod(int(one["size"]) for one in _dimensions(name)):
            raise InputError(
                f"it is over {ranks:,} ranks of {table.device}, and `{name}` has fewer",
                source=table.source,
                hint=f"name a fabric: `allrail fabric show {name}`, with longer dimensions",
            )
        return _machine(table, name, f"its ranks ran on {table.device}")
    shares = {name: share for name in _MACHINES if (share := _share(table, name)) is not None}
    if len(shares) == 1:
        [name] = shares
        return _machine(table, name, "no other preset could carry it on so many ranks")
    if not shares:
        raise InputError(
            "no preset could carry it on so many ranks",
            source=table.source,
            hint="name a fabric: `allrail fabric list` has them, or a file of yours",
        )
    parts = ", ".join(f"{100 * share:.0f} % of `{name}`" for name, share in shares.items())
    raise InputError(
        f"it does not say on what it was measured; its large sizes are {parts}",
        source=table.source,
        hint="name the fabric: a machine that is slower than it should be looks like a smaller one",
    )


def _share(table: Table, name: str) -> float | None:
    """Of what a preset should show, the large sizes; None if it cannot have shown them."""
    dimensions = _dimensions(name)
    inner = dimensions[0]
    ranks, hosts = table.ranks or 0, table.hosts
    if hosts and ranks > hosts * int(inner["size"]):
        return None
    largest = table.rows[-1]
    try:
        [row] = expect(
            dimensions,
            collective=str(table.collective),
            ranks=ranks,
            sizes=[largest.bytes],
            table=table,
            sums=_MACHINES[name][1] > 1,
        )
    except InputError:
        return None
    best = table.best_busbw or 0.0
    sums = _MACHINES[name][1] if table.collective == "all_reduce" else 1.0
    if best > sums * aggregate(inner) / 1e9:
        return None
    return (row.measured_busbw or 0.0) / row.expected_busbw


def _machine(table: Table, name: str, why: str) -> Machine:
    sums = _MACHINES[name][1] > 1
    told = _said(table, name, why)
    together = table.hosts is None or (table.ranks or 0) > table.hosts
    if sums and together and table.collective == "all_reduce":
        told += "; its switches sum (NVLS), as NCCL has them do unless told otherwise"
    return Machine(name, told, sums)


def _said(table: Table, name: str, why: str) -> str:
    """The reason, and what joins machines where there are several."""
    dimensions = _dimensions(name)
    told = f"taken for `{name}`: {why}"
    if (table.hosts or 0) > 1 or (table.ranks or 0) > int(dimensions[0]["size"]):
        rate = 8 * aggregate(dimensions[-1]) / 1e9
        told += f"; what joins machines is not said: {rate:.0f} Gb/s an NPU is assumed"
    return told


def _dimensions(name: str) -> Sequence[dict[str, Any]]:
    fabric = dimensions_of(load_any_fabric(name))
    return [one.model_dump(exclude_defaults=True) for one in fabric.dimensions]
