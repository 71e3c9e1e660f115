"""How `simulate` and `compare` show traffic on graph fabrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.base.units import show_count, show_number
from allrail.cli import output
from allrail.results.network_accuracy import network_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allrail.measure.comparison import Comparison
    from allrail.results.traffic_result import Distribution, TrafficResult


def show_comparison(comparison: Comparison) -> None:
    """Print variants of traffic side by side.

    Args:
        comparison: Those.
    """
    rows = comparison.compared
    varied = list(rows[0].sets)
    header = [*varied, "time_us", "speedup", "share_%", "simulated"]
    output.rows(
        header,
        [
            [
                *(str(value).replace(" ", "") for value in row.sets.values()),
                f"{row.result.time_us:.3f}",
                f"{row.speedup:.3f}",
                output.percent(row.result.share_of_injection),
                _simulated(row.result),
            ]
            for row in rows
        ],
        comparison.failed,
    )
    _notes([row.result for row in rows])


def show(result: TrafficResult) -> None:
    """Print a result: what was sent, how long it took, what was built.

    Args:
        result: What came out.
    """
    scenario, built = result.scenario, result.built
    size = scenario.traffic.size if scenario.traffic is not None else None
    what = [result.pattern, *([size] if size else [])]
    what += [text for text in (result.algorithm, _simulated(result)) if text and text != "all"]
    planes = f"{result.planes} plane" + ("s" if result.planes > 1 else "")
    pairs = [
        ("fabric", f"{scenario.fabric.name} ({result.npus:,} NPUs, {planes})"),
        ("traffic", ", ".join(what)),
        ("time_us", f"{result.time_us:.3f}"),
        ("lower_bound_us", f"{result.lower_bound_time_us:.3f}"),
        ("share_of_injection", f"{output.percent(result.share_of_injection)} %"),
    ]
    if result.share_of_optimum is not None:
        pairs.append(("share_of_optimum", f"{output.percent(result.share_of_optimum)} %"))
    pairs += [
        ("injection", f"{show_number(result.injection_gbps, 6)} Gb/s per NPU"),
        ("routing", str(built["routing"])),
    ]
    if result.npu_bandwidth_gbps is not None:
        pairs.append(("npu_bandwidth", _distribution(result.npu_bandwidth_gbps, "Gb/s")))
    if result.message_latency_us is not None:
        pairs.append(("message_latency", _distribution(result.message_latency_us, "us")))
    if result.packets is not None:
        pairs += [
            ("packets", f"{result.packets:,} of {built['packet_bytes']:,} B"),
            ("packet_hops", f"{result.packet_hops:,}"),
            (
                "buffers",
                f"{built['buffer_bytes']:,} B a port, {show_count(built['channels'], 'channel')}",
            ),
        ]
    output.pairs(pairs)
    _notes([result])


def _simulated(result: TrafficResult) -> str:
    if result.phases_simulated is not None and result.phases_simulated != result.phases:
        return f"{result.phases_simulated}_of_{result.phases}_phases"
    if result.steps_simulated is not None and result.steps_simulated != result.steps:
        return f"{result.steps_simulated}_of_{result.steps}_steps"
    if result.segments_simulated is not None and result.segments_simulated != result.segments:
        return f"{result.segments_simulated}_of_{result.segments}_segments"
    return "all"


def _distribution(values: Distribution, unit: str) -> str:
    named = {"min": values.min, "1 %": values.p1, "median": values.median}
    named |= {"99 %": values.p99, "mean": values.mean}
    return ", ".join(f"{name} {show_number(one, 6)}" for name, one in named.items()) + f" {unit}"


def _notes(results: Sequence[TrafficResult]) -> None:
    """What was left out, once each; then where the numbers come from."""
    for text in dict.fromkeys(text for one in results for text in one.notes):
        output.note(text)
    output.predicted(
        [one.network_model for one in results],
        calibrated=all(one.calibrated for one in results),
        simulated_as=[one.simulated_as for one in results],
        network=[network_error(one.scenario) for one in results],
    )
