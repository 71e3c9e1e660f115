"""The workloads of HammingMesh (section V-B), through the training driver in `flows` and `packets`.

Each is a preset `hammingmesh_...`: the composition that the authors' published inputs have. What
the paper does not print about the networks is chosen once, for all of them:

- A cluster has as many NPUs as the job has ranks, in a grid; rank r is NPU r. Shards and
  experts are the slowest axis: those of a pipeline stage lie 96 ranks apart.
- An NPU injects 1.6 Tb/s: one port of 4 x 400 Gb/s on trees (their 4 planes), 4 ports of 400 Gb/s
  on the others; a HyperX router is joined to its NPU by 1.6 Tb/s, to others by 400 Gb/s.
- A cable takes 60 ns: 20 ns, and 40 ns of buffer (Table III); a trace of a board 41 ns.
- A message waits 830 ns at its ends, which is what the stock parameters of the authors' simulator
  come to: send set-up 130, receive set-up 100, matching 150, the network interfaces' 50 to send,
  100 to match, 150 each way to the host (sst-elements, ember/test/defaultParams.py).
- Messages take all shortest paths evenly.
- All-reduces: one ring one way on trees, two disjoint rings both ways elsewhere; of DLRM, whose
  buffers are small, rows and columns (`torus`) everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from allrail_reproduce.hammingmesh.published import (
    HX2,
    HX4,
    HYPERX,
    TABLE_TWO,
    TORUS,
    TREE,
    TREE_50,
    TREE_75,
)
from allrail_reproduce.published import Made, chosen
from allrail_reproduce.rows import Cells, Detail, Picture, Progress, Reproduction
from allrail_reproduce.work import Simulate, carry_out, core_simulate

TITLE = "HammingMesh, SC'22: workloads"
OVERHEAD = "830 ns"
CABLE, TRACE, NPU_CABLE = "60 ns", "41 ns", "1 ns"
TAPERS = {TREE: 0.0, TREE_50: 0.5, TREE_75: 0.75}
NETWORKS = (TREE, TREE_50, TREE_75, HYPERX, HX2, HX4, TORUS)
"""In the order of GPT-3's published times."""
SAME = 1e-3
"""Times nearer to each other than this part are a tie."""

NetworkModelName = Literal["flows", "packets"]


PICKED = ("ranks in order of NPUs", "shapes of the clusters", "ports of 400 Gb/s")
"""What was chosen, among others, because GPT-3's times come out with it."""


@dataclass(frozen=True, slots=True)
class Job:
    """A workload.

    Attributes:
        name: In tables.
        preset: Ours.
        grid: Columns and rows of the NPUs.
        compute_ms: On the slowest rank, as the composition has it.
        published_ms: An iteration, by network; two ends where only a range is printed.
        small: Whether its all-reduces are small.
        steady: Whether alike steps of its collectives are one message each.
        seconds: About how long a simulation takes in `flows`.
        picked: What was chosen for it alone.
        printed_compute_ms: What of an iteration the paper says is computed; None where it does not.
    """

    name: str
    preset: str
    grid: tuple[int, int]
    compute_ms: float
    published_ms: Mapping[str, float | tuple[float, float]]
    small: bool = False
    steady: bool = False
    seconds: float = 2.0
    picked: tuple[str, ...] = ()
    printed_compute_ms: float | None = None

    def printed(self, network: str) -> tuple[float, float]:
        """Return the ends of what is printed of an iteration, ms.

        Args:
            network: Where.
        """
        ends = self.published_ms[network]
        return ends if isinstance(ends, tuple) else (ends, ends)

    def made(self, network: str) -> Made:
        """Return what of a number of this workload was chosen.

        Args:
            network: Where.
        """
        more = ("cable to a HyperX router",) if network == HYPERX else ()
        return chosen(*PICKED, *self.picked, *more, by="the times of GPT-3 and GPT-3 MoE")

    def __hash__(self) -> int:
        """By its preset."""
        return hash(self.preset)


TEXT = Job(
    "GPT-3, four all-reduces",
    "hammingmesh_gpt3_text",
    (16, 24),
    31.8,
    {TREE: 34.8},
    printed_compute_ms=31.8,
)
GPT3 = Job(
    "GPT-3",
    "hammingmesh_gpt3",
    (16, 24),
    31.83,
    dict(zip(NETWORKS, (34.8, 36.4, 37.5, 40.9, 41.7, 49.9, 72.2), strict=True)),
    printed_compute_ms=31.8,
)
MOE = Job(
    "GPT-3 MoE",
    "hammingmesh_gpt3_moe",
    (32, 48),
    44.734 + 82.586 / 16,
    {
        **dict.fromkeys((TREE, TREE_50, TREE_75), (52.2, 52.9)),
        HYPERX: 53.9,
        HX2: 58.3,
        HX4: 63.3,
        TORUS: 73.8,
    },
    seconds=20.0,
    printed_compute_ms=49.9,
)
RESNET = Job(
    "ResNet-152",
    "hammingmesh_resnet152_1024",
    (32, 32),
    108.0,
    dict(zip(NETWORKS, (109.7, 109.7, 109.7, 109.7, 110.1, 110.1, 110.1), strict=True)),
    steady=True,
    printed_compute_ms=108.0,
)
DLRM = Job(
    "DLRM",
    "hammingmesh_dlrm",
    (8, 16),
    2.901,
    dict(zip(NETWORKS, (2.96, 2.97, 2.99, 2.94, 2.97, 3.00, 3.12), strict=True)),
    small=True,
    picked=("all-reduce along rows and columns",),
)
COSMOFLOW = Job("CosmoFlow", "hammingmesh_cosmoflow", (32, 32), 93.61, {}, steady=True, seconds=5.0)
RESNET_SIZES = (
    Job("ResNet-152 on 512", "hammingmesh_resnet152_512", (32, 16), 189.0, {}, steady=True),
    Job("ResNet-152 on 256", "hammingmesh_resnet152_256", (16, 16), 357.0, {}, steady=True),
)
"""Only the worst overhead of all sizes is printed."""
JOBS = (TEXT, RESNET, *RESNET_SIZES, COSMOFLOW, DLRM, GPT3, MOE)
COSMOFLOW_PUBLISHED: Mapping[str, tuple[float | None, float]] = {
    **dict.fromkeys((TREE, TREE_50, TREE_75, HYPERX, HX2), (None, 2.0)),
    HX4: (3.4, 3.4),
    TORUS: (4.4, 4.4),
}
"""Overheads in per cent; "less than 2" has one end."""
COSMOFLOW_TEXT_MS = 44.3


@dataclass(frozen=True, slots=True)
class WorkloadCase:
    """One simulation.

    Attributes:
        job: What.
        network: Where.
        network_model: What carries it.
    """

    job: Job
    network: str
    network_model: NetworkModelName = "flows"

    @property
    def scenario(self) -> dict[str, Any]:
        """What the core simulates, resolved."""
        from allrail.scenario.models import load_model

        flows = self.network_model == "flows"
        return {
            "schema_version": 1,
            "fabric": fabric(self.network, self.job.grid),
            "workload": {
                "model": {"steps": load_model(self.job.preset)["steps"]},
                "iterations": 1,
            },
            "network_model": self.network_model,
            "messages": {
                "paths": "ecmp" if flows else None,
                "overhead": OVERHEAD,
                "steady": self.job.steady and flows,
                "algorithms": self._algorithms(),
            },
        }

    def _algorithms(self) -> dict[str, Any]:
        if self.job.small:
            return {"all_reduce": "torus"}
        tree = self.network in TAPERS
        found: dict[str, Any] = {"all_reduce": "ring_unidirectional" if tree else "rings"}
        if self.job in (GPT3, TEXT):
            # Four ranks in a line have one ring.
            found["groups"] = {"tensor": "ring_unidirectional"}
        return found

    @property
    def weight(self) -> float:
        """About how many seconds of a core it takes."""
        part = 4.0 if self.network == TORUS else 1.0
        return self.job.seconds * part * (1.0 if self.network_model == "flows" else 15.0)


def fabric(network: str, grid: tuple[int, int]) -> dict[str, Any]:
    """Return a network with as many NPUs as a grid, 1.6 Tb/s each.

    Args:
        network: A name of `NETWORKS`.
        grid: Columns and rows.
    """
    columns, rows = grid
    link = {"bandwidth": "400 Gb/s", "latency": CABLE}
    if network in TAPERS:
        return {
            "topology": "fat_tree",
            "npus": columns * rows,
            "levels": 2,
            "taper": TAPERS[network],
            "switch_radix": 64,
            "planes": 4,
            "link": link,
        }
    board = {"bandwidth": "400 Gb/s", "latency": TRACE}
    if network == TORUS:
        keys: dict[str, Any] = {"shape": [rows, columns], "board": [2, 2], "board_link": board}
        return {"topology": "torus", **keys, "planes": 1, "link": link}
    common = {"switch_radix": 64, "planes": 1, "link": link}
    if network == HYPERX:
        own = {"bandwidth": "1600 Gb/s", "latency": NPU_CABLE}
        return {"topology": "hyperx", "shape": [columns, rows], "npu_link": own, **common}
    side = 2 if network == HX2 else 4
    return {
        "topology": "hammingmesh",
        "board": [side, side],
        "grid": [columns // side, rows // side],
        "board_link": board,
        "rows": "per_accelerator",
        **common,
    }


def cases_of(network_models: Sequence[NetworkModelName]) -> list[WorkloadCase]:
    """Return everything that is simulated; in `packets` GPT-3 alone.

    Args:
        network_models: Where.
    """
    cases: list[WorkloadCase] = []
    if "flows" in network_models:
        for job in JOBS:
            networks = (TREE,) if job is TEXT else NETWORKS
            cases += [WorkloadCase(job, network) for network in networks]
    if "packets" in network_models:
        cases += [WorkloadCase(GPT3, network, "packets") for network in NETWORKS]
    return cases


def run(
    network_models: Sequence[NetworkModelName] = ("flows", "packets"),
    *,
    cache: bool = True,
    jobs: int | None = None,
    simulate: Simulate = core_simulate,
    progress: Progress | None = None,
) -> Reproduction:
    """Compute the workloads' numbers.

    Args:
        network_models: Where they run.
        cache: Whether results that are kept on disk are taken; new ones are kept in any case.
        jobs: How many simulations run at once; as many as there are cores if None.
        simulate: Simulates one scenario.
        progress: Told how much work is done and how much there is.
    """
    from allrail_reproduce.hammingmesh import workload_rows
    from allrail_reproduce.kept import Kept
    from allrail_reproduce.pictures import hammingmesh_workloads

    found = carry_out(
        cases_of(network_models),
        simulate=simulate,
        kept=Kept(read=cache),
        jobs=jobs,
        progress=progress,
    )
    rows = workload_rows.rows(found) + workload_rows.computes()
    details = [_simulations(found), *workload_rows.details(found)]
    pictures: list[Picture] = hammingmesh_workloads.pictures({d.name: d for d in details})
    return Reproduction(TITLE, rows, NOTES, details, pictures)


NOTES = [
    "all fabrics are uncalibrated",
    (
        "clusters have as many NPUs as the job has ranks: 32 x 32 for ResNet-152 and CosmoFlow, "
        "8 x 16 for DLRM, 16 x 24 for GPT-3, 32 x 48 for GPT-3 MoE; rank r is NPU r, and shards or "
        "experts come last: those of a stage lie 96 ranks apart, those of a replica 256"
    ),
    (
        "that placement, the shapes of the clusters and ports of 400 Gb/s were chosen among others "
        "because they bring GPT-3's times out, the shape for GPT-3 MoE because it brings MoE's; "
        "ResNet-152 and DLRM are predicted with them"
    ),
    (
        "the cable from an NPU to a HyperX router was chosen by MoE's time there, CosmoFlow's "
        "placement by GPT-3's rule after a first run: neither is a pure prediction"
    ),
    "an NPU injects 1.6 Tb/s everywhere: one port on trees, four of 400 Gb/s elsewhere",
    (
        "a message waits 830 ns at its ends: the stock parameters of the authors' simulator; "
        "without it ResNet-152 would expose 0.2 to 0.5 ms, less than published"
    ),
    (
        "trees sum on one ring one way, the others on two disjoint rings; DLRM along rows and "
        "columns of 8 x 16, the best of several: on rings it would take 0.2 ms more"
    ),
    (
        "alike steps of ResNet-152's and CosmoFlow's rings are one message each: exact while "
        "nothing disturbs them"
    ),
]


def _simulations(found: Mapping[WorkloadCase, Mapping[str, Any]]) -> Detail:
    header: tuple[str, ...] = (
        "workload",
        "network",
        "network_model",
        "time_ms",
        "compute_ms",
        "exposed_ms",
    )
    header += ("published_low_ms", "published_high_ms")
    rows: list[Cells] = []
    for case, result in found.items():
        time, compute = result["step_time_us"] / 1e3, case.job.compute_ms
        published = case.job.published_ms.get(case.network)
        ends = published if isinstance(published, tuple) else (published, published)
        exposed = time - compute
        rows.append(
            (case.job.name, case.network, case.network_model, time, compute, exposed, *ends)
        )
    return Detail("workloads", header, rows)


def cost_musd(network: str) -> float:
    """Return what the small cluster costs, as printed in Table II.

    Args:
        network: A name of `NETWORKS`.
    """
    return next(float(p.cost) for p in TABLE_TWO if p.size == "small" and p.name == network)
