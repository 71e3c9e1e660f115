"""How `simulate` and `compare` show training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allrail.base.axes import short_of
from allrail.base.errors import InputError
from allrail.base.errors import show as written
from allrail.base.units import plain_number, show_count, show_duration, show_number
from allrail.cli import output
from allrail.cli.astra_sim import show_columns
from allrail.measure.calibrate.step import measured_step
from allrail.results.accuracy import lines
from allrail.simulation.variants import show_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allrail.measure.comparison import Comparison
    from allrail.results.result import DimensionResult
    from allrail.results.training_result import TrainingResult
    from allrail.scenario import Scenario
    from allrail.simulation.many import FailedRow
    from allrail.simulation.variants import Row

MOST_ACTORS = 16
"""More would push everything else off the screen; `--json` and the tables have all."""
DAY = 86_400.0
"""Seconds."""
MOST_PARTS = 8
"""Kinds of parts of the critical path; the same holds."""


def show_comparison(comparison: Comparison) -> None:
    """Print variants of training steps side by side.

    Args:
        comparison: Those.
    """
    rows = comparison.compared
    _show_rows(rows, comparison.failed)
    tight = [row.label for row in rows if row.result.memory and row.result.memory.fits is False]
    _note_rows("does not fit the memory of an NPU", tight)
    fast = [row.label for row in rows if row.result.beyond_peak]
    _note_rows("computes faster than its device can", fast)
    _predicted([row.result for row in rows])


def _tell_measured(scenario: Scenario) -> None:
    """Say what the step takes with the collectives of the library whose tables were measured."""
    if getattr(scenario.fabric, "library", None) is None:
        return
    try:
        found = measured_step(scenario)
    except InputError:
        found = None  # what cannot be simulated on a slower network has no such line
    if found is not None:
        output.note(
            f"as the tables were measured the step takes {found.step_us:.3f} us: its collectives"
            f" take {found.longer:.3g} times as long as simulated, within"
            f" {show_number(100 * found.error, 2)} %: `allrail expect`"
        )


def _note_rows(what: str, labels: Sequence[str]) -> None:
    """Say something of some rows, three of them by name."""
    if labels:
        more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
        output.note(f"{what}: {', '.join(labels[:3])}{more}")


def show(result: TrainingResult) -> None:
    """Print a result, and the step under assumptions that are not so.

    Args:
        result: What came out.
    """
    _show_step(result.scenario, result)
    _show_what_ifs(result)
    for text in result.notes:
        output.note(text)
    _tell_measured(result.scenario)
    _predicted([result])


def show_case(result: TrainingResult) -> None:
    """Print a case of ASTRA-sim's files in its columns.

    Args:
        result: What came out.
    """
    _show_what_ifs(result)
    show_columns(result)
    _predicted([result])


def _show_step(scenario: Scenario, result: TrainingResult) -> None:
    """The totals, then one line a dimension, then the actors and the path."""
    step = result.step_time_us
    above = (
        f"{100 * (step / result.bound_step_time_us - 1):.2f}" if result.bound_step_time_us else ""
    )
    exposed = [f"{name} {us:.3f}" for name, us in result.exposed_us.items() if us > 0]
    tensor = f"tensors {result.tensor_policy}, coordination {result.coordination}"
    pairs = [
        ("fabric", f"{scenario.fabric.name} ({result.npus:,} NPUs)"),
        ("workload", _workload(scenario)),
        (
            "schedule",
            f"{result.policy}, {result.order}, {show_count(result.chunks, 'chunk')}; {tensor}",
        ),
        ("step_time_us", f"{step:.3f}" + (f" ({above} % above the bound)" if above else "")),
        ("compute_us", _part(result.compute_us, step)),
        (
            "exposed_us",
            _part(result.exposed_communication_us, step)
            + (": " + ", ".join(exposed) if exposed else ""),
        ),
        ("waiting_us", _part(result.waiting_us, step)),
        *_passes(result),
        *_worst(result),
        *_throughput(result),
        *_time_to_train(result),
        *_memory(result),
        *_agreed(result),
        ("critical_path", result.critical_path_in_words),
    ]
    if scenario.what_if is not None:
        pairs.insert(3, ("what_if", written(scenario.what_if)))
    output.pairs(pairs)
    output.gap()
    framed = any(one.line_rate_gbps is not None for one in result.dimensions)
    rates = ["npu_Gb/s", "line_Gb/s"] if framed else ["npu_Gb/s"]
    headers = ["header_bytes"] if framed else []
    output.table(
        ["dimension", "kind", "size", *rates, "bytes_per_npu", *headers, "utilisation_%", "busy_%"],
        [
            [
                one.name,
                one.kind,
                str(one.size),
                plain_number(one.bandwidth_gbps, 6),
                *([_line_rate(one)] if framed else []),
                f"{one.bytes_per_npu:.0f}",
                *([f"{one.header_bytes_per_npu:.0f}"] if framed else []),
                output.percent(one.utilisation),
                output.percent(one.busy_fraction),
            ]
            for one in result.dimensions
        ],
    )
    if result.links:
        output.gap()
        _show_links(result)
    if len(result.actors) > 1:
        output.gap()
        _show_actors(result)
    if result.critical_path:
        output.gap()
        _show_path(result)


def _agreed(result: TrainingResult) -> list[tuple[str, str]]:
    """What ranks said before collectives started."""
    talk = result.coordinators
    if talk is None:
        return []
    steps = show_count(result.iterations, "iteration")
    return [("control_plane", f"{output.talk(talk.messages, talk.bytes)} in {steps}")]


def _line_rate(one: DimensionResult) -> str:
    """Of its links with packets' headers; that without where it has none."""
    return plain_number(one.line_rate_gbps or one.bandwidth_gbps, 6)


def _show_links(result: TrainingResult) -> None:
    output.table(
        ["links", "count", "link_Gb/s", "mean_%", "max_%", "busiest"],
        [
            [
                one.name,
                str(one.links),
                plain_number(one.bandwidth_gbps, 6),
                output.percent(one.mean),
                output.percent(one.max),
                one.busiest or "-",
            ]
            for one in result.links
        ],
    )


def _show_actors(result: TrainingResult) -> None:
    output.table(
        ["actor", "ranks", "compute_us", "exposed_us", "waiting_us"],
        [
            [
                one.name,
                str(one.ranks),
                f"{one.compute_us:.3f}",
                f"{one.exposed_communication_us:.3f}",
                f"{one.waiting_us:.3f}",
            ]
            for one in result.actors[:MOST_ACTORS]
        ],
    )
    if len(result.actors) > MOST_ACTORS:
        output.note(f"in `--json`: {show_count(len(result.actors) - MOST_ACTORS, 'more actor')}")


def _show_path(result: TrainingResult) -> None:
    kinds = result.path_by_kind()
    output.table(
        ["critical_path", "for", "on", "actor", "parts", "time_us", "share_%", "longest"],
        [
            [
                one.what,
                one.purpose or "-",
                one.dimension or "-",
                one.actor or "-",
                str(count),
                f"{one.time_us:.3f}",
                output.percent(one.share),
                one.name or "-",
            ]
            for one, count in kinds[:MOST_PARTS]
        ],
    )
    if len(kinds) > MOST_PARTS:
        output.note(f"in `--json`: {show_count(len(kinds) - MOST_PARTS, 'shorter kind')} of parts")


def _show_what_ifs(result: TrainingResult) -> None:
    if not result.what_ifs:
        return
    output.gap()
    step = result.step_time_us
    lines = [["as_it_is", f"{step:.3f}", "0.00", "1.000"]]
    lines += [
        [
            row.name,
            f"{row.result.step_time_us:.3f}",
            output.percent(1 - row.result.step_time_us / step),
            f"{row.speedup:.3f}",
        ]
        for row in result.what_ifs
    ]
    output.table(["what_if", "step_time_us", "gain_%", "speedup"], lines)


def _show_rows(rows: Sequence[Row], failed: Sequence[FailedRow]) -> None:
    varied = list(rows[0].sets)
    header = list(map(short_of, varied))
    trains = [row.result.time_to_train for row in rows]
    priced = any(one is not None and one.cost is not None for one in trains)
    header += ["step_time_us", "speedup", *_RATES]
    header += ["train_days"] if any(trains) else []
    header += ["train_cost"] if priced else []
    header += ["compute_%", "exposed_%", "waiting_%", "above_bound_%"]
    lines = []
    for row, train in zip(rows, trains, strict=True):
        one = row.result
        step = one.step_time_us
        above = step / one.bound_step_time_us - 1 if one.bound_step_time_us else None
        lines.append(
            [
                *map(show_value, row.sets.values()),
                f"{step:.3f}",
                f"{row.speedup:.3f}",
                *_rates(one),
                *([_number(None if train is None else train.time_s / DAY)] if any(trains) else []),
                *([_number(None if train is None else train.cost)] if priced else []),
                output.percent(one.compute_us / step),
                output.percent(one.exposed_communication_us / step),
                output.percent(one.waiting_us / step),
                output.percent(above),
            ]
        )
    output.rows(header, lines, failed)


def _number(value: float | None) -> str:
    return "-" if value is None else plain_number(value)


def _predicted(results: Sequence[TrainingResult]) -> None:
    """Say below a table where its numbers come from."""
    output.predicted(
        [one.network_model for one in results],
        calibrated=all(one.calibrated for one in results),
    )
    for line in lines(one.known for one in results):
        output.note(line)


def _workload(scenario: Scenario) -> str:
    """The workload on one line: what differs from one of everything."""
    if scenario.workload is None:
        return ""
    work = scenario.workload.whole
    cut = work.parallelism
    degrees = [
        f"{axis} {count}"
        for axis in ("tp", "cp", "op", "ep", "pp", "dp")
        if (count := getattr(cut, axis)) is not None and count > 1
    ]
    degrees += [name for name in ("sp", "async_tp") if getattr(cut, name)]
    if cut.zero:
        degrees.append(f"zero {cut.zero}")
    if cut.shard:
        degrees.append(f"shard {cut.shard}")
    if cut.recompute != "none":
        degrees.append(f"recompute {cut.recompute}")
    if cut.pp > 1:
        pieces = f" of {cut.virtual_stages or 2} pieces" if cut.schedule == "interleaved" else ""
        degrees.append(cut.schedule + pieces)
    batches = (
        (work.global_batch, "in all"),
        (work.batch_per_replica, "a replica"),
        (work.micro_batch, "a microbatch"),
    )
    batch = [f"{count} {of}" for count, of in batches if count]
    foreign = "trace" in work.model or "astra_sim" in work.model  # they have bytes, not numbers
    return ", ".join([work.title, *batch, *([] if foreign else [work.precision]), *degrees])


def _throughput(result: TrainingResult) -> list[tuple[str, str]]:
    found = result.throughput
    if found is None:
        return []
    parts = [f"{show_number(found.samples_per_s, 6)} samples/s"]
    if found.tokens_per_s_per_npu is not None:
        tokens = show_number(found.tokens_per_s_per_npu, 6)
        parts.append(f"{tokens} tokens/s per NPU")
    if found.tflops_per_npu is not None:
        parts.append(f"{show_number(found.tflops_per_npu)} TFLOP/s per NPU")
    rows = [("throughput", ", ".join(parts))]
    if found.mfu is not None:
        shares = f"MFU {output.percent(found.mfu)} %, HFU {output.percent(found.hfu)} %"
        rows.append(("utilisation", shares))
    return rows


def _passes(result: TrainingResult) -> list[tuple[str, str]]:
    """The step by pass, where a pass is known."""
    parts = [
        f"{name} {one.time_us:.3f}" + (f" (exposed {one.exposed_us:.3f})" if one.exposed_us else "")
        for name, one in result.passes.items()
        if one.time_us > 0
    ]
    known = any(result.passes[name].time_us > 0 for name in ("forward", "backward", "update"))
    return [("passes_us", ", ".join(parts))] if known else []


def _time_to_train(result: TrainingResult) -> list[tuple[str, str]]:
    found = result.time_to_train
    if found is None:
        return []
    parts = [f"{show_duration(found.time_s)} ({show_count(found.steps, 'step')})"]
    parts.append(f"{show_number(found.npu_hours)} NPU hours")
    if found.cost is not None:
        parts.append(f"cost {show_number(found.cost)}")
    if found.energy_kwh is not None:
        parts.append(f"{show_number(found.energy_kwh)} kWh")
    return [("time_to_train", ", ".join(parts))]


_RATES = ("samples/s", "tokens/s/NPU", "TFLOP/s/NPU", "MFU_%", "HFU_%")


def _rates(result: TrainingResult) -> list[str]:
    """The same as cells."""
    found = result.throughput
    if found is None:
        return ["-"] * len(_RATES)
    rates = (found.samples_per_s, found.tokens_per_s_per_npu, found.tflops_per_npu)
    cells = ["-" if rate is None else plain_number(rate, 6) for rate in rates]
    return [*cells, output.percent(found.mfu), output.percent(found.hfu)]


def _worst(result: TrainingResult) -> list[tuple[str, str]]:
    """The actor that computes least; the figures above it are means over all ranks."""
    if len(result.actors) < 2:
        return []
    worst, step = result.worst_actor, result.step_time_us
    shares = [
        (one / step if step else None)
        for one in (worst.compute_us, worst.exposed_communication_us, worst.waiting_us)
    ]
    compute, exposed, waiting = map(output.percent, shares)
    text = f"{worst.name}: computes {compute} %, exposed {exposed} %, waits {waiting} %"
    return [("worst_actor", text)]


def _memory(result: TrainingResult) -> list[tuple[str, str]]:
    if not result.memory_per_npu_bytes:
        return []
    text = _gigabytes(result.memory_per_npu_bytes)
    memory = result.memory
    if memory is not None:
        kept = [f"{name} {_gigabytes(count)}" for name, count in memory.items() if count > 0]
        if memory.capacity is not None:
            text += f" of {_gigabytes(memory.capacity)}"
        text += ": " + ", ".join(kept) if kept else ""
        if memory.fits is False:
            text += "; it does not fit"
    return [("memory_per_npu", text)]


def _part(us: float, step: float) -> str:
    return f"{us:.3f} ({output.percent(us / step if step else None)} %)"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3f} GB"
