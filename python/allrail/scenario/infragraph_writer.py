"""A graph fabric as InfraGraph's YAML, which `infragraph.py` reads.

A node that came from InfraGraph, such as `host.0.xpu.3`, is a component of an instance again; other
nodes become instances of their own: an NPU `npu.N.xpu.0`, a switch `switch.N.asic.0`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def write(links: Mapping[str, Any], *, name: str) -> str:
    """Write a graph as InfraGraph's YAML.

    A name such as `host.0.xpu.3` is a component of an instance again; any other node becomes an
    instance of its own kind. Cables side by side are one edge with the rate of all.

    Args:
        links: What the core's `graph_links` returns.
        name: What the infrastructure is called.

    Returns:
        The text of the file.
    """
    import yaml

    nodes = _Nodes(links)
    rates: dict[tuple[int, int], list[float]] = {}
    for one, other, gbps, ns in links["links"]:
        ends = (min(one, other), max(one, other))
        known = rates.setdefault(ends, [0.0, ns])
        known[0] += gbps
        known[1] = max(known[1], ns)
    kinds: dict[tuple[float, float], str] = {}
    edges = []
    for (one, other), (gbps, ns) in rates.items():
        kind = kinds.setdefault((gbps, ns), f"link{len(kinds)}")
        joined = {"ep1": nodes.end(one), "ep2": nodes.end(other)}
        edges.append({**joined, "scheme": "one2one", "link": kind})
    tree = {
        "name": re.sub(r"[^\sa-zA-Z0-9\-_()><\[\]]", "-", name),
        "devices": nodes.devices(),
        "links": [
            {
                "name": kind,
                "physical": {
                    "bandwidth": {
                        "choice": "gigabits_per_second",
                        "gigabits_per_second": _plain(gbps),
                    },
                    "latency": {"choice": "ns", "ns": _plain(ns)},
                },
            }
            for (gbps, ns), kind in kinds.items()
        ],
        "instances": nodes.instances(),
        "edges": edges,
    }
    text: str = yaml.safe_dump(tree, sort_keys=False)
    return text


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number


_PLACED = re.compile(r"^([^.\[\]]+)\.(\d+)\.([^.\[\]]+)\.(\d+)$")


def _fills(found: list[re.Match[str] | None], nodes: int) -> bool:
    """Whether instances of devices have these components and no others."""
    places = [one.groups() for one in found if one is not None]
    instances: dict[str, int] = {}
    components: dict[tuple[str, str], int] = {}
    for instance, index, component, place in places:
        instances[instance] = max(instances.get(instance, 0), int(index) + 1)
        key = (instance, component)
        components[key] = max(components.get(key, 0), int(place) + 1)
    return nodes == sum(instances[name] * count for (name, _), count in components.items())


class _Nodes:
    """The nodes of a graph as components of instances."""

    def __init__(self, links: Mapping[str, Any]) -> None:
        npus, names = links["npus"], links["names"]
        self._at: list[tuple[str, int, str, int]] = []
        self._kinds: dict[tuple[str, str], str] = {}
        found = [_PLACED.match(one) for one in names or ()]
        whole = bool(found) and all(found) and _fills(found, links["nodes"])
        for number in range(links["nodes"]):
            npu = number < npus
            place = found[number] if whole else None
            if place is not None:
                at = (place[1], int(place[2]), place[3], int(place[4]))
            elif npu:
                at = ("npu", number, "xpu", 0)
            else:
                at = ("switch", number - npus, "asic", 0)
            self._at.append(at)
            self._kinds.setdefault((at[0], at[2]), "xpu" if npu else "switch")

    def end(self, number: int) -> dict[str, str]:
        instance, index, component, place = self._at[number]
        return {"instance": f"{instance}[{index}]", "component": f"{component}[{place}]"}

    def devices(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, int]] = {}
        for instance, _, component, place in self._at:
            counts = found.setdefault(instance, {})
            counts[component] = max(counts.get(component, 0), place + 1)
        return [
            {
                "name": instance,
                "components": [
                    {
                        "name": component,
                        "count": count,
                        "choice": self._kinds[instance, component],
                        self._kinds[instance, component]: {},
                    }
                    for component, count in counts.items()
                ],
                "links": [],
                "edges": [],
            }
            for instance, counts in found.items()
        ]

    def instances(self) -> list[dict[str, Any]]:
        counts: dict[str, int] = {}
        for instance, index, _, _ in self._at:
            counts[instance] = max(counts.get(instance, 0), index + 1)
        return [{"name": name, "device": name, "count": count} for name, count in counts.items()]
