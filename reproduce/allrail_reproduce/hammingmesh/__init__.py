"""The numbers of HammingMesh (SC'22): Table II, its figures of bandwidth, its claims.

What can be counted is counted; traffic runs in `flows`, and on the small clusters in `packets` too.
Every number says what it was computed with. Results are kept on disk as they come.
"""

from __future__ import annotations

from typing import Any

from allrail.simulation.graphs import measure
from allrail_reproduce.hammingmesh import allocation, claims, gpt3, job_sizes, making_room
from allrail_reproduce.hammingmesh.allocation import Allocation, PlaceCase
from allrail_reproduce.hammingmesh.cases import Scope, TrafficCase, cases_of
from allrail_reproduce.hammingmesh.curves import Curves
from allrail_reproduce.hammingmesh.table_two import Results, TableTwo, how
from allrail_reproduce.kept import Kept
from allrail_reproduce.pictures import hammingmesh
from allrail_reproduce.rows import Cells, Detail, Picture, Progress, Reproduction
from allrail_reproduce.work import Simulate, carry_out, core_simulate

__all__ = ["Scope", "run"]

TITLE = "HammingMesh, SC'22"


def run(
    scope: Scope | None = None,
    *,
    cache: bool = True,
    jobs: int | None = None,
    simulate: Simulate = core_simulate,
    progress: Progress | None = None,
) -> Reproduction:
    """Compute the paper's numbers.

    Args:
        scope: How much of them.
        cache: Whether results that are kept on disk are taken; new ones are kept in any case.
        jobs: How many simulations run at once; as many as there are cores if None.
        simulate: Simulates one scenario.
        progress: Told how much work is done and how much there is.
    """
    scope = scope or Scope()
    measures = measured(scope)
    placed = allocation.cases_of(scope.sizes) if scope.jobs else []
    moving = making_room.cases_of(scope.sizes) if scope.jobs else []
    cases: list[TrafficCase | PlaceCase] = [*cases_of(scope), *placed, *moving]
    found = carry_out(
        cases,
        simulate=simulate,
        kept=Kept(read=cache),
        jobs=jobs,
        progress=progress,
    )
    results = {case: found[case] for case in found if isinstance(case, TrafficCase)}
    table = TableTwo(scope, results, measures)
    rows, details = [*table.rows(), gpt3.row(), *claims.rows(jobs=scope.jobs)], table.details()
    if scope.curves:
        curves = Curves(scope, results)
        rows += curves.rows()
        details += curves.details()
    more: list[Picture] = []
    if scope.jobs:
        jobs_placed = Allocation(scope.sizes, {case: found[case] for case in placed})
        rows += jobs_placed.rows()
        details += jobs_placed.details()
        room = making_room.MakingRoom({case: found[case] for case in moving})
        rows += room.rows()
        details += room.details()
        details.append(job_sizes.detail(allocation.MIXES))
        more = [*jobs_placed.pictures(), job_sizes.picture(details[-1])]
    details.append(_cases(results))
    pictures = hammingmesh.pictures({detail.name: detail for detail in details}) + more
    return Reproduction(TITLE, rows, _notes(scope, results), details, pictures)


def measured(scope: Scope) -> dict[str, dict[str, Any]]:
    """Also the nonblocking fat tree's, which savings are relative to."""
    return {cluster.fabric: measure(cluster.fabric) for cluster in scope.clusters}


def _cases(results: Results) -> Detail:
    """One row a simulation."""
    start = ("fabric", "pattern", "network_model", "size", "algorithm", "how", "time_us")
    end = ("share_of_injection", "packets", "packet_hops", "wall_ms")
    rows: list[Cells] = [
        (
            case.cluster.fabric,
            case.pattern,
            case.network_model,
            case.size,
            case.algorithm,
            how(case, result),
            result["time_us"],
            result["share_of_injection"],
            result.get("packets"),
            result.get("packet_hops"),
            result["host"]["wall_ms"],
        )
        for case, result in results.items()
    ]
    return Detail("simulations", (*start, *end), rows)


def _notes(scope: Scope, results: Results) -> list[str]:
    notes = [
        "all fabrics are uncalibrated",
        "an all-to-all's share is of what an NPU injects",
        "an all-reduce's share is of the most that is possible without reduction in the network",
        "one plane is simulated, as all are alike; sizes are over all planes",
    ]
    if "packets" in scope.network_models and "large" in scope.sizes:
        notes.append("large clusters run in `flows` only: too large for `packets`")
    sampled = {
        (result["phases_simulated"], result["phases"], case.network_model)
        for case, result in results.items()
        if case.pattern == "all_to_all" and result["phases_simulated"] < result["phases"]
    }
    if sampled:
        notes.append("all-to-alls are samples of their shift phases where `how` says so")
    if any(case.pattern == "all_reduce" for case in results):
        notes.append(
            "all-reduces skip steps once they are steady: of L alike steps 2K are simulated and "
            "(L - 2K) (t_2K - t_K) / K is added, K = 8"
        )
    if scope.curves and "small" in scope.sizes:
        notes.append("Fig. 11, 12, 13 and 17 are pictures without numbers: ours stand alone")
    return notes
