"""Stands in for the core: answers scenarios of traffic with shares from a table, at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from allrail import _core
from allrail.graphs import count
from allrail.reproduce.hammingmesh.published import TABLE_TWO

PUBLISHED = {cluster.fabric: cluster for cluster in TABLE_TWO}


class FakeCore:
    """Answers with the published shares, times a factor a world.

    Attributes:
        asked: The scenarios that it was given, as JSON.
    """

    def __init__(self, **factors: float) -> None:
        self.asked: list[str] = []
        self._factors = factors

    def __call__(self, scenario: Mapping[str, Any], progress) -> dict[str, Any]:
        self.asked.append(json.dumps(scenario, sort_keys=True))
        progress(0, 1)
        cluster, traffic = PUBLISHED[scenario["fabric"]], scenario["traffic"]
        npus = count(cluster.fabric)["npus"]
        world, pattern = scenario["world"], traffic["pattern"]
        factor = self._factors.get(world, 1.0)
        result: dict[str, Any] = {
            "pattern": pattern,
            "world": world,
            "npus": npus,
            "size_bytes": _core.parse_quantity("size", traffic["size"]),
            "time_us": 1.0,
            "share_of_injection": factor * cluster.all_to_all / 100,
            "injection_gbps": 6400.0,
            "paths": traffic.get("paths"),
            "built": {"buffer_bytes": 32_000_000 if world == "packets" else None},
            "host": {"wall_ms": 1.0},
        }
        if pattern == "all_to_all":
            wanted = traffic["phases"]
            result["phases"] = npus - 1
            result["phases_simulated"] = npus - 1 if wanted == "all" else wanted
        if pattern == "all_reduce":
            result["share_of_optimum"] = factor * cluster.all_reduce / 100
            result["steps"], result["steps_simulated"] = 2 * (npus - 1), 16
        if pattern == "permutation":
            each = [6400.0 * (i % 8 + 1) / 8 for i in range(npus)]
            result["npu_bandwidths_gbps"] = each
            names = ("min", "p1", "median", "p99", "max", "mean")
            values = (800.0, 800.0, 3200.0, 6400.0, 6400.0, 3600.0)
            result["npu_bandwidth_gbps"] = dict(zip(names, values, strict=True))
        if world == "packets":
            result["packets"], result["packet_hops"] = 1000, 4000
        return result
