"""Table II of HammingMesh: cost, diameter, shares of bandwidth and savings, beside ours.

    saving = (cost of the nonblocking fat tree / cost) · (share / share of that fat tree)

Shares are per cent: an all-to-all's of what an NPU injects, an all-reduce's of the most that one
without reduction in the network can reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from allrail_reproduce.hammingmesh import cases, gaps, samples
from allrail_reproduce.hammingmesh.cases import NetworkModelName, Scope, TrafficCase
from allrail_reproduce.hammingmesh.published import (
    FLOWS_TOLERANCE,
    PACKETS_TOLERANCE,
    SAVINGS,
    TABLE,
    TABLE_TWO,
    TORUS,
    TREE,
    Published,
    half_digit,
)
from allrail_reproduce.published import COMPUTED, Made, number
from allrail_reproduce.rows import Cells, Detail, Row

Results = Mapping[TrafficCase, Mapping[str, Any]]
KINDS = ("all-to-all", "all-reduce")


def percent(result: Mapping[str, Any]) -> float:
    """The share that Table II has of such a simulation, per cent.

    Its optimum of an all-reduce sends twice the buffer, ours the least possible: (p - 1)/p of that.

    Args:
        result: Of an all-to-all or an all-reduce.
    """
    if result["pattern"] != "all_reduce":
        return 100 * float(result["share_of_injection"])
    npus = int(result["npus"])
    return 100 * float(result["share_of_optimum"]) * npus / (npus - 1)


def how(case: TrafficCase, result: Mapping[str, Any], error: float | None = None) -> str:
    """What a simulated number was computed with, in words.

    Args:
        case: What was simulated.
        result: What came out.
        error: Of a sample, as a part of its share, if the result itself does not say it.
    """
    words = [str(result["network_model"])]
    if case.network_model == "flows":
        words.append(f"{result['paths']} paths")
    if case.pattern == "all_to_all":
        words.append(f"{result['phases_simulated']} of {result['phases']} phases")
        error = result.get("sample_error", error)
        if error is not None:
            words.append(f"sample error {100 * error:.1f} %")
        words.append("a barrier after each" if result["phase_barrier"] else "no barrier")
        words.append(f"{case.size} a pair")
    elif case.pattern == "all_reduce":
        steps = f"{result['steps_simulated']} of {result['steps']} steps"
        words += [f"{case.algorithm}, {steps}", case.size]
    else:
        words.append(f"{case.size} a pair")
    if case.network_model == "packets":
        words.append(f"buffers {result['built']['buffer_bytes'] / 1e6:g} MB")
    if case.cluster.name == "HyperX":
        words.append("direct links; priced as 1x1 boards")
    if case.rows == "per_accelerator":
        words.append("a tree per row of NPUs; priced with merged switches")
    elif case.rows:
        words.append("merged switches, as priced")
    return ", ".join(words)


@dataclass(frozen=True)
class TableTwo:
    """Table II from what was simulated and counted.

    Attributes:
        scope: What of it.
        results: By case.
        measured: What `allrail fabric show` says, by fabric.
    """

    scope: Scope
    results: Results
    measured: Mapping[str, Mapping[str, Any]]

    @cached_property
    def clusters(self) -> list[Published]:
        """Its rows."""
        return self.scope.clusters

    def cost(self, cluster: Published) -> float:
        """Millions of dollars."""
        return float(self.measured[cluster.fabric]["cost_usd"]) / 1e6

    def case(self, cluster: Published, kind: str, network_model: NetworkModelName) -> TrafficCase:
        """The simulation behind a share."""
        if kind == "all-to-all":
            return cases.all_to_all(cluster, network_model, self.scope)
        return cases.all_reduce(cluster, network_model)

    def share(self, cluster: Published, kind: str, network_model: NetworkModelName) -> float | None:
        """Per cent; None if that was not simulated."""
        result = self.results.get(self.case(cluster, kind, network_model))
        return None if result is None else percent(result)

    def saving(
        self, cluster: Published, kind: str, network_model: NetworkModelName
    ) -> float | None:
        """From our costs and our shares."""
        tree = self._tree(cluster)
        ours, theirs = (
            self.share(cluster, kind, network_model),
            self.share(tree, kind, network_model),
        )
        if ours is None or theirs is None:
            return None
        return self.cost(tree) / self.cost(cluster) * ours / theirs

    def saving_from_published(self, cluster: Published, kind: str) -> float:
        """From our costs and the published shares."""
        tree = self._tree(cluster)
        shares = [_published(one, kind)[0] for one in (cluster, tree)]
        return self.cost(tree) / self.cost(cluster) * shares[0] / shares[1]

    def _tree(self, cluster: Published) -> Published:
        return next(one for one in TABLE_TWO if (one.size, one.name) == (cluster.size, TREE))

    def rows(self) -> list[Row]:
        """Every number of the table."""
        rows = [self.cost_row(cluster) for cluster in self.clusters]
        rows += [row for cluster in self.clusters for row in self.diameters(cluster)]
        rows += [self._cut(cluster) for cluster in self.clusters if "Mesh" in cluster.name]
        for kind in KINDS:
            rows += [
                self.share_row(cluster, kind, network_model)
                for cluster in self.clusters
                for network_model in self.scope.network_models_of(cluster)
            ]
            if kind == "all-to-all":
                rows += self._barriers() + self._merged()
            else:
                rows += self._a_plane()
            rows += self._orders(kind)
        for kind in KINDS:
            rows += [
                self._saving(cluster, kind, network_model)
                for cluster in self.clusters
                for network_model in self.scope.network_models_of(cluster)[-1:]
            ]
        return rows + self._savings()

    def cost_row(self, cluster: Published) -> Row:
        """The cost, judged to the printed digits."""
        printed, half = cluster.cost, half_digit(cluster.cost)
        return Row(
            f"{cluster.label}, cost",
            self.cost(cluster),
            number(float(printed), TABLE),
            "M$",
            within=half,
            absolute=True,
            digits=3,
            how="counted" + (" as HammingMesh of 1x1 boards" if cluster.name == "HyperX" else ""),
            why=gaps.COSTS.get((cluster.size, cluster.name), ""),
            made=gaps.OPTICAL if cluster.name == TORUS else COMPUTED,
        )

    def diameters(self, cluster: Published) -> list[Row]:
        """The diameter by the formula, and by a search."""
        measured = self.measured[cluster.fabric]
        key = (cluster.size, cluster.name)
        wanted = number(float(cluster.diameter), TABLE)
        return [
            Row(
                f"{cluster.label}, {name}",
                float(measured[key_of]),
                wanted,
                "links",
                within=0.0,
                absolute=True,
                digits=0,
                how=word,
                why=gaps.DIAMETERS.get((*key, key_of), ""),
            )
            for name, word, key_of in (
                ("diameter by formula", "formula", "diameter"),
                ("diameter by search", "breadth-first search", "diameter_bfs"),
            )
        ]

    def _cut(self, cluster: Published) -> Row:
        """Of a mesh of `a` x `a` boards, `1 / 2a` of what half of its NPUs inject."""
        a = 2 if cluster.name == "Hx2Mesh" else 4
        ours = 100 * float(self.measured[cluster.fabric]["half_plane_cut_share"])
        case = f"{cluster.label}, half-plane cut (1/2a)"
        wanted = number(50.0 / a, "SC'22, section on bisection: 1/(2a)")
        how_ = "largest flow, one plane"
        return Row(case, ours, wanted, "%", within=1e-9, absolute=True, how=how_)

    def share_row(self, cluster: Published, kind: str, network_model: NetworkModelName) -> Row:
        """A share of bandwidth."""
        case = self.case(cluster, kind, network_model)
        result = self.results[case]
        ours, published = percent(result), _published(cluster, kind)[0]
        within = 0.05
        if kind == "all-to-all" and cluster.size == "small":
            tolerance = FLOWS_TOLERANCE if network_model == "flows" else PACKETS_TOLERANCE
            within = tolerance.get(cluster.name, within)
        return Row(
            f"{cluster.label}, {kind}, {network_model}",
            ours,
            number(published, TABLE),
            "%",
            within=within,
            how=how(case, result, samples.error(case, self.results)),
            why=gaps.share(cluster, kind, network_model, ours, published),
            made=_made(case),
        )

    def _barriers(self) -> list[Row]:
        """The all-to-all in packets phase by phase, and in flows without a barrier."""
        asked = [
            (cluster, kind, case)
            for cluster in self.clusters
            if cluster.size == "small"
            for network_model, kind, case in (
                ("flows", "flows without barrier", cases.without_barrier(cluster, self.scope)),
                ("packets", "packets with barrier", cases.with_barrier(cluster, self.scope)),
            )
            if network_model in self.scope.network_models
        ]
        rows = []
        for cluster, kind, case in asked:
            result = self.results[case]
            label, published = f"{cluster.label}, all-to-all, {kind}", cluster.all_to_all
            ours = percent(result)
            told = how(case, result, samples.error(case, self.results))
            why = gaps.share(cluster, KINDS[0], kind, ours, published)
            made = _made(case)
            rows.append(
                Row(label, ours, number(published, TABLE), "%", how=told, why=why, made=made)
            )
        return rows

    def _a_plane(self) -> list[Row]:
        """The large all-reduces with as many bytes in a plane on every network."""
        rows = []
        ours: dict[str, float] = {}
        some = [cluster for cluster in self.clusters if cluster.size == "large"]
        for cluster in some if "flows" in self.scope.network_models else ():
            case = cases.all_reduce_a_plane(cluster)
            result = self.results[case]
            ours[cluster.name] = percent(result)
            if case == cases.all_reduce(cluster, "flows"):
                continue
            published = number(cluster.all_reduce, TABLE)
            label, told = f"{cluster.label}, all-reduce, 2 GB a plane, flows", how(case, result)
            why = gaps.share(cluster, KINDS[1], "flows", ours[cluster.name], cluster.all_reduce)
            rows.append(
                Row(label, ours[cluster.name], published, "%", how=told, why=why, made=gaps.A_PLANE)
            )
        if ours:
            rows.append(_order("large clusters, all-reduce, 2 GB a plane, flows", some, ours))
        return rows

    def _orders(self, kind: str) -> list[Row]:
        """Pairs of networks that the printed shares tell apart and ours put the other way round."""
        rows = []
        for size in self.scope.sizes:
            some = [cluster for cluster in self.clusters if cluster.size == size]
            for network_model in self.scope.network_models_of(some[0]):
                ours = {one.name: self.share(one, kind, network_model) or 0 for one in some}
                rows.append(_order(f"{size} clusters, {kind} in {network_model}", some, ours, kind))
        return rows

    def _merged(self) -> list[Row]:
        """The small meshes as they are priced."""
        rows = []
        for cluster in self.clusters:
            for network_model in (
                self.scope.network_models_of(cluster) if cases.rows_of(cluster) else ()
            ):
                case = cases.merged(self.case(cluster, KINDS[0], network_model))
                result = self.results[case]
                label = f"{cluster.label} as priced, all-to-all, {network_model}"
                published = number(cluster.all_to_all, TABLE)
                ours, told = percent(result), how(case, result)
                made = _made(case)
                rows.append(Row(label, ours, published, "%", how=told, why=gaps.MERGED, made=made))
        return rows

    def _saving(self, cluster: Published, kind: str, network_model: NetworkModelName) -> Row:
        ours, published = self.saving(cluster, kind, network_model), _published(cluster, kind)[1]
        told = f"our costs and {network_model} shares; published shares give "
        told += f"{self.saving_from_published(cluster, kind):.3f}"
        case = f"{cluster.label}, {kind} saving"
        chosen = _made(self.case(cluster, kind, network_model))
        if cluster.name == TORUS:
            chosen = gaps.OPTICAL if chosen is COMPUTED else chosen.beside(gaps.OPTICAL)
        return Row(
            case,
            ours or 0.0,
            number(published, TABLE),
            "x",
            within=max(0.05, 0.05 / published),
            digits=3,
            how=told,
            why=gaps.SAVED,
            made=chosen,
        )

    def _savings(self) -> list[Row]:
        """How many printed savings follow from the printed shares."""
        if len(self.clusters) < len(TABLE_TWO):
            return []
        follow = sum(
            f"{self.saving_from_published(cluster, kind):.1f}"
            == f"{_published(cluster, kind)[1]:.1f}"
            for cluster in self.clusters
            for kind in KINDS
        )
        case = f"savings that follow from the printed shares, of {SAVINGS}"
        told = "our costs; rounded as printed"
        return [Row(case, float(follow), None, "", digits=0, how=told, why=gaps.SAVINGS)]

    def details(self) -> list[Detail]:
        """Table II as it stands in the paper, and the savings."""
        shares = [f"{kind}_{side}_%" for kind in KINDS for side in ("published", *SIDES)]
        header = ("cluster", "published_cost_M$", "cost_M$", *shares)
        header += ("published_diameter", "diameter", "diameter_bfs")
        wide: list[Cells] = []
        savings: list[Cells] = []
        for cluster in self.clusters:
            measured = self.measured[cluster.fabric]
            cells: list[str | float | None] = [
                cluster.label,
                float(cluster.cost),
                self.cost(cluster),
            ]
            for kind in KINDS:
                published, saving = _published(cluster, kind)
                cells += [
                    published,
                    *(self.share(cluster, kind, network_model) for network_model in SIDES),
                ]
                from_published = self.saving_from_published(cluster, kind)
                ours = (self.saving(cluster, kind, network_model) for network_model in SIDES)
                savings.append((cluster.label, kind, saving, from_published, *ours))
            ends = (cluster.diameter, measured["diameter"], measured["diameter_bfs"])
            wide.append((*cells, *ends))
        columns = ("cluster", "kind", "published", "from_published_shares", *SIDES)
        return [Detail("table_two", header, wide), Detail("savings", columns, savings)]


def _order(
    label: str, some: list[Published], ours: Mapping[str, float], kind: str = KINDS[1]
) -> Row:
    """How many pairs of networks ours puts the other way round than the printed shares."""
    wrong = [
        f"{low.name} > {high.name}"
        for low in some
        for high in some
        if _published(low, kind)[0] < _published(high, kind)[0] and ours[low.name] > ours[high.name]
    ]
    case, told = f"{label}: pairs in the wrong order", f"reversed: {', '.join(wrong) or 'none'}"
    why = gaps.ORDER if wrong and kind == KINDS[1] else ""
    return Row(case, float(len(wrong)), None, "pairs", digits=0, how=told, why=why)


def _made(case: TrafficCase) -> Made:
    """How a share came about: where phases overlap, with what was chosen for them."""
    return gaps.WINDOW if case.phases_overlap else COMPUTED


SIDES: tuple[NetworkModelName, ...] = ("flows", "packets")


def _published(cluster: Published, kind: str) -> tuple[float, float]:
    """The share and the saving."""
    if kind == "all-to-all":
        return cluster.all_to_all, cluster.all_to_all_saving
    return cluster.all_reduce, cluster.all_reduce_saving
