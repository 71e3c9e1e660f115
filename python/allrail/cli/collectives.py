"""How `simulate` and `compare` show collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.base import late
from allrail.base.axes import short_of
from allrail.base.errors import InputError
from allrail.base.units import plain_number, show_count, show_number
from allrail.cli import output
from allrail.cli.astra_sim import show_columns
from allrail.results.network_accuracy import network_error

if TYPE_CHECKING:
    from allrail.measure.comparison import Comparison
    from allrail.results.result import CollectivesResult
    from allrail.scenario import Scenario

NCCL = "nccl"
"""The policy whose row is NCCL's own time, which nothing here schedules."""


def show(result: CollectivesResult) -> None:
    """Print a result: the totals, then one line a dimension.

    Args:
        result: What came out.
    """
    scenario = result.scenario
    collectives = ", ".join(f"{one.kind} {one.size}" for one in scenario.collective)
    fastest = f"{100 * (result.time_us / result.bound_time_us - 1):.2f}"
    pairs = [
        ("fabric", f"{scenario.fabric.name} ({result.npus:,} NPUs)"),
        ("collective", collectives),
        ("schedule", f"{result.policy}, {result.order}, {show_count(result.chunks, 'chunk')}"),
        ("time_us", f"{result.time_us:.3f}"),
        ("ideal_time_us", f"{result.ideal_time_us:.3f}"),
        ("bound_time_us", f"{result.bound_time_us:.3f} (the time is {fastest} % above it)"),
        ("utilisation", f"{output.percent(result.utilisation)} %"),
        *_bandwidths(result),
        ("bytes_per_npu", f"{result.bytes_per_npu:.0f}"),
        *_agreed(result),
    ]
    if result.below_physical_bound or result.utilisation is None:
        pairs = [pair for pair in pairs if pair[0] not in ("utilisation", "bound_time_us")]
    output.pairs(pairs)
    output.gap()
    framed = any(dimension.line_rate_gbps is not None for dimension in result.dimensions)
    output.table(
        [
            "dimension",
            "kind",
            "size",
            "npu_GB/s",
            *(["line_GB/s"] if framed else []),
            "algorithm",
            "bytes_per_npu",
            *(["header_bytes"] if framed else []),
            "utilisation_%",
            "busy_%",
        ],
        [
            [
                dimension.name,
                dimension.kind,
                str(dimension.size),
                plain_number(dimension.bandwidth_gbps / 8, 6),
                *(
                    [plain_number((dimension.line_rate_gbps or dimension.bandwidth_gbps) / 8, 6)]
                    if framed
                    else []
                ),
                dimension.algorithm,
                f"{dimension.bytes_per_npu:.0f}",
                *([f"{dimension.header_bytes_per_npu:.0f}"] if framed else []),
                output.percent(dimension.utilisation),
                output.percent(dimension.busy_fraction),
            ]
            for dimension in result.dimensions
        ],
    )
    _tell_measured(scenario)
    _predicted(result)


def show_case(result: CollectivesResult) -> None:
    """Print a case of ASTRA-sim's files in its columns.

    Args:
        result: What came out.
    """
    show_columns(result)
    _predicted(result)


def show_comparison(comparison: Comparison) -> None:
    """Print one line a variant.

    Args:
        comparison: The variants; the first is what the others are compared with.
    """
    rows, failed, beside = comparison.compared, comparison.failed, comparison.beside
    varied = list(rows[0].sets)
    header = list(map(short_of, varied))
    if "schedule.policy" not in varied:
        header.append("policy")
    if "schedule.order" not in varied:
        header.append("order")
    header += ["time_us", "speedup", "utilisation_%", "above_bound_%"]
    lines = []
    for row in rows:
        result = row.result
        line = [str(value).replace(" ", "") for value in row.sets.values()]
        if "schedule.policy" not in varied:
            line.append(result.policy)
        if "schedule.order" not in varied:
            line.append(result.order)
        above = result.time_us / result.bound_time_us - 1
        line += [
            f"{result.time_us:.3f}",
            f"{row.speedup:.3f}",
            output.percent(result.utilisation),
            "-" if result.below_physical_bound else output.percent(above),
        ]
        lines.append(line)
    for row, one in beside:
        sets = {
            **row.sets,
            "schedule.policy": NCCL,
            "schedule.order": one.name,
        }
        hidden = [path for path in varied if path.startswith("schedule") and path not in sets]
        line = ["-" if path in hidden else str(sets[path]).replace(" ", "") for path in varied]
        line += [
            str(sets[path]) for path in ("schedule.policy", "schedule.order") if path not in varied
        ]
        above = one.time_us / row.result.bound_time_us - 1
        line += [
            f"{one.time_us:.3f}",
            f"{comparison.speedup_of(row, one):.3f}",
            "-",
            output.percent(above) if above >= 0 else "-",
        ]
        lines.append(line)
    output.rows(header, lines, failed)
    within = [one.error for _, one in beside if one.error is not None]
    if within:
        output.note(
            "nccl: as the tables that the fabric is calibrated from, within"
            f" {show_number(100 * max(within), 2)} %"
        )
    if len(within) < len(beside):
        output.note("nccl: by the figures of NCCL's own tuner; its order is algorithm and protocol")
    output.predicted(
        [row.result.network_model for row in rows],
        calibrated=all(row.result.calibrated for row in rows),
        below_bound=any(row.result.below_physical_bound for row in rows),
        simulated_as=[
            told for row in rows for told in (row.result.simulated_as, row.result.counted)
        ],
        errors=[
            (one.time_us, one.error_low_us, one.error_high_us)
            for one in (row.result for row in rows)
        ],
        network=[network_error(row.scenario) for row in rows],
    )


def _agreed(result: CollectivesResult) -> list[tuple[str, str]]:
    """What ranks said before collectives started."""
    talk = result.coordinators
    return [] if talk is None else [("control_plane", output.talk(talk.messages, talk.bytes))]


def _tell_measured(scenario: Scenario) -> None:
    """Say what the library takes that a fabric was calibrated from: another schedule."""
    if getattr(scenario.fabric, "library", None) is None:
        return
    try:
        one = late.call("measured collective", scenario)
    except InputError:
        return  # Several collectives, or one that the tables are not of.
    output.note(
        f"as the tables were measured it takes {one.time_us:.3f} us, within"
        f" {show_number(100 * (one.error or 0), 2)} %: `allrail expect`"
    )


def _predicted(result: CollectivesResult) -> None:

    output.predicted(
        [result.network_model],
        calibrated=result.calibrated,
        below_bound=result.below_physical_bound,
        simulated_as=[result.simulated_as, result.counted, result.behind_baseline],
        errors=[(result.time_us, result.error_low_us, result.error_high_us)],
        network=[network_error(result.scenario)],
    )


def _bandwidths(result: CollectivesResult) -> list[tuple[str, str]]:
    """Of the only collective; several have a line each."""
    if result.algbw_GBps is None or result.busbw_GBps is None:
        return [
            (one.name, f"{one.start_us:.3f} to {one.finish_us:.3f} us, {one.algbw_GBps:.3f} GB/s")
            for one in result.collectives
        ]
    return [
        ("algbw_GBps", f"{result.algbw_GBps:.3f}"),
        ("busbw_GBps", f"{result.busbw_GBps:.3f}"),
    ]
