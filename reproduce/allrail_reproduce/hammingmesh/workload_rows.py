"""The workloads' numbers as rows and tables: times, exposed parts, orders, savings (Fig. 15).

    overhead = iteration - compute
    saving of one network over another = cost ratio x overhead ratio

Costs are those of the small clusters, as printed in Table II.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from allrail_reproduce.hammingmesh.published import (
    COST_FIGURE,
    HX2,
    HX4,
    HYPERX,
    TORUS,
    TREE,
    TREE_50,
    TREE_75,
    WORKLOADS,
)
from allrail_reproduce.hammingmesh.workloads import (
    COSMOFLOW,
    COSMOFLOW_PUBLISHED,
    COSMOFLOW_TEXT_MS,
    DLRM,
    GPT3,
    MOE,
    NETWORKS,
    RESNET,
    RESNET_SIZES,
    SAME,
    Job,
    WorkloadCase,
    cost_musd,
)
from allrail_reproduce.published import Published, less_than, more_than, number, span
from allrail_reproduce.rows import Cells, Detail, Row

Found = Mapping[WorkloadCase, Mapping[str, Any]]

NOT_EXPLAINED = "not explained yet"
PART = 0.05
"""Of a published exposed time; to it comes half of the last printed digit, of both times."""
WORST = 2.5
"""ResNet-152's overhead, per cent: "less than", in the worst case."""
SAVINGS_PUBLISHED = {(HX4, TREE_75): 4.1, (HX4, TREE): 7.8}
"""ResNet-152, "more than"."""

COSMOFLOW_WHY = (
    "the composition's compute adds up to 93.6 ms, where the text says 44.3 ms. Halos cross 8 or "
    "16 rows, as rank r is NPU r, and on a torus all of them share their columns' cables; with the "
    "shards of a replica side by side a torus has 1.1 % and an Hx4Mesh 1.2 %: the published "
    "overheads lie between the two placements"
)


def exposed_ms(case: WorkloadCase, result: Mapping[str, Any]) -> float:
    """Return the time of an iteration beyond the compute on its slowest rank.

    Args:
        case: What was simulated.
        result: What came out.
    """
    return float(result["step_time_us"]) / 1e3 - case.job.compute_ms


def rows(found: Found) -> list[Row]:
    """Return every number beside the published one.

    Args:
        found: The results.
    """
    rows: list[Row] = []
    for case, result in found.items():
        if case.job is COSMOFLOW:
            rows += _cosmoflow(case, result)
        elif case.job in RESNET_SIZES:
            rows.append(_worst(case, result))
        else:
            rows.append(_exposed(case, result))
    for job in (GPT3, MOE):
        rows += _order(job, found)
    return rows + _savings(found)


def computes() -> list[Row]:
    """Return what each preset computes beside the compute that the text prints."""
    stated = {job: job.printed_compute_ms for job in (RESNET, GPT3, MOE)}
    stated[COSMOFLOW] = COSMOFLOW_TEXT_MS
    how = "the authors' published inputs, on the slowest rank"
    return [
        Row(
            f"{job.name}, compute",
            job.compute_ms,
            number(float(printed), WORKLOADS),
            "ms",
            within=0.01,
            how=how,
            why=COSMOFLOW_WHY if job is COSMOFLOW else "",
        )
        for job, printed in stated.items()
        if printed is not None
    ]


def _how(case: WorkloadCase) -> str:
    columns, rows = case.job.grid
    return f"{case.network_model}, {columns}x{rows} NPUs"


def _published(job: Job, network: str) -> Published:
    """What a printed iteration exposes: less the compute that is printed, or that of its inputs."""
    low, high = job.printed(network)
    told = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    compute = job.printed_compute_ms
    if compute is None:
        compute, whose = job.compute_ms, " of the authors' inputs: the text prints none"
    else:
        whose = " of compute"
    source = f"{WORKLOADS}: {told} ms less {compute:g}{whose}"
    return span(round(low - compute, 3), round(high - compute, 3), source)


def _exposed(case: WorkloadCase, result: Mapping[str, Any]) -> Row:
    ours, published = exposed_ms(case, result), _published(case.job, case.network)
    near = ours - published.beyond(ours) if published.number is None else published.number
    # Two printed times, each rounded.
    rounding = 0.005 if case.job is DLRM else 0.1
    within = PART * abs(near) + rounding
    beyond = abs(published.beyond(ours))
    return Row(
        f"{case.job.name}, {case.network}, exposed"
        + ("" if case.network_model == "flows" else f", {case.network_model}"),
        ours,
        published,
        "ms",
        within=within,
        absolute=True,
        digits=3 if case.job is DLRM else 2,
        how=_how(case),
        why=NOT_EXPLAINED if beyond > within else "",
        made=case.job.made(case.network),
    )


def _worst(case: WorkloadCase, result: Mapping[str, Any]) -> Row:
    """ResNet-152 on fewer NPUs: only the worst case is printed."""
    return Row(
        f"{case.job.name}, {case.network}, overhead",
        100 * exposed_ms(case, result) / case.job.compute_ms,
        less_than(WORST, WORKLOADS),
        "%",
        within=0.0,
        absolute=True,
        how=_how(case),
        made=case.job.made(case.network),
    )


def _cosmoflow(case: WorkloadCase, result: Mapping[str, Any]) -> list[Row]:
    exposed = exposed_ms(case, result)
    low, high = COSMOFLOW_PUBLISHED[case.network]
    return [
        Row(
            f"CosmoFlow, {case.network}, overhead on {compute:g} ms",
            100 * exposed / compute,
            Published(low, high, WORKLOADS),
            "%",
            within=0.05,
            absolute=True,
            how=_how(case),
            why=COSMOFLOW_WHY,
            made=case.job.made(case.network),
        )
        for compute in (round(case.job.compute_ms, 1), COSMOFLOW_TEXT_MS)
    ]


def _order(job: Job, found: Found) -> list[Row]:
    """Pairs of networks that ours puts the other way round."""
    made: list[Row] = []
    for network_model in ("flows", "packets"):
        ours = {
            case.network: result["step_time_us"] / 1e3
            for case, result in found.items()
            if case.job is job and case.network_model == network_model
        }
        if len(ours) < len(NETWORKS):
            continue
        reversed_, ties = [], []
        for one, other in combinations(NETWORKS, 2):
            (low, high), (next_low, next_high) = job.printed(one), job.printed(other)
            if low <= next_high and next_low <= high:  # printed alike, or not told apart
                continue
            if abs(ours[one] / ours[other] - 1) < SAME:
                ties.append(f"{one} = {other}")
            elif ours[one] > ours[other]:
                reversed_.append(f"{one} > {other}")
        said = f"{network_model}; ties: {', '.join(ties)}" if ties else network_model
        said += f"; reversed: {', '.join(reversed_)}" if reversed_ else ""
        case = f"{job.name}, pairs of networks in the wrong order, {network_model}"
        made.append(
            Row(
                case,
                len(reversed_),
                None,
                "pairs",
                digits=0,
                how=said,
                made=job.made(TREE),
            )
        )
    return made


def _savings(found: Found) -> list[Row]:
    """Claims of Fig. 15 that the text prints."""
    table = {(one, other): ours for job, one, other, ours, _ in _saved(found) if job is RESNET}
    return [
        Row(
            f"ResNet-152, saving of {one} over {other}",
            table[one, other],
            more_than(published, COST_FIGURE),
            "x",
            within=0.0,
            made=RESNET.made(TREE),
            how="flows; cost ratio x overhead ratio, small clusters",
            why="the rule with the printed times gives "
            f"{_printed(RESNET, one, other):.2f}; ours has the overheads above",
        )
        for (one, other), published in SAVINGS_PUBLISHED.items()
        if (one, other) in table
    ]


def _printed(job: Job, one: str, other: str) -> float | None:
    """The rule with the printed times."""
    if one not in job.published_ms:
        return None
    overheads = [sum(job.printed(name)) / 2 - job.compute_ms for name in (other, one)]
    return cost_musd(other) / cost_musd(one) * overheads[0] / overheads[1]


def _saved(found: Found) -> list[tuple[Job, str, str, float, float | None]]:
    saved = []
    for job in (RESNET, COSMOFLOW, DLRM, GPT3, MOE):
        exposed = {
            case.network: result["step_time_us"] / 1e3 - job.compute_ms
            for case, result in found.items()
            if case.job is job and case.network_model == "flows"
        }
        for one in (HX2, HX4):
            for other in (TREE, TREE_50, TREE_75, HYPERX, TORUS):
                if one in exposed and other in exposed:
                    ratio = cost_musd(other) / cost_musd(one)
                    ours = ratio * exposed[other] / exposed[one]
                    saved.append((job, one, other, ours, _printed(job, one, other)))
    return saved


def details(found: Found) -> list[Detail]:
    """Return Fig. 15 as a table.

    Args:
        found: The results.
    """
    header = ("workload", "network", "over", "ours", "from_printed_times")
    table: list[Cells] = [
        (job.name, one, other, ours, printed) for job, one, other, ours, printed in _saved(found)
    ]
    return [Detail("savings", header, table)]
