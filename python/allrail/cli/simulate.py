"""`allrail simulate`: one scenario, or an ASTRA-sim case as its files describe it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from allrail.base.errors import InputError
from allrail.base.units import plain_number, show_count
from allrail.cli import astra_sim as astra
from allrail.cli import options

if TYPE_CHECKING:
    from allrail.formats.astra_sim import AstraCase
    from allrail.results.result import CollectivesResult
    from allrail.scenario import Scenario


@click.command()
@click.argument("file", type=options.Input(), required=False)
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
    "assumptions",
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
def command(
    *,
    file: Path | None,
    sets: tuple[str, ...],
    world: str | None,
    plan: Path | None,
    as_json: bool,
    out: Path | None,
    timeline: bool,
    cache: bool,
    assumptions: tuple[str, ...],
    astra_sim: bool,
    write_scenario: Path | None,
    **foreign: Any,
) -> None:
    """Simulate the scenario in FILE, or an ASTRA-sim case with --astra-sim."""
    from allrail.cli import folders, output, traffic, training
    from allrail.scenario import load_scenario
    from allrail.simulation import api

    given = astra.given(foreign)
    case = None
    if astra_sim:
        _refuse_both(file)
        case = astra.read(given, world, verb="allrail simulate --astra-sim")
        scenario = load_scenario(case.scenario, sets=sets)
    else:
        _refuse_foreign(given, file=file, write_scenario=write_scenario)
        worlds = () if world is None else (f"world={world}",)
        scenario = load_scenario(file or "", sets=(*sets, *worlds))
    slices = options.slices(out=out, timeline=timeline)
    if scenario.workload is not None:
        _refuse_plan(plan, "a workload plans every collective of the step itself")
        step = training.run(
            scenario,
            assumptions=assumptions,
            as_json=as_json,
            out=out,
            table=case is None,
            slices=slices,
        )
        if case is not None:
            _after(case, step.to_dict(), as_json=as_json, path=write_scenario, out=out)
            if not as_json:
                training.predicted([step])
        return
    _refuse_assumptions(assumptions)
    if scenario.traffic is not None:
        _refuse_plan(plan, "traffic has no plan")
        traffic.run(scenario, as_json=as_json, out=out)
        return
    with output.Progress("simulating") as progress:
        told = api.simulate(scenario, plan=plan, timeline=slices, cache=cache, progress=progress)
    result = cast("CollectivesResult", told)
    if out is not None:
        folders.write(out, results={result.policy: result}, scenarios={result.policy: scenario})
    if case is not None:
        _after(case, result.to_dict(), as_json=as_json, path=write_scenario, out=out)
    if as_json:
        output.print_json(result.to_dict(timeline=False))
    elif case is not None:
        _predicted(scenario, result)
    else:
        show(scenario, result)
    if out is not None and not as_json:
        folders.tell(out, left_out=[result.timeline_left_out])


def _after(
    case: AstraCase, result: dict[str, Any], *, as_json: bool, path: Path | None, out: Path | None
) -> None:
    """Print the columns of an ASTRA-sim case, and write them and its scenario."""
    from allrail.cli import output
    from allrail.formats.astra_sim import columns
    from allrail.formats.astra_sim import write_scenario as write

    if path is not None:
        write(case, path=path)
    row = columns(case, result=result)
    if out is not None:
        astra.write(out, [row])
    if not as_json:
        output.table(output.joined([*row, ""])[:-1], [list(row.values())])


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


def _refuse_assumptions(assumptions: tuple[str, ...]) -> None:
    if assumptions:
        raise InputError(
            "only a `workload` has what-ifs",
            hint="leave it out, or simulate a `workload`",
            source="--what-if",
            value=assumptions[0],
        )


def _refuse_plan(plan: Path | None, why: str) -> None:
    if plan is not None:
        raise InputError(
            why,
            hint="leave it out, or simulate a `collective`",
            source="--plan",
            value=str(plan),
        )


def _refuse_both(file: Path | None) -> None:
    if file is not None:
        raise InputError(
            "either a scenario or `--astra-sim`, not both",
            hint="leave the file out",
            source="allrail simulate",
            value=str(file),
        )


def _refuse_foreign(
    given: dict[str, Any], *, file: Path | None, write_scenario: Path | None
) -> None:
    if write_scenario is not None:
        given = {**given, "write_scenario": write_scenario}
    astra.refuse(given, verb="allrail simulate")
    if file is None:
        raise InputError(
            "the scenario's file is missing",
            hint="for example `allrail simulate FILE`; `-` is stdin",
            source="allrail simulate",
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
