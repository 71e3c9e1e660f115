"""`allrail simulate`: one scenario, or an ASTRA-sim case as its files describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from allrail.base.errors import InputError
from allrail.base.units import plain_number, show_count
from allrail.cli import astra_sim as astra
from allrail.cli import options
from allrail.cli.function import function
from allrail.results.result import CollectivesResult
from allrail.results.traffic_result import TrafficResult
from allrail.results.training_result import TrainingResult

if TYPE_CHECKING:
    from allrail.results.result import Result
    from allrail.scenario import Scenario


@click.command()
@click.argument("scenario", metavar="[FILE]", type=options.Input(), required=False)
@options.sets
@options.plugin
@click.option(
    "--world", metavar="NAME", help="Network model, such as `links`; short for `--set world=NAME`"
)
@click.option(
    "--plan", type=options.Input(), metavar="PLAN", help="Run this plan instead of planning"
)
@options.as_json
@options.out
@options.timeline
@options.cache
@click.option(
    "--what-if",
    multiple=True,
    callback=options.listed,
    metavar="A,B,...",
    help="Of a workload, also simulate the step under assumptions: `infinite_bandwidth`, "
    "`ideal_schedule`, `dim1_x2`, `no_straggler` or `all`",
)
@click.option("--astra-sim", is_flag=True, help="Read ASTRA-sim's files instead of FILE")
@astra.files
@click.option(
    "--write-scenario",
    type=options.Output(),
    metavar="FILE",
    help="Also write the case as a scenario",
)
@function("simulate", doing="simulating", counts=False, folder="out", check=options.slices)
def command(result: Result, *, astra_sim: bool) -> None:
    """Simulate the scenario in FILE, or an ASTRA-sim case with --astra-sim."""
    from allrail.cli import traffic, training

    if isinstance(result, TrainingResult):
        training.show_step(result, whole=not astra_sim)
    if result.astra_sim is not None:
        astra.show_columns(result.astra_sim)
    if isinstance(result, CollectivesResult):
        if astra_sim:
            _predicted(result.scenario, result)
        else:
            show(result.scenario, result)
    elif isinstance(result, TrafficResult):
        traffic.show(result.scenario, result)
    elif astra_sim:
        training.predicted([cast("TrainingResult", result)])


def show(scenario: Scenario, result: CollectivesResult) -> None:
    """Print a result: the totals, then one line a dimension.

    Args:
        scenario: What was simulated.
        result: What came out.
    """
    from allrail.cli import output

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
    _predicted(scenario, result)


def _agreed(result: CollectivesResult) -> list[tuple[str, str]]:
    """What ranks said before collectives started."""
    from allrail.cli import output

    talk = result.coordinators
    return [] if talk is None else [("control_plane", output.talk(talk.messages, talk.bytes))]


def _tell_measured(scenario: Scenario) -> None:
    """Say what the library takes that a fabric was calibrated from: another schedule."""
    from allrail.base.units import show_number
    from allrail.cli import output
    from allrail.measure.calibrate.nccl.beside import nccl_of

    if getattr(scenario.fabric, "library", None) is None:
        return
    try:
        one = nccl_of(scenario)
    except InputError:
        return  # Several collectives, or one that the tables are not of.
    output.note(
        f"as the tables were measured it takes {one.time_us:.3f} us, within"
        f" {show_number(100 * (one.error or 0), 2)} %: `allrail expect`"
    )


def _predicted(scenario: Scenario, result: CollectivesResult) -> None:
    from allrail.cli import output
    from allrail.results.network_accuracy import network_error

    output.predicted(
        [result.world],
        calibrated=result.calibrated,
        below_bound=result.below_physical_bound,
        simulated_as=[result.simulated_as, result.counted, result.behind_baseline],
        errors=[(result.time_us, result.error_low_us, result.error_high_us)],
        network=[network_error(scenario)],
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
