"""What joins the boards of a HammingMesh: networks over several lines, trees with fewer uplinks.

The paper prices and simulates one tree a line of NPUs, with all of its uplinks. Two things can be
changed, at the paper's own prices:

- **Joined lines.** One network joins the ends of several rows (or columns). A packet may change its
  row in there, so that it crosses one network, not two: of the two cables of an NPU that leave
  2 x 2 boards, it takes one. At best an all-to-all doubles.
- **Tapers.** `taper` leaves out a part of the uplinks of trees of two levels. On a whole mesh an
  all-to-all keeps what the uplinks carry: its share times
  `min(1, uplinks / (cables below a leaf * part of the messages that leave the leaf))`.

The paper's figures of these are not in our copy, so that ours stand alone. Of tapers it claims that
jobs of a full cluster send less than half of their traffic through the upper level (a row of
`allocation`); jobs side by side on tapered trees are `allrail place --run`.

Small meshes run in `flows`, split evenly over all shortest paths, and in `packets`; the large one
in `flows`, without the permutation, which takes minutes there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from allrail.scenario import GraphFabric
from allrail.simulation.graphs import count
from allrail_reproduce.hammingmesh.cases import ALL_REDUCE_SIZE, NetworkModelName, fabric_keys
from allrail_reproduce.hammingmesh.table_two import percent
from allrail_reproduce.kept import Kept
from allrail_reproduce.pictures.hammingmesh_trees import trees as picture
from allrail_reproduce.rows import Cells, Detail, Picture, Progress, Reproduction, Row
from allrail_reproduce.work import Simulate, carry_out, core_simulate

Pattern = Literal["all-to-all", "uniform", "permutation", "all-reduce"]

TITLE = "HammingMesh, SC'22: joined lines and tapered trees"
PRICED = "a switch a row of boards"
"""As the small meshes are priced: what others stand beside. On the large one, a tree a line."""

PHASES = 16
"""Of an all-to-all's shift phases, drawn by the seed: the same ones on every network of a size."""
LARGE_PHASES = 4

TRAFFIC: dict[Pattern, dict[str, Any]] = {
    "all-to-all": {"pattern": "all_to_all", "size": "1 MiB"},
    "uniform": {"pattern": "uniform", "size": "1 MiB"},
    "permutation": {"pattern": "permutation", "size": "4 MiB"},
    "all-reduce": {"pattern": "all_reduce", "size": "4 GB", "algorithm": "rings"},
}
ABOUT: dict[Pattern, str] = {
    "all-to-all": "shift phases, a barrier after each in flows, 1 MiB a pair",
    "uniform": "all pairs at once, 1 MiB a pair",
    "permutation": "each NPU to one other, drawn; 4 MiB; mean over NPUs",
    "all-reduce": "two disjoint rings, 4 GB; 32 GB on the large mesh, where steps are many",
}


@dataclass(frozen=True, slots=True)
class Trees:
    """A mesh and what joins its boards.

    Attributes:
        mesh: A preset.
        name: What is changed, in words.
        joined: Lines that one network joins; None as the preset has it.
        taper: Share of the uplinks left out.
    """

    mesh: str
    name: str
    joined: int | None = None
    taper: float = 0.0

    @property
    def fabric(self) -> dict[str, Any]:
        """Its keys."""
        keys = fabric_keys(self.mesh)
        if self.joined is not None:
            keys["joined_lines"] = self.joined
        return keys | {"taper": self.taper} if self.taper else keys

    @property
    def large(self) -> bool:
        """Whether it has 16,384 NPUs."""
        return self.mesh.endswith("16k")


def _small(mesh: str, board: int) -> tuple[Trees, ...]:
    """A mesh of 1,024 NPUs: a switch a line, as priced, half of the lines, all; fewer uplinks."""
    return (
        Trees(mesh, "a switch a line", 1),
        Trees(mesh, PRICED, board),
        Trees(mesh, "16 lines", 16),
        Trees(mesh, "32 lines", 32),
        Trees(mesh, "32 lines, 1/2 of the uplinks", 32, 0.5),
        Trees(mesh, "32 lines, 1/4 of the uplinks", 32, 0.75),
    )


NETWORKS = (
    *_small("hx2mesh-1k", 2),
    *_small("hx4mesh-1k", 4),
    Trees("hx2mesh-16k", "a tree a line", 1),
    Trees("hx2mesh-16k", "16 lines", 16),
    Trees("hx2mesh-16k", "1/2 of the uplinks", 1, 0.5),
    Trees("hx2mesh-16k", "1/4 of the uplinks", 1, 0.75),
    Trees("hx2mesh-16k", "1/8 of the uplinks", 1, 0.875),
)
"""What is compared, by mesh; of each mesh the one as priced is what others stand beside."""


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation.

    Attributes:
        trees: Where.
        pattern: Who sends to whom.
        network_model: What carries it.
    """

    trees: Trees
    pattern: Pattern
    network_model: NetworkModelName

    @property
    def scenario(self) -> dict[str, Any]:
        """What `allrail.simulate` takes."""
        traffic = dict(TRAFFIC[self.pattern])
        if self.network_model == "flows":
            traffic["paths"] = "ecmp"
        if self.pattern == "all-reduce" and self.trees.large:
            traffic["size"] = ALL_REDUCE_SIZE
        if self.pattern == "all-to-all":
            traffic["phases"] = LARGE_PHASES if self.trees.large else PHASES
        fabric = self.trees.fabric
        return {
            "schema_version": 1,
            "fabric": fabric,
            "traffic": traffic,
            "network_model": self.network_model,
            "seed": 0,
        }

    @property
    def weight(self) -> float:
        """About how many seconds of a core it takes."""
        if self.trees.large:
            return 25.0 if self.pattern == "all-reduce" else 4.0
        return 5.0 if self.pattern in ("uniform", "all-reduce") else 3.0

    def share(self, result: Mapping[str, Any]) -> float:
        """Per cent: of an all-reduce of its optimum, of others of what NPUs inject."""
        if self.pattern == "permutation":
            mean = float(result["npu_bandwidth_gbps"]["mean"])
            return 100 * mean / float(result["injection_gbps"])
        return percent(result)


def cases_of(trees: Trees) -> list[Case]:
    """Return what is simulated on a network.

    Args:
        trees: The network.
    """
    if trees.large:
        return [Case(trees, "all-to-all", "flows"), Case(trees, "all-reduce", "flows")]
    # In packets, uniform traffic is a matter of its window; the all-to-all stands for both.
    return [
        Case(trees, pattern, network_model)
        for pattern in TRAFFIC
        for network_model in ("flows", "packets")
        if (pattern, network_model) != ("uniform", "packets")
    ]


def columns() -> list[tuple[Pattern, NetworkModelName]]:
    """Return what a row of the table has, in order."""
    return [(case.pattern, case.network_model) for case in cases_of(NETWORKS[0])]


def run(
    *,
    cache: bool = True,
    jobs: int | None = None,
    simulate: Simulate = core_simulate,
    progress: Progress | None = None,
) -> Reproduction:
    """Compare networks between boards by price and by what they carry.

    Args:
        cache: Whether results that are kept on disk are taken; new ones are kept in any case.
        jobs: How many simulations run at once; as many as there are cores if None.
        simulate: Simulates one scenario.
        progress: Told how much work is done and how much there is.
    """
    found = carry_out(
        [case for trees in NETWORKS for case in cases_of(trees)],
        simulate=simulate,
        kept=Kept(read=cache),
        jobs=jobs,
        progress=progress,
    )
    shares = {case: case.share(result) for case, result in found.items()}
    detail = _detail(shares)
    drawn = Picture(
        "trees",
        "Cost and throughput of what joins the boards",
        "Each point is a network, by its number below. Up and to the left is better. Shares of an "
        "all-to-all and a permutation are of what an NPU injects, those of an all-reduce of the "
        "most that is possible without reduction in the network.",
        partial(picture, detail),
    )
    notes = [
        "each number is a multiple of the same mesh's as it is priced in Table II",
        "all fabrics are uncalibrated; the prices are the paper's",
        "an all-reduce's share is of the most that is possible without reduction in the network",
        "all other shares are of what an NPU injects",
        *(f"{pattern}: {about}" for pattern, about in ABOUT.items()),
        f"all-to-alls: {PHASES} of 1,023 shift phases, {LARGE_PHASES} of 16,383 on the large mesh",
        "phases and permutations are the same ones on every network of a mesh",
        "the paper's numbers of these networks are not in our copy",
    ]
    return Reproduction(TITLE, _rows(shares), notes, [detail], [drawn])


def cost(trees: Trees) -> float:
    """Return the price in millions of dollars.

    Args:
        trees: The network.
    """
    return float(_counted(trees)["cost_usd"]) / 1e6


def _counted(trees: Trees) -> Mapping[str, Any]:
    return count(GraphFabric.model_validate({"name": trees.name, **trees.fabric}))


def _base(trees: Trees) -> Trees:
    """What a network stands beside: its mesh as priced."""
    own = [one for one in NETWORKS if one.mesh == trees.mesh]
    return next((one for one in own if one.name == PRICED), own[0])


def _rows(shares: Mapping[Case, float]) -> list[Row]:
    """What each network carries, and carries for its price, beside the mesh as priced."""
    rows = []
    for trees in NETWORKS:
        base = _base(trees)
        dearer = cost(trees) / cost(base)
        rows.append(
            Row(
                f"{trees.mesh}, {trees.name}: cost",
                dearer,
                None,
                "x",
                how=f"{cost(trees):.3f} of {cost(base):.3f} M$",
            )
        )
        for case in cases_of(trees):
            if trees == base:
                continue
            beside = shares[Case(base, case.pattern, case.network_model)]
            gain = shares[case] / beside
            rows.append(
                Row(
                    f"{trees.mesh}, {trees.name}: {case.pattern}, {case.network_model}",
                    gain,
                    None,
                    "x",
                    how=f"{case.network_model}, {shares[case]:.2f} of {beside:.2f} %; for the "
                    f"price {gain / dearer:.2f} x",
                )
            )
    return rows


def _detail(shares: Mapping[Case, float]) -> Detail:
    """One row a network."""
    kinds = columns()
    header: tuple[str, ...] = ("mesh", "network", "joined_lines", "uplinks_left_out")
    header += ("switches", "cost_M$")
    header += tuple(f"{pattern}_{network_model}_%" for pattern, network_model in kinds)
    rows: list[Cells] = []
    for trees in NETWORKS:
        carried = (
            shares.get(Case(trees, pattern, network_model)) for pattern, network_model in kinds
        )
        fixed = (trees.mesh, trees.name, trees.joined, trees.taper)
        rows.append((*fixed, int(_counted(trees)["switches"]), cost(trees), *carried))
    return Detail("trees", header, rows)
