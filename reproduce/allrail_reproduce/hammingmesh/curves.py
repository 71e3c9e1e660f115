"""Figures 11, 12, 13 and 17 of HammingMesh: bandwidth against message size, and a permutation.

The paper shows them as pictures without numbers, so that there is nothing to put beside ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from allrail.simulation.graphs import count
from allrail_reproduce.hammingmesh import cases as kinds
from allrail_reproduce.hammingmesh import gaps
from allrail_reproduce.hammingmesh.cases import Scope, TrafficCase
from allrail_reproduce.hammingmesh.table_two import Results, how, percent
from allrail_reproduce.rows import Cells, Detail, Row

QUANTILES = ("min", "p1", "median", "p99", "max", "mean")


@dataclass(frozen=True)
class Curves:
    """What was simulated for the figures: small clusters, and all-reduces of large ones (Fig. 13).

    Attributes:
        scope: How much.
        results: By case.
    """

    scope: Scope
    results: Results

    def of(self, pattern: str, size: str = "small") -> list[TrafficCase]:
        """The cases of a pattern on small or large clusters, in order."""
        pairs = [
            (cluster, network_model)
            for cluster in self.scope.clusters
            if cluster.size == size
            for network_model in self.scope.network_models_of(cluster)
        ]
        found: list[TrafficCase] = []
        for cluster, network_model in pairs:
            if pattern == "permutation":
                found.append(kinds.permutation(cluster, network_model))
            elif pattern == "all_to_all":
                found += kinds.message_sizes(cluster, network_model, self.scope)
            else:
                found += kinds.buffer_sizes(cluster, network_model)
        return found

    def rows(self) -> list[Row]:
        """Of the permutation, the middle and the slow end; reported only."""
        rows = []
        for case in self.of("permutation"):
            result = self.results[case]
            for name in ("median", "mean", "p1"):
                ours = 100 * result["npu_bandwidth_gbps"][name] / result["injection_gbps"]
                label = f"{case.cluster.label}, permutation, {name} NPU, {case.network_model}"
                rows.append(Row(label, ours, None, "%", how=how(case, result)))
        return rows + self._orders()

    def _orders(self) -> list[Row]:
        """From which size on rings beat rows and columns, on large meshes (Fig. 13)."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for case in self.of("all_reduce", "large"):
            times = found.setdefault(case.cluster.label, {}).setdefault(case.size, {})
            times[case.algorithm] = self.results[case]["time_us"]
        rows = []
        for label, sizes in found.items():
            both = {size: times for size, times in sizes.items() if len(times) == 2}
            if not both:
                continue
            wins = [size for size, times in both.items() if times["rings"] <= times["torus"]]
            told = f"rings win at {', '.join(wins) or 'none'} of {', '.join(both)}"
            count = float(len(wins))
            case_ = f"{label}, all-reduce, sizes at which rings beat rows and columns"
            rows.append(Row(case_, count, None, "sizes", digits=0, how=told, why=gaps.RINGS))
        return rows

    def details(self) -> list[Detail]:
        """One table a figure."""
        return [
            self._sizes("message_sizes", self.of("all_to_all")),
            self._sizes("buffer_sizes", self.of("all_reduce")),
            self._sizes("buffer_sizes_large", self.of("all_reduce", "large")),
            *self._permutation(),
        ]

    def _sizes(self, name: str, cases: list[TrafficCase]) -> Detail:
        header = (
            "cluster",
            "network_model",
            "algorithm",
            "size",
            "bytes",
            "share_%",
            "time_us",
            "how",
        )
        rows: list[Cells] = []
        for case in cases:
            result = self.results[case]
            rows.append(
                (
                    case.cluster.label,
                    case.network_model,
                    case.algorithm,
                    case.size,
                    result["size_bytes"],
                    percent(result),
                    result["time_us"],
                    how(case, result),
                )
            )
        return Detail(name, header, rows)

    def _permutation(self) -> list[Detail]:
        summary: list[Cells] = []
        each: list[Cells] = []
        for case in self.of("permutation"):
            result = self.results[case]
            label = (case.cluster.label, case.network_model)
            spread = result["npu_bandwidth_gbps"]
            cost = float(count(case.cluster.fabric)["cost_usd"]) / 1e6
            summary.append(
                (
                    *label,
                    *(spread[name] for name in QUANTILES),
                    result["injection_gbps"],
                    cost,
                    spread["mean"] * result["npus"] / 1e3 / cost,
                )
            )
            each += [
                (*label, npu, gbps, 100 * gbps / result["injection_gbps"])
                for npu, gbps in enumerate(result["npu_bandwidths_gbps"])
            ]
        quantiles = (f"{name}_gbps" for name in QUANTILES)
        columns = (
            "cluster",
            "network_model",
            *quantiles,
            "injection_gbps",
            "cost_M$",
            "mean_Tb/s_per_M$",
        )
        return [
            Detail("permutation", columns, summary),
            Detail(
                "permutation_npus", ("cluster", "network_model", "npu", "gbps", "share_%"), each
            ),
        ]
