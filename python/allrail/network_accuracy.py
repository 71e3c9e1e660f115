"""What is known of the error of a collective on a nominal network: posted tables beside it.

`network_accuracy.csv` has the ratio of measured to simulated time of tables of nccl-tests that were
posted of healthy machines which a packaged fabric is (`benches/network_accuracy.py` writes it). The
tables are of NCCL and its own algorithms, the simulated times of the default schedule in `dims`: a
ratio is how far the two are apart, whatever it is due to. Rows count of the same collective on the
same number of levels (one machine, or several), whose size is within four times that asked for. Of
fewer than five nothing is said.

A fabric that was measured carries an `error` of its own, which is said in place of this.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.accuracy import Bar, quantile
from allrail.results.units import show_binary, show_count
from allrail.scenario.fields import parse_quantity

if TYPE_CHECKING:
    from allrail.scenario import Fabric, Scenario
    from allrail.scenario.keys import Collective

TABLE = Path(__file__).with_name("network_accuracy.csv")
NEAR = 4
"""Sizes of rows that count are within this factor of the asked one: chosen, two steps of 2."""
FEW = 5
_OUTSIDE = 0.05
_UNKNOWN = "error: network unknown"
TRAFFIC = (
    f"{_UNKNOWN}: no measured traffic was compared, only published simulations"
    " (`allrail reproduce hammingmesh`)"
)
"""The line of all traffic."""


def network_line(scenario: Scenario, *, unknown: bool = True) -> str | None:
    """Return the error line of a collective's or traffic's time; None where another says it.

    Args:
        scenario: What was simulated; None comes back of a workload, and of a fabric with `error`.
        unknown: Whether there is a line where nothing was compared; else None comes back.
    """
    line = _line_of(scenario)
    return None if line and not unknown and line.startswith(_UNKNOWN) else line


def told_of(tree: Mapping[str, Any]) -> str:
    """Return the line of a scenario as plain values, as `result.json` has it.

    Args:
        tree: Of a collective on a fabric without `error`, or of traffic.
    """
    from allrail.scenario.fabric import Fabric
    from allrail.scenario.keys import Collective

    if tree.get("traffic") is not None:
        return TRAFFIC
    network = tree["fabric"]
    if "topology" in network:
        return _line(None, str(network["name"]), [])
    fabric = Fabric.model_validate({"name": network["name"], "dimensions": network["dimensions"]})
    jobs = [Collective.model_validate(one) for one in tree["collective"]]
    return _line(fabric, fabric.name, jobs)


def _line_of(scenario: Scenario) -> str | None:
    from allrail.scenario import Fabric

    if scenario.workload is not None:
        return None
    if scenario.traffic is not None:
        return TRAFFIC
    fabric = scenario.fabric
    if getattr(fabric, "error", None) is not None:
        return None
    own = fabric if isinstance(fabric, Fabric) else None
    return _line(own, fabric.name, scenario.collective)


def _line(fabric: Fabric | None, name: str, jobs: Sequence[Collective]) -> str:
    """The line of collectives on a fabric; None of one that is no product of dimensions."""
    kinds = " and ".join(dict.fromkeys(one.kind for one in jobs)) or "collective"
    unknown = f"{_UNKNOWN}: no measured {kinds} on `{name}` was compared"
    if fabric is None or not _is_preset(fabric):
        return unknown
    found = [
        _near(
            fabric,
            one.kind,
            parse_quantity("size", one.size),
            one.dimensions or tuple(range(len(fabric.dimensions))),
        )
        for one in jobs
    ]
    if not all(found):
        some = all(_of(fabric.name, one.kind) for one in jobs)
        return unknown + (" at such a size over so many ranks" if some else "")
    return _told(fabric.name, kinds, [row for rows in found for row in rows])


def _told(fabric: str, kinds: str, rows: Sequence[dict[str, str]]) -> str:
    ratios = sorted(float(one["ratio"]) - 1 for one in rows)
    bar = Bar(quantile(ratios, _OUTSIDE), quantile(ratios, 1 - _OUTSIDE))
    sizes = [int(one["bytes"]) for one in rows]
    ranks = sorted({int(one["ranks"]) for one in rows})
    tables = len({one["table"] for one in rows})
    over = f"{ranks[0]} ranks" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]} ranks"
    return (
        f"error: network {bar.told}: NCCL beside the default schedule in"
        f" {show_count(len(rows), 'row')} of {show_count(tables, 'measured table')} of {kinds} on"
        f" machines such as `{fabric}`,"
        f" {show_binary(min(sizes))} to {show_binary(max(sizes))} over {over}"
    )


def _near(fabric: Fabric, kind: str, size: float, spans: Sequence[int]) -> list[dict[str, str]]:
    """Rows of the same collective, on one machine or on several, of a size that is near."""
    inner, levels = fabric.dimensions[0].size, len(spans)
    if 0 not in spans:
        return []
    rows = [
        one
        for one in _of(fabric.name, kind)
        if (int(one["ranks"]) > inner) == (levels > 1)
        and size / NEAR <= int(one["bytes"]) <= size * NEAR
    ]
    return rows if len(rows) >= FEW else []


def _of(fabric: str, kind: str) -> list[dict[str, str]]:
    return [one for one in _rows() if one["fabric"] == fabric and one["collective"] == kind]


def _is_preset(fabric: Fabric) -> bool:
    """Whether it has the rates of the preset whose name it has; the outermost may be longer."""
    from allrail.scenario.fabric import Fabric
    from allrail.scenario.presets import load_any_fabric, preset_names

    if fabric.name not in preset_names():
        return False
    preset = load_any_fabric(fabric.name)
    if not isinstance(preset, Fabric):
        return False
    own = [one.model_dump(exclude={"size"}) for one in fabric.dimensions]
    return own == [one.model_dump(exclude={"size"}) for one in preset.dimensions[: len(own)]]


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with TABLE.open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))
