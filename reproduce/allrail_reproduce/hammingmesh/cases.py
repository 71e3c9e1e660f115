"""What is simulated for HammingMesh: each case is one scenario of traffic on one cluster.

All-to-alls are shift phases: in phase `i`, NPU `n` sends to `n + i`. Fewer phases than all are a
sample that the seed draws; the share is the sample's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from allrail import _core
from allrail.scenario import GraphFabric, load_any_fabric
from allrail.simulation.graphs import count
from allrail_reproduce.hammingmesh import samples
from allrail_reproduce.hammingmesh.published import (
    DRAGONFLY,
    HX2,
    HX4,
    HYPERX,
    TABLE_TWO,
    TORUS,
    TREE,
    TREE_50,
    TREE_75,
    Published,
    Size,
)

Pattern = Literal["all_to_all", "all_reduce", "permutation"]
NetworkModelName = Literal["flows", "packets"]

ALL_TO_ALL_SIZE = "1 MiB"
"""Of a message from one NPU to another, over all planes: as printed."""
ALL_REDUCE_SIZE = "32 GB"
"""Of an NPU's buffer, over all planes."""
PLANE_SIZE = 2_000_000_000
"""The same in one plane, where all networks have as many bytes in a plane."""
PERMUTATION_SIZE = 1 << 20
"""Of a message in one plane, bytes."""
MESSAGE_SIZES = (1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17)
"""Fig. 11, besides Table II's; in one plane, bytes. The figure's own are not printed."""
BUFFER_SIZES = ("64 MB", "256 MB", "1 GB", "4 GB", "16 GB", ALL_REDUCE_SIZE)
"""Fig. 17; the figure's own are not printed."""
LARGE_BUFFER_SIZES = ("1 KiB", "64 KiB", "1 MiB", "64 MiB", "1 GiB", "16 GiB")
"""Fig. 13; the figure's own are not printed."""
CURVE_PHASES = 128
"""Of an all-to-all in Fig. 11, unless all are asked for."""

BUFFER_MOST = {("torus", "packets"): 1e9}
"""Up to where, by algorithm and network model: its few long steps would be too many packets."""
LARGE_PART = 32
"""Large clusters run one phase for so many that small ones run."""
FREE_PHASES = 16
"""Without a barrier in `flows`, where every message counts alone."""
BARRIER_PART = 4
"""With a barrier after each, small clusters run one phase for so many that they run without."""

_MEAN_LINKS = {
    TREE: 4.0,
    TREE_50: 4.0,
    TREE_75: 4.0,
    DRAGONFLY: 4.1,
    HYPERX: 3.8,
    HX2: 3.8,
    HX4: 4.9,
    TORUS: 16.0,
}
_PACKET_HOPS_PER_SECOND = 2e6
_PHASE_SECONDS: dict[Size, dict[str, float]] = {
    "small": {TREE_50: 0.04, TREE_75: 0.01, DRAGONFLY: 0.02, HX4: 0.03, TORUS: 0.005},
    "large": {TREE_50: 6.0, TREE_75: 0.2, DRAGONFLY: 27.0, HYPERX: 3.6, HX2: 1.3, HX4: 0.3},
}
"""Of a phase in `flows`, where it takes noticeable time."""

_STEPS_AND_PARTS = {"torus": (64, 32)}
"""Of an all-reduce in `packets`: the steps that are simulated, and the parts of the buffer that a
message has. Others: 16, and one for each NPU."""


@dataclass(frozen=True, slots=True)
class TrafficCase:
    """One simulation.

    Attributes:
        cluster: Where.
        pattern: Who sends to whom.
        network_model: What carries it.
        size: As the scenario writes it, over all planes.
        phases: Of an all-to-all: how many; all if None.
        algorithm: Of an all-reduce.
        barrier: Whether a phase waits until the one before is over; if None, in `flows` alone.
        rows: How a HammingMesh joins the rows of its boards; the preset's way if empty.
        seed: Of what is drawn.
    """

    cluster: Published
    pattern: Pattern
    network_model: NetworkModelName
    size: str
    phases: int | None = None
    algorithm: str = ""
    barrier: bool | None = None
    rows: str = ""
    seed: int = 0

    @property
    def scenario(self) -> dict[str, Any]:
        """What `allrail.simulate` takes."""
        traffic: dict[str, Any] = {"pattern": self.pattern, "size": self.size}
        if self.pattern == "all_to_all":
            traffic["phases"] = "all" if self.phases is None else self.phases
            if self.barrier is not None:
                traffic["phase_barrier"] = self.barrier
        if self.network_model == "flows":
            # Without a barrier messages come and go, and no splitting is the best for all of them.
            traffic["paths"] = "ecmp" if self.barrier is False else "ideal"
        if self.algorithm:
            traffic["algorithm"] = self.algorithm
        fabric: str | dict[str, Any] = self.cluster.fabric
        if self.rows:
            fabric = {**fabric_keys(self.cluster.fabric), "rows": self.rows}
        return {
            "schema_version": 1,
            "fabric": fabric,
            "traffic": traffic,
            "network_model": self.network_model,
            "seed": self.seed,
        }

    @property
    def phases_overlap(self) -> bool:
        """Whether phases of an all-to-all begin before others are over, as far as a window goes."""
        free = self.network_model == "packets" if self.barrier is None else not self.barrier
        return free and self.pattern == "all_to_all"

    @property
    def weight(self) -> float:
        """About how many seconds of a core it takes."""
        npus, planes = _counts(self.cluster.fabric)
        name, size = self.cluster.name, self.cluster.size
        phases = self.phases or npus - 1 if self.pattern == "all_to_all" else 1
        if self.network_model == "flows":
            if self.pattern == "all_to_all" and self.barrier is False:
                return 5.0
            if self.pattern == "all_to_all":
                return 0.1 + phases * _PHASE_SECONDS[size].get(name, 0.001)
            return 0.3 if size == "small" else 10.0
        messages, links, per_message = npus * phases, _MEAN_LINKS[name], _bytes(self.size) / planes
        if self.pattern == "all_reduce":
            steps, parts = _STEPS_AND_PARTS.get(self.algorithm or "", (16, npus))
            messages, per_message = 4 * npus * steps, per_message / (4 * parts)
            links = 3.0 if planes > 4 else 1.5
        return 0.1 + messages * max(1.0, per_message / 8192) * links / _PACKET_HOPS_PER_SECOND


def merged(case: TrafficCase) -> TrafficCase:
    """Return the same case on the mesh as it is priced, its rows of boards at one switch each.

    Args:
        case: On a small HammingMesh.
    """
    return replace(case, rows="merged")


def with_barrier(cluster: Published, scope: Scope) -> TrafficCase:
    """Return the all-to-all in `packets` with a barrier after each phase.

    Args:
        cluster: Where; a small one.
        scope: Says how many phases.
    """
    case = all_to_all(cluster, "packets", scope)
    return replace(case, barrier=True, phases=scope.part(BARRIER_PART))


def without_barrier(cluster: Published, scope: Scope) -> TrafficCase:
    """Return the all-to-all in `flows` without a barrier, as `packets` has it.

    Args:
        cluster: Where; a small one.
        scope: Says how many phases.
    """
    case = all_to_all(cluster, "flows", scope)
    return replace(case, barrier=False, phases=min(FREE_PHASES, scope.phases or FREE_PHASES))


def fabric_keys(fabric: str) -> dict[str, Any]:
    """Return a preset's topology and its keys.

    Args:
        fabric: Its name.
    """
    graph = load_any_fabric(fabric)
    assert isinstance(graph, GraphFabric), "the presets of Table II are graphs"  # noqa: S101
    return {"topology": graph.topology, **graph.keys}


@cache
def _counts(fabric: str) -> tuple[int, int]:
    tree = count(fabric)
    return int(tree["npus"]), int(tree["planes"])


@cache
def _ports(fabric: str) -> int:
    return int(count(fabric)["ports"])


@cache
def _bytes(size: str) -> int:
    return _core.parse_quantity("size", size)


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is computed.

    Attributes:
        sizes: The halves of Table II.
        network_models: Where traffic runs.
        phases: Shift phases of an all-to-all in `packets`; a part of them on large clusters, and
            with a barrier after each; all if None.
        curves: Whether Figures 11, 12, 13 and 17 are computed.
        jobs: Whether the claims about jobs are computed.
    """

    sizes: tuple[Size, ...] = ("small", "large")
    network_models: tuple[NetworkModelName, ...] = ("flows", "packets")
    phases: int | None = 256
    curves: bool = True
    jobs: bool = True

    @property
    def clusters(self) -> list[Published]:
        """The rows of Table II that are computed."""
        return [cluster for cluster in TABLE_TWO if cluster.size in self.sizes]

    def part(self, part: int) -> int | None:
        """One phase for so many of `phases`; None for all."""
        return None if self.phases is None else max(1, self.phases // part)

    def network_models_of(self, cluster: Published) -> list[NetworkModelName]:
        """Where a cluster's traffic runs: large ones are too large for `packets`."""
        return [w for w in self.network_models if w == "flows" or cluster.size == "small"]


def all_to_all(cluster: Published, network_model: NetworkModelName, scope: Scope) -> TrafficCase:
    """Return Table II's global bandwidth; all phases of a small cluster in `flows`.

    Args:
        cluster: Where.
        network_model: What carries it.
        scope: Says how many phases.
    """
    whole = network_model == "flows" and cluster.size == "small"
    phases = None if whole else scope.part(LARGE_PART if cluster.size == "large" else 1)
    rows = rows_of(cluster)
    return TrafficCase(cluster, "all_to_all", network_model, ALL_TO_ALL_SIZE, phases, rows=rows)


def all_reduce(cluster: Published, network_model: NetworkModelName) -> TrafficCase:
    """Return Table II's all-reduce.

    Args:
        cluster: Where.
        network_model: What carries it.
    """
    algorithm, rows = algorithms(cluster)[0], rows_of(cluster)
    return TrafficCase(
        cluster, "all_reduce", network_model, ALL_REDUCE_SIZE, None, algorithm, None, rows
    )


def all_reduce_a_plane(cluster: Published) -> TrafficCase:
    """Return the all-reduce in `flows` with as many bytes in a plane on every network.

    Args:
        cluster: Where; a large one.
    """
    gigabytes = _counts(cluster.fabric)[1] * PLANE_SIZE // 10**9
    return replace(all_reduce(cluster, "flows"), size=f"{gigabytes} GB")


def rows_of(cluster: Published) -> str:
    """Return how the paper simulates the rows of a mesh: one tree per row of NPUs.

    It prices the small ones with merged switches; on the large ones nothing can be merged.

    Args:
        cluster: Where.
    """
    return "per_accelerator" if cluster.fabric in ("hx2mesh-1k", "hx4mesh-1k") else ""


def planes_size(cluster: Published, size: int) -> str:
    """Return a size over all planes, as a scenario writes it.

    Args:
        cluster: Says how many planes.
        size: In one plane, bytes.
    """
    kib = _counts(cluster.fabric)[1] * size // 1024
    return f"{kib // 1024} MiB" if kib % 1024 == 0 else f"{kib} KiB"


def algorithms(cluster: Published) -> tuple[str, ...]:
    """Return the all-reduce algorithms that a cluster runs, Table II's first.

    Two disjoint rings use all four ports of an NPU; where it has one port a plane, one ring one
    way uses it as well, and keeps to its switch.

    Args:
        cluster: Where.
    """
    first = "rings" if _ports(cluster.fabric) > 1 else "ring_unidirectional"
    return (first, "torus")


def permutation(cluster: Published, network_model: NetworkModelName) -> TrafficCase:
    """Return Fig. 12's case.

    Args:
        cluster: Where.
        network_model: What carries it.
    """
    size = planes_size(cluster, PERMUTATION_SIZE)
    return TrafficCase(cluster, "permutation", network_model, size, rows=rows_of(cluster))


def message_sizes(
    cluster: Published, network_model: NetworkModelName, scope: Scope
) -> list[TrafficCase]:
    """Return Fig. 11's cases.

    Args:
        cluster: Where.
        network_model: What carries it.
        scope: Says whether all phases are simulated.
    """
    phases = None if scope.phases is None else min(scope.phases, CURVE_PHASES)
    rows = rows_of(cluster)
    sizes = [planes_size(cluster, size) for size in MESSAGE_SIZES]
    smaller = [
        TrafficCase(cluster, "all_to_all", network_model, size, phases, rows=rows) for size in sizes
    ]
    return [*smaller, all_to_all(cluster, network_model, scope)]


def buffer_sizes(cluster: Published, network_model: NetworkModelName) -> list[TrafficCase]:
    """Return the cases of an all-reduce over sizes: Fig. 17, small clusters; Fig. 13, large ones.

    On a large fat tree, dragonfly or HyperX rows and columns take minutes a size, and are left out:
    the paper's own torus algorithm is for meshes and tori.

    Args:
        cluster: Where.
        network_model: What carries it.
    """
    rows = rows_of(cluster)
    if cluster.size == "large":
        mesh = cluster.name in (HX2, HX4, TORUS)
        return [
            TrafficCase(cluster, "all_reduce", network_model, size, algorithm=algorithm)
            for algorithm in algorithms(cluster)[: 2 if mesh else 1]
            for size in LARGE_BUFFER_SIZES
        ]
    return [
        TrafficCase(cluster, "all_reduce", network_model, size, algorithm=algorithm, rows=rows)
        for algorithm in algorithms(cluster)
        for size in BUFFER_SIZES
        if _bytes(size) <= BUFFER_MOST.get((algorithm, network_model), math.inf)
    ]


def cases_of(scope: Scope) -> Sequence[TrafficCase]:
    """Return everything that is simulated, what Table II needs first.

    Args:
        scope: How much.
    """
    pairs = [
        (cluster, network_model)
        for cluster in scope.clusters
        for network_model in scope.network_models_of(cluster)
    ]
    table = [case for c, w in pairs for case in (all_to_all(c, w, scope), all_reduce(c, w))]
    table += [with_barrier(c, scope) for c, w in pairs if w == "packets"]
    table += [without_barrier(c, scope) for c, w in pairs if w == "flows" and c.size == "small"]
    table += [all_reduce_a_plane(c) for c, w in pairs if w == "flows" and c.size == "large"]
    table += [one for c, w in pairs for one in samples.cases_of(all_to_all(c, w, scope))]
    table += [merged(all_to_all(c, w, scope)) for c, w in pairs if rows_of(c)]
    if not scope.curves:
        return table
    small = [
        (cluster, network_model) for cluster, network_model in pairs if cluster.size == "small"
    ]
    curves = [
        case
        for cluster, network_model in small
        for case in (
            permutation(cluster, network_model),
            *message_sizes(cluster, network_model, scope),
            *buffer_sizes(cluster, network_model),
        )
    ]
    curves += [
        case
        for cluster, network_model in pairs
        if cluster.size == "large"
        for case in buffer_sizes(cluster, network_model)
    ]
    return list(dict.fromkeys([*table, *curves]))
