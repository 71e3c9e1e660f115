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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.units import show_binary, show_count
from allrail.results.accuracy import Bar, quantile
from allrail.scenario.fabric import Fabric
from allrail.scenario.fields import parse_quantity
from allrail.scenario.keys.schedule import Collective
from allrail.scenario.presets import load_any_fabric, preset_names

if TYPE_CHECKING:
    from allrail.scenario import Scenario

TABLE = Path(__file__).with_name("network_accuracy.csv")
NEAR = 4
"""Sizes of rows that count are within this factor of the asked one: chosen, two steps of 2."""
FEW = 5
_OUTSIDE = 0.05


@dataclass(frozen=True, slots=True)
class NetworkError:
    """What is known of the error of a collective's or traffic's time.

    Attributes:
        bar: What nine of ten compared rows are off; None where nothing was compared.
        compared: What was compared, or what was not.
        fabrics: On which fabrics nothing was; none where that is the same on all.
        where: What else is alike of what was not compared, such as its size.
    """

    bar: Bar | None
    compared: str
    fabrics: tuple[str, ...] = ()
    where: str = ""

    @property
    def told(self) -> str:
        """The error line."""
        if self.bar is not None:
            return f"error: network {self.bar.told}: {self.compared}"
        named = " or ".join(f"`{one}`" for one in self.fabrics)
        on = f" on {named} was compared" if named else ""
        return f"error: network unknown: {self.compared}{on}{self.where}"


TRAFFIC = NetworkError(
    None,
    "no measured traffic was compared, only published simulations"
    " (`allrail reproduce hammingmesh`)",
)
"""Of all traffic."""


def network_lines(found: Iterable[NetworkError | None]) -> list[str]:
    """Return the error lines of several predictions: one each, where they differ.

    Those of which nothing is known but their fabrics differ share a line.

    Args:
        found: Of each prediction, as of `network_error`.
    """
    groups: dict[tuple[Bar | None, str, str], dict[str, None]] = {}
    for one in found:
        if one is not None:
            fabrics = groups.setdefault((one.bar, one.compared, one.where), {})
            fabrics.update(dict.fromkeys(one.fabrics))
    return [
        NetworkError(bar, compared, tuple(fabrics), where).told
        for (bar, compared, where), fabrics in groups.items()
    ]


def told_of(tree: Mapping[str, Any]) -> str:
    """Return the line of a scenario as plain values, as `result.json` has it.

    Args:
        tree: Of a collective on a fabric without `error`, or of traffic.
    """
    if tree.get("traffic") is not None:
        return TRAFFIC.told
    network = tree["fabric"]
    if "topology" in network:
        return _of_collectives(None, str(network["name"]), []).told
    fabric = Fabric.model_validate({"name": network["name"], "dimensions": network["dimensions"]})
    jobs = [Collective.model_validate(one) for one in tree["collective"]]
    return _of_collectives(fabric, fabric.name, jobs).told


def network_error(scenario: Scenario) -> NetworkError | None:
    """Return what is known of a collective's or traffic's time; None where another says it.

    Args:
        scenario: What was simulated; None comes back of a workload, and of a fabric with `error`.
    """
    if scenario.workload is not None:
        return None
    if scenario.traffic is not None:
        return TRAFFIC
    fabric = scenario.fabric
    if getattr(fabric, "error", None) is not None:
        return None
    own = fabric if isinstance(fabric, Fabric) else None
    return _of_collectives(own, fabric.name, scenario.collective)


def _of_collectives(fabric: Fabric | None, name: str, jobs: Sequence[Collective]) -> NetworkError:
    """What is known of collectives on a fabric; None of one that is no product of dimensions."""
    kinds = " and ".join(dict.fromkeys(one.kind for one in jobs)) or "collective"
    unknown = NetworkError(None, f"no measured {kinds}", (name,))
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
        return replace(unknown, where=" at such a size over so many ranks") if some else unknown
    return _compared(fabric.name, kinds, [row for rows in found for row in rows])


def _compared(fabric: str, kinds: str, rows: Sequence[dict[str, str]]) -> NetworkError:
    ratios = sorted(float(one["ratio"]) - 1 for one in rows)
    bar = Bar(quantile(ratios, _OUTSIDE), quantile(ratios, 1 - _OUTSIDE))
    sizes = [int(one["bytes"]) for one in rows]
    ranks = sorted({int(one["ranks"]) for one in rows})
    tables = len({one["table"] for one in rows})
    over = f"{ranks[0]} ranks" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]} ranks"
    return NetworkError(
        bar,
        "NCCL beside the default schedule in"
        f" {show_count(len(rows), 'row')} of {show_count(tables, 'measured table')} of {kinds} on"
        f" machines such as `{fabric}`,"
        f" {show_binary(min(sizes))} to {show_binary(max(sizes))} over {over}",
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
