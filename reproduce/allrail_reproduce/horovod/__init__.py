"""The scaling of Horovod's control plane (Romero et al., NSDI'22), on Summit.

Efficiency is the time a GPU computes over the time of a step. The steps are training scenarios as
any other; their coordinators are the real state machines, one a rank, in virtual time; the tensors
become ready over the backward pass, the last layer's first, as their layers' FLOPs take.

Nothing is fitted. What a message and a request cost is measured or published: `rank_zero`.

- The lengths of lists are gathered first (`mpi_controller.cc`); that is free here: MPI gathers
  small values of many ranks in a tree.
- Cycle and fusion: 5 ms and 64 MiB, Horovod's defaults before 0.21.
- While a buffer is exchanged, computing takes 18.9 % longer: the mean over GPT and LLaMA training
  on A100, H100, MI210 and MI250 (arXiv 2507.03114; at most 40 %), as no mean of V100 is published.
- Data planes: `planes`.
- ResNet-50 (preset `resnet50`), batch 64, FP32: 360 images/s on a V100.
- STEMDL (preset `stemdl_fc_densenet`), FP16: the preset's FLOPs at half of a V100's tensor cores.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from allrail.simulation.api import simulate
from allrail.simulation.pieces import Pieces
from allrail_reproduce.horovod import claims
from allrail_reproduce.horovod.cases import Case, Efficiencies
from allrail_reproduce.horovod.claims import ABSTRACT
from allrail_reproduce.horovod.models import RESNET, STEMDL, Model
from allrail_reproduce.horovod.picture import draw
from allrail_reproduce.horovod.planes import HIERARCHICAL, MPI, NCCL, Plane
from allrail_reproduce.horovod.rank_zero import OTHERS, SUMMIT, Costs, load
from allrail_reproduce.published import number
from allrail_reproduce.rows import Cells, Detail, Picture, Progress, Reproduction, Row

RESNET_RANKS = (6, 96, 192, 400, 800, 1600, 3200)
STEMDL_RANKS = (400, 800, 1536, 3072, 6000)
FULL = 27_600
CYCLE = "5 ms"
STEPS = 4
SKEW = "500 us"
SLOWDOWN = 0.189
"""By how much longer computing takes during an exchange."""
BATCH_8 = replace(STEMDL, name="STEMDL, batch 8", batch=8)
"""How much the assumed batch of one image decides."""
GROUPS = 8
"""Of STEMDL's tensors, one for each 55 MB."""


def request(
    model: Model,
    ranks: int,
    coordination: dict[str, Any],
    *,
    lag: int = 0,
    steps: int = STEPS,
    plane: Plane = NCCL,
    costs: Costs = SUMMIT,
) -> dict[str, Any]:
    """Steps of a model under a coordination: a training scenario.

    All ranks are one class. The network is one server that all-reduces a buffer in its latency and
    its bytes over the bandwidth.

    Args:
        model: Whose gradients.
        ranks: How many.
        coordination: As `schedule.coordination`, without the skew.
        lag: How many steps later gradients are applied.
        steps: How many steps; the first is not counted.
        plane: What sums a buffer.
        costs: Of requests and messages.
    """
    tensors = model.tensors
    moments = [round(1000 * at) for at in (0.0, *model.ready_us, model.compute_us)]
    nodes: list[dict[str, Any]] = []
    for i, (start, end) in enumerate(pairwise(moments)):
        if end > start:
            nodes.append({"compute": f"{end - start} ns"})
        if i < len(tensors):
            gradient = {"all_reduce": f"{tensors[i]} B", "over": "data", "background": True}
            nodes.append({**gradient, "name": f"t{i}", "tensor": len(tensors) - 1 - i})
    server = {
        "kind": "switch",
        "size": ranks,
        "links": 1,
        "bandwidth": plane.bandwidth,
        "latency": "0 ns",
        "in_network_reduction": True,
    }
    written = {
        "ranks": [{"rank": ranks}],
        "groups": {"data": ["rank"]},
        "steps": {"ranks": nodes},
    }
    return {
        "schema_version": 1,
        "fabric": {"name": "server", "dimensions": [server]},
        "workload": {
            "name": model.name,
            "model": {"steps": written},
            "iterations": steps,
            "exchange_slowdown": SLOWDOWN,
            "lag": lag,
        },
        "schedule": {
            "policy": "baseline",
            "chunks": 1,
            "composition": "merged",
            "tensor": {"policy": "fifo", "start_overhead": f"{plane.latency_ns(ranks)} ns"},
            "coordination": {**coordination, "skew": SKEW, "latency": costs.latency},
        },
        "network_model": "dims",
        "seed": 1,
    }


def steps(tree: dict[str, Any], progress: Progress | None = None) -> dict[str, float]:
    """Run what `request` gave.

    With a lag the last two iterations count: those of two are under way, each with its own entries
    in the caches, so that the first two iterations fill them.

    Args:
        tree: The scenario.
        progress: Told how far it is.

    Returns:
        `step_us`; `efficiency`, its computing without any exchange over that; `buffers` in a step,
        and for how long they are under way in it, `exchange_us`; `messages` of all ranks in it.
    """
    result = simulate(tree, progress=progress)
    talk = result.coordinators
    buffers = 0.0 if talk is None else talk.operations_per_step
    nodes = tree["workload"]["model"]["steps"]["steps"]["ranks"]
    computing = sum(int(node["compute"].removesuffix(" ns")) for node in nodes if "compute" in node)
    overhead = tree["schedule"]["tensor"]["start_overhead"].removesuffix(" ns")
    busy = result.dimensions[0].busy_fraction * result.step_time_us
    lagged = tree["workload"]["lag"] > 0
    step_us = sum(result.steps_us[-2:]) / 2 if lagged else result.step_time_us
    return {
        "step_us": step_us,
        "efficiency": computing / 1000 / step_us,
        "buffers": buffers,
        "exchange_us": busy + buffers * int(overhead) / 1000,
        "messages": 0.0 if talk is None else talk.messages / tree["workload"]["iterations"],
    }


RESNET_WAYS: dict[str, dict[str, Any]] = {
    "central": {"policy": "central", "cycle": CYCLE},
    "cached": {"policy": "cached", "cycle": CYCLE},
    "tree": {"policy": "tree", "cycle": CYCLE},
    "agreed": {"policy": "agreed"},
}
KNEE = (
    "rank 0 saturates where its work in a step is as long as the backward pass (table `rank_0`); "
    "the paper's picture drops beyond about 400. Missing: how much slower a core of a POWER9 is "
    "than the one that requests were measured on"
)
UNNAMED = "the paper's 2 times names no model; with ResNet-50's 161 tensors it would be this"
DOUBLE = (
    "the paper's model is not named with the claim; with STEMDL's 398 tensors of 6,000 ranks rank "
    "0 has several times as much to do in a step as a GPU that computes one image"
)
ASSUMED = (
    "the paper does not print STEMDL's batch and layers: with one image of 256x256 a GPU computes "
    "71 ms, too little to hide 220 M parameters; the row of batch 8 shows how much that decides. "
    "FLOPs are the preset's, at half of a V100's tensor cores"
)

LAGGED = "central, one step of lag"
TREE = "tree"
TREE_LAGGED = "tree, one step of lag"
"""At full size: the control plane of the effort that needed a step of lag (Kurth et al., SC'18)."""
STEMDL_WAYS: dict[str, dict[str, Any]] = {
    "central": {"policy": "central", "cycle": CYCLE},
    "cached": {"policy": "cached", "cycle": CYCLE},
    "cached, 1 ms": {"policy": "cached", "cycle": "1 ms"},
    "cached, 1 ms, grouped": {"policy": "cached", "cycle": "1 ms", "groups": GROUPS},
}
GROUPED, UNGROUPED = "cached, 1 ms, grouped", "cached, 1 ms"
"""Of one cycle time: the only difference is the groups."""
DOUBLED_RANKS = 6000
COMPARED = (400, 800, 1600)
"""At which what rank 0 has to do is compared."""
GROUPED_LAGGED = f"{GROUPED}, one step of lag"
FULL_WAYS: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    (TREE, {"policy": "tree", "cycle": CYCLE}, 0, 2),
    (TREE_LAGGED, {"policy": "tree", "cycle": CYCLE}, 1, 3),
    (GROUPED_LAGGED, STEMDL_WAYS[GROUPED], 1, 6),
)
"""Beside those of `STEMDL_WAYS`, at `FULL` ranks, with their steps of lag, and how many steps."""


def cases_of(*, full: bool, small: bool) -> dict[Case, dict[str, Any]]:
    """Return the scenarios of all runs.

    Args:
        full: Also 27,600 ranks.
        small: Only up to 800 ranks.
    """
    most = 800 if small else FULL
    asked = {
        Case(model.name, name, ranks): request(model, ranks, way)
        for model, ways, sizes in (
            (RESNET, RESNET_WAYS, RESNET_RANKS),
            (STEMDL, STEMDL_WAYS, STEMDL_RANKS),
        )
        for name, way in ways.items()
        for ranks in sizes
        if ranks <= most
    }
    central, cached = RESNET_WAYS["central"], RESNET_WAYS["cached"]
    asked[Case(RESNET.name, LAGGED, 800)] = request(RESNET, 800, central, lag=1)
    if not small:
        for name in ("central", "cached"):
            way = RESNET_WAYS[name]
            asked[Case(RESNET.name, name, DOUBLED_RANKS)] = request(RESNET, DOUBLED_RANKS, way)
    for costs in OTHERS:
        for ranks in COMPARED:
            if ranks <= most:
                name = f"central, {costs.name}"
                asked[Case(RESNET.name, name, ranks)] = request(RESNET, ranks, central, costs=costs)
    for plane in (MPI, HIERARCHICAL):
        name = f"cached, {plane.name}"
        asked[Case(RESNET.name, name, 800)] = request(RESNET, 800, cached, plane=plane)
    if not small:
        asked[Case(BATCH_8.name, GROUPED, DOUBLED_RANKS)] = request(
            BATCH_8, DOUBLED_RANKS, STEMDL_WAYS[GROUPED]
        )
    if full and not small:
        for name in (UNGROUPED, GROUPED):
            asked[Case(STEMDL.name, name, FULL)] = request(STEMDL, FULL, STEMDL_WAYS[name], steps=2)
        for name, way, lag, count in FULL_WAYS:
            asked[Case(STEMDL.name, name, FULL)] = request(STEMDL, FULL, way, lag=lag, steps=count)
    return asked


_SLOWER = {"central": 2.0, "tree": 4.0, "agreed": 10.0}
"""How many times as long a simulation takes as with `cached`, measured from 400 to 1,600 ranks."""


def _weight(case: Case, tree: dict[str, Any]) -> float:
    """About how long a run takes: every rank has its own coordinator for every tensor."""
    work = tree["workload"]
    nodes = len(work["model"]["steps"]["steps"]["ranks"])
    policy = tree["schedule"]["coordination"]["policy"]
    return case.ranks * nodes * int(work["iterations"]) * _SLOWER.get(policy, 1.0)


def run(
    *, full: bool = True, small: bool = False, progress: Progress | None = None
) -> Reproduction:
    """Compute the efficiencies and print them beside what is published.

    Args:
        full: Also 27,600 ranks, with the cache, which takes minutes.
        small: Only up to 800 ranks, for a look.
        progress: Told how much work is done and how much there is, in no unit.
    """
    asked = cases_of(full=full, small=small)
    results: Efficiencies = {}
    pieces = Pieces(progress, [_weight(case, tree) for case, tree in asked.items()])
    for case, tree in asked.items():
        results[case] = steps(tree, pieces.progress)
        pieces.next()
    picture = Picture(
        "efficiency",
        "Efficiency against ranks",
        "Compute time over step time. Above, ResNet-50 at batch 64; below, STEMDL.",
        partial(draw, results, {RESNET.name: RESNET_WAYS, STEMDL.name: STEMDL_WAYS}),
    )
    details = [_detail(results), _rank_zero(results)]
    return Reproduction("Horovod, NSDI'22", rows_of(results), NOTES, details, [picture])


def rows_of(results: Efficiencies) -> list[Row]:
    """Every number, those that are published first.

    Args:
        results: Of the runs.
    """

    def percent(model: Model, name: str, ranks: int) -> float | None:
        found = results.get(Case(model.name, name, ranks))
        return None if found is None else 100 * found["efficiency"]

    rows = []
    central, cached = (
        results.get(Case(STEMDL.name, name, DOUBLED_RANKS)) for name in ("central", GROUPED)
    )
    if central is not None and cached is not None:
        gain = central["step_us"] / cached["step_us"]
        case = f"STEMDL, cached and grouped over central, {DOUBLED_RANKS} ranks"
        rows.append(Row(case, gain, number(2.0, ABSTRACT), "times", why=DOUBLE))
    central, cached = (
        results.get(Case(RESNET.name, name, DOUBLED_RANKS)) for name in ("central", "cached")
    )
    if central is not None and cached is not None:
        gain = central["step_us"] / cached["step_us"]
        case = f"ResNet-50, cached over central, {DOUBLED_RANKS} ranks"
        rows.append(Row(case, gain, None, "times", why=UNNAMED))
    rows += claims.near_ideal(percent, {RESNET.name: RESNET_RANKS, STEMDL.name: STEMDL_RANKS})
    whole = results.get(Case(STEMDL.name, GROUPED, FULL))
    if whole is not None:
        case = f"STEMDL, {GROUPED}, {FULL} ranks"
        scaling = 100 * whole["efficiency"]
        exaops = FULL * STEMDL.flops / whole["step_us"] / 1e12
        sustained = number(1.54, ABSTRACT)
        rows.append(Row(f"{case}, scaling", scaling, number(93.0, ABSTRACT), "%", why=ASSUMED))
        rows.append(Row(f"{case}, sustained", exaops, sustained, "EFLOP/s", why=ASSUMED))
        rows.append(claims.peak(f"{case}, peak", exaops / whole["efficiency"]))
    knee = [percent(RESNET, "central", ranks) for ranks in (400, 800)]
    if None not in knee:
        lost = float(knee[0] or 0) - float(knee[1] or 0)
        case = "ResNet-50, central, lost from 400 to 800 ranks"
        rows.append(Row(case, lost, None, "points", why=KNEE))
    for name, lagged in ((TREE, TREE_LAGGED), (GROUPED, GROUPED_LAGGED)):
        without, later = (percent(STEMDL, one, FULL) for one in (name, lagged))
        if without is not None and later is not None:
            case = f"STEMDL, {name}, gain of a step of lag, {FULL} ranks"
            rows.append(Row(case, later - without, None, "points"))
    for ranks in (DOUBLED_RANKS, FULL):
        grouped, alone = (percent(STEMDL, name, ranks) for name in (GROUPED, UNGROUPED))
        if grouped is not None and alone is not None:
            case = f"STEMDL, gain of groups over none, {ranks} ranks"
            rows.append(Row(case, grouped - alone, None, "points"))
    wanted = {(RESNET.name, ranks) for ranks in (400, 800, 1600, 3200)}
    wanted |= {(STEMDL.name, ranks) for ranks in (1536, DOUBLED_RANKS, FULL)}
    wanted |= {(BATCH_8.name, DOUBLED_RANKS)}
    rows += [
        Row(
            f"{case.model}, {case.way}, {case.ranks} ranks, efficiency",
            100 * result["efficiency"],
            None,
            "%",
        )
        for case, result in results.items()
        if (case.model, case.ranks) in wanted
    ]
    return rows + claims.apart()


def _detail(results: Efficiencies) -> Detail:
    header = ("model", "coordination", "ranks", "efficiency_%", "step_us", "buffers", "exchange_us")
    rows: list[Cells] = [
        (
            case.model,
            case.way,
            case.ranks,
            100 * one["efficiency"],
            one["step_us"],
            one["buffers"],
            one["exchange_us"],
        )
        for case, one in results.items()
    ]
    return Detail("efficiencies", header, rows)


def _rank_zero(results: Efficiencies) -> Detail:
    """What rank 0 does in a step of ResNet-50 without the cache, beside the published curve."""
    header = (
        "costs",
        "ranks",
        "published",
        "efficiency_%",
        "cached_%",
        "cycles",
        "network_ms",
        "parse_ms",
        "queue_ms",
        "of_backward_%",
    )
    backward_us = RESNET.compute_us * 2 / 3
    rows: list[Cells] = []
    for costs in (SUMMIT, *OTHERS):
        way = "central" if costs == SUMMIT else f"central, {costs.name}"
        for ranks in RESNET_RANKS[1:]:
            found = results.get(Case(RESNET.name, way, ranks))
            if found is None:
                continue
            cached = results[Case(RESNET.name, "cached", ranks)]
            done = load(costs, ranks=ranks, tensors=len(RESNET.tensors), messages=found["messages"])
            rows.append(
                (
                    costs.name,
                    ranks,
                    "near ideal" if ranks <= 400 else "drops",
                    100 * found["efficiency"],
                    100 * cached["efficiency"],
                    done.cycles,
                    done.network_us / 1e3,
                    done.parse_us / 1e3,
                    done.queue_us / 1e3,
                    100 * done.whole_us / backward_us,
                )
            )
    return Detail("rank_0", header, rows)


NOTES = [
    "predicted: every rank's state machine in virtual time, one model of latency for all rows",
    (
        "the paper's curves are pictures without numbers in our copy: near ideal to 800 ranks with "
        "the cache, a rapid drop beyond about 400 without; these rows are not judged"
    ),
    (
        "a request costs rank 0 0.68 us, measured with Horovod's own messages, without a thread "
        "cache of the allocator, as on Summit; MPI's work for a message is 1.1 us a side, as "
        "measured by Netgauge. Table `rank_0` has what each comes to, and other costs beside it"
    ),
    (
        "assumed, for no source was at hand: STEMDL's images of 256x256, one a GPU, at half of a "
        "V100's tensor cores"
    ),
    "not modelled: noise of the hosts, input, allocation of buffers",
]
