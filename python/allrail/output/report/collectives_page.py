"""The report of collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allrail.base.units import show_error, show_number, show_percent, show_size, show_time
from allrail.output.report.document import (
    Cell,
    Cells,
    Chart,
    Page,
    Picture,
    Section,
    Table,
    badges,
    bandwidth,
    microseconds,
    network_model_words,
    sentence,
    share,
    trust_words,
)
from allrail.output.report.fabric import fabric_section
from allrail.output.report.front import front_section, priced
from allrail.output.report.rendering import render
from allrail.output.report.style import lighter
from allrail.output.report.timeline import Bar, Row, left_out, timeline
from allrail.output.trace import SHORT
from allrail.results.compared import alike, equally_fast, fastest, leaders, speedup
from allrail.results.network_accuracy import told_of
from allrail.results.result import CollectivesResult, Stage

TITLES = {
    "comparison": "Time and bandwidth used",
    "gantt": "What each dimension sends, and when",
    "activity": "Activity of each dimension",
}
CAPTIONS = {
    "comparison": "One bar a result. The stroke across the bars on the left is a time that no "
    "schedule can beat; how far a bar reaches past it is what is left to gain.",
    "gantt": "One row a dimension, of the rank that is recorded. Colour is the chunk; all-gathers "
    "are lighter. Grey is idle time: bandwidth that is paid for and not used.",
    "activity": "The part of each window of time in which a chunk is present on a dimension, as "
    "Fig. 10 of the Themis paper shows it. The vertical line marks the end of the last collective.",
}
SHADES = 16
"""Colours of chunks: of more, neighbours share one."""
LIGHT = {"all_gather": 0.45}

Inputs = Mapping[str, Mapping[str, Any]]


def page(
    results: Mapping[str, CollectivesResult],
    *,
    inputs: Inputs,
    pictures: Mapping[str, str],
    version: str,
) -> str:
    """The report as HTML.

    Args:
        results: By name; the first is what the others are compared with.
        inputs: The scenario of each result, as plain values.
        pictures: SVG by name, in the order in which they shall stand.
        version: Of allrail.
    """
    ones = list(results.values())
    fabrics = sorted({str(tree["fabric"]["name"]) for tree in inputs.values()})
    drawn = [
        Picture(name, TITLES[name], CAPTIONS[name], pictures[name], words)
        for name, words in (
            ("comparison", _comparison_words(results)),
            ("activity", _activity_words(results)),
        )
        if name in pictures
    ]
    compared = [one for one in drawn if one.name == "comparison"]
    used = [one for one in drawn if one.name != "comparison"]
    lines = _timeline(results)
    table = Table("results", _RESULTS, _results(results), [0, 1, 2, 9])
    return render(
        Page(
            title=", ".join(fabrics),
            subtitle=_subtitle(inputs),
            badges=_badges(ones),
            headline=_headline(results),
            summary=_summary(results, inputs, fabrics),
            cards=_cards(results),
            sections=[
                Section("results", "Results", [table, *compared]),
                Section("timeline", "Timeline", [lines] if lines else left_out(ones)),
                Section("utilisation", "Utilisation", [_dimensions(results), *used]),
                Section("collectives", "Collectives", _collectives(results)),
                _front(results, inputs),
                fabric_section(inputs),
            ],
            meanings=_meanings(ones),
            inputs=inputs,
            beside="trace.json.gz beside it, where there is one, opens in Perfetto; the tables are "
            "there as CSV and Parquet.",
        ),
        version=version,
    )


def _subtitle(inputs: Inputs) -> str:
    collectives = next(iter(inputs.values()))["collective"]
    texts = [f"{str(c['kind']).replace('_', '-')} of {c['size']}" for c in collectives[:3]]
    more = f" and {len(collectives) - 3} more" if len(collectives) > 3 else ""
    return ", ".join(dict.fromkeys(texts)) + more


def _headline(results: Mapping[str, CollectivesResult]) -> str:
    (base_name, base), *_ = results.items()
    name, best = fastest(results)
    if len(results) == 1:
        used = (
            "; it is below what the links can carry, see the notes"
            if base.utilisation is None
            else f" and uses {show_percent(base.utilisation)} of the fabric's bandwidth"
        )
        return f"{base_name} takes {show_time(base.time_us)}{used}."
    first = leaders(results)
    if len(first) > 1:
        if not alike(results):
            return equally_fast(first, of=len(results), verb="carry as many bytes a second") + "."
        return f"{equally_fast(first, of=len(results))}: {show_time(best.time_us)}."
    if best is base:
        return f"{base_name} is the fastest: {show_time(base.time_us)}."
    gain = f"{speedup(best, base):.2f} times"
    if not alike(results):
        return f"{name} carries {gain} the bytes a second of {base_name}."
    return (
        f"{name} takes {show_time(best.time_us)} instead of {show_time(base.time_us)}: "
        f"{gain} as fast as {base_name}."
    )


def _summary(
    results: Mapping[str, CollectivesResult], inputs: Inputs, fabrics: Sequence[str]
) -> list[str]:
    """What was simulated and where; what dominates; what would help most."""
    ones = list(results.values())
    name, best = fastest(results)
    word, trust = trust_words(calibrated=all(one.calibrated for one in ones))
    npus = sorted({one.npus for one in ones})
    several = f"{len(ones)} ways to do it" if len(ones) > 1 else f"policy {best.policy}"
    network_models = ", ".join(sorted({one.network_model for one in ones}))
    where = f"{', '.join(fabrics)} ({' or '.join(f'{count:,}' for count in npus)} NPUs)"
    said = [
        (
            f"Simulated: {_subtitle(inputs)} on {where}, {several}, in the network model "
            f"{network_models}."
        ),
        f"The numbers are {word}. {trust}",
    ]
    told = show_error((one.time_us, one.error_low_us, one.error_high_us) for one in ones)
    if told:
        said.append(f"Error bar: {told}.")
    else:
        lines = dict.fromkeys(map(told_of, inputs.values()))
        said += [sentence(one) for one in lines]
    busy = max(best.dimensions, key=lambda one: one.busy_fraction, default=None)
    idle = min(best.dimensions, key=lambda one: one.busy_fraction, default=None)
    if busy is not None and idle is not None and len(best.dimensions) > 1:
        said.append(
            f"What dominates in {name}: {busy.name} is busy {show_percent(busy.busy_fraction)} of "
            f"the time, {idle.name} {show_percent(idle.busy_fraction)}."
        )
    if best.below_physical_bound or best.bound_time_us <= 0:
        return said
    gap = best.time_us / best.bound_time_us - 1
    if gap < 0.01:
        said.append(
            f"What would help: {name} is within {100 * gap:.2f} % of the proven bound, so no other "
            "schedule would; more bandwidth, lower latency or fewer bytes would."
        )
    else:
        said.append(
            f"What would help: a better schedule, by up to {100 * gap:.1f} % of the bound, which "
            "no schedule beats."
        )
    return said


def _badges(ones: Sequence[CollectivesResult]) -> list[tuple[str, str]]:
    found = badges(
        [result.network_model for result in ones],
        calibrated=all(result.calibrated for result in ones),
    )
    if any(result.below_physical_bound for result in ones):
        found.append(("care", "below the physical bound"))
    return found


def _cards(results: Mapping[str, CollectivesResult]) -> list[tuple[str, str, str]]:
    """Of the result that the headline names as the fastest."""
    name, best = fastest(results)
    whose = f" of {name}" if len(results) > 1 else ""
    above = best.time_us / best.bound_time_us - 1 if best.bound_time_us > 0 else 0.0
    distance = f"{100 * above:.2f} % above the lower bound"
    if best.below_physical_bound:
        distance = "below what the links can carry"
    if best.algbw_GBps is None or best.busbw_GBps is None:
        bandwidth = ("collectives", f"{len(best.collectives)}", "at once")
    else:
        bandwidth = (
            "algorithm bandwidth",
            f"{show_number(best.algbw_GBps)} GB/s",
            f"bus {show_number(best.busbw_GBps)} GB/s",
        )
    return [
        (f"time{whose}", show_time(best.time_us), distance),
        ("bandwidth used", show_percent(best.utilisation), "of all dimensions together"),
        ("sent per NPU", show_size(best.bytes_per_npu), f"{best.npus:,} NPUs"),
        bandwidth,
    ]


_RESULTS = (
    *("result", "policy", "order", "chunks", "time (µs)", "speed-up", "ideal (µs)", "bound (µs)"),
    *("bandwidth used", "network_model"),
)


def _results(results: Mapping[str, CollectivesResult]) -> list[Cells]:
    first = next(iter(results.values()))
    return [
        [
            name,
            result.policy,
            result.order.replace("_", " "),
            Cell(str(result.chunks), result.chunks),
            microseconds(result.time_us),
            Cell(f"{speedup(result, first):.3f}", speedup(result, first)),
            microseconds(result.ideal_time_us),
            microseconds(result.bound_time_us),
            share(result.utilisation),
            result.network_model,
        ]
        for name, result in results.items()
    ]


def _dimensions(results: Mapping[str, CollectivesResult]) -> Table:
    rows: list[Cells] = [
        [
            name,
            one.name,
            one.kind.replace("_", " "),
            Cell(f"{one.size:,}", one.size),
            bandwidth(one.bandwidth_gbps, one.line_rate_gbps),
            one.algorithm.replace("_", " "),
            Cell(show_size(one.bytes_per_npu), one.bytes_per_npu),
            share(one.utilisation),
            share(one.busy_fraction),
            share(None if lost is None else lost / (result.time_us or 1.0)),
        ]
        for name, result in results.items()
        for one, lost in zip(
            result.dimensions, result.starved_us or [None] * len(result.dimensions), strict=True
        )
    ]
    header = ["result", "dimension", "kind", "size", "bandwidth", "algorithm", "sent per NPU"]
    columns = [*header, "used", "busy", "starved"]
    return Table("dimensions", columns, rows, [0, 1, 2, 5], title="Dimensions")


def _collectives(results: Mapping[str, CollectivesResult]) -> list[Table]:
    """Only where there are several: one alone says what the results say."""
    rows: list[Cells] = [
        [
            name,
            one.name,
            one.kind.replace("_", "-"),
            Cell(show_size(one.size_bytes), one.size_bytes),
            microseconds(one.start_us),
            microseconds(one.finish_us),
            microseconds(one.time_us),
        ]
        for name, result in results.items()
        if len(result.collectives) > 1
        for one in result.collectives
    ]
    header = ["result", "name", "kind", "size", "start (µs)", "finish (µs)", "time (µs)"]
    return [Table("each", header, rows, [0, 1, 2])] if rows else []


def _timeline(results: Mapping[str, CollectivesResult]) -> Chart | None:
    shown = {name: result for name, result in results.items() if result.timeline}
    if not shown:
        return None
    spans = [span for result in shown.values() for span in result.timeline or ()]
    chunks = 1 + max(span.chunk for span in spans)
    palette = _palette()

    def colour(operation: str, chunk: int) -> str:
        return _lighter(palette[chunk * SHADES // chunks], LIGHT.get(operation, 0.0))

    rows = []
    for name, result in shown.items():
        several = len(result.collectives) > 1
        for index, dimension in enumerate(result.dimensions):
            bars = [
                _bar(span, result, colour(span.operation, span.chunk), several=several)
                for span in result.timeline or ()
                if span.dimension == index
            ]
            about = f"{dimension.name} {dimension.kind.replace('_', ' ')} of {dimension.size}"
            aside = show_percent(dimension.busy_fraction)
            rows.append(Row(f"{name}: {show_time(result.time_us)}", about, aside, bars))
    operations = dict.fromkeys(span.operation for span in spans)
    legend = [(colour(one, chunks // 3), one.replace("_", "-")) for one in operations]
    if chunks > 2:
        some = dict.fromkeys((0, (chunks - 1) // 2, chunks - 1))
        legend += [(palette[chunk * SHADES // chunks], f"chunk {chunk}") for chunk in some]
    return timeline(
        "gantt",
        rows,
        title=TITLES["gantt"],
        caption=CAPTIONS["gantt"] + " The percentage beside a dimension is how long it is busy.",
        legend=legend,
        end_us=max(result.time_us for result in shown.values()),
    )


def _bar(span: Stage, result: CollectivesResult, colour: str, *, several: bool) -> Bar:
    short = SHORT.get(span.operation, span.operation)
    name = f"chunk {span.chunk} {short}"
    detail = (
        f"stage {span.stage}, {span.operation.replace('_', '-')}, {show_size(span.bytes)}, arrived "
        f"at {show_time(span.finish_us)}"
    )
    if several:
        detail = f"{result.collectives[span.collective].name}, {detail}"
    return Bar(span.start_us, span.end_us, name, colour, detail)


def _palette() -> list[str]:
    import matplotlib as mpl

    colours = mpl.colormaps["viridis"]
    parts = [0.1 + 0.85 * index / (SHADES - 1) for index in range(SHADES)]
    return [_hex(*colours(part)[:3]) for part in parts]


def _lighter(colour: str, amount: float) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _hex(*lighter((red, green, blue), amount=amount))


def _hex(red: float, green: float, blue: float) -> str:
    return "#" + "".join(f"{round(255 * one):02x}" for one in (red, green, blue))


def _front(results: Mapping[str, CollectivesResult], inputs: Inputs) -> Section:
    what = "algorithm bandwidth (GB/s)"
    rates = {name: one.algbw_GBps for name, one in results.items() if one.algbw_GBps is not None}
    if len(rates) < len(results):
        what = "runs per second"
        rates = {name: 1e6 / one.time_us for name, one in results.items()}
    return front_section(priced(rates, inputs), rate=what)


def _comparison_words(results: Mapping[str, CollectivesResult]) -> str:
    return "; ".join(
        f"{name}: {show_time(one.time_us)}, {show_percent(one.utilisation)} used"
        for name, one in results.items()
    )


def _activity_words(results: Mapping[str, CollectivesResult]) -> str:
    return "; ".join(
        f"{name}: "
        + ", ".join(
            f"{dimension.name} busy {show_percent(dimension.busy_fraction)}"
            for dimension in one.dimensions
        )
        for name, one in results.items()
        if one.timeline
    )


def _meanings(ones: Sequence[CollectivesResult]) -> dict[str, str]:
    word, trust = trust_words(calibrated=all(one.calibrated for one in ones))
    said = {
        "network_model": network_model_words([one.network_model for one in ones])
        + " Computing, memory and the software above the network are not in it.",
        word: trust,
        "time": "From the start until the last byte of the last collective has arrived.",
        "speed-up": "Bytes of collectives a second, over those of the first result.",
        "ideal": "All bytes over all bandwidths: every dimension sends from start to end, and "
        "latency is nothing. Hierarchical collectives send the same bytes in any order of "
        "dimensions.",
        "bound": "A time that provably no schedule can beat, latency included; the distance to it "
        "is what a better schedule could still gain.",
        "bandwidth used": "Bytes sent over what the bandwidth could have carried in the time. For "
        "the whole fabric, dimensions count by their bandwidth.",
        "busy": "The part of the time in which a dimension had something to send.",
        "starved": "The part of the time in which a dimension idles while the chunks that still "
        "need it are on other dimensions.",
    }
    wirings = list(dict.fromkeys(one.simulated_as for one in ones if one.simulated_as))
    if wirings:
        said["simulated as"] = " ".join(wirings)
    if counted := list(dict.fromkeys(one.counted for one in ones if one.counted)):
        said["over cables"] = " ".join(f"{one[:1].upper()}{one[1:]}." for one in counted)
    if behind := list(dict.fromkeys(one.behind_baseline for one in ones if one.behind_baseline)):
        said["slower than the baseline"] = " ".join(f"{one}." for one in behind)
    if any(one.below_physical_bound for one in ones):
        said["below the physical bound"] = (
            "Messages of one step were taken not to share links (contention: none), as ASTRA-sim’s "
            "congestion-unaware backend does. The time lies below what the links can carry, so no "
            "utilisation is given."
        )
    said["algorithm, bus bandwidth"] = (
        "As nccl-tests counts them: the collective’s size over its time; and the same, corrected "
        "for what a collective of its kind has to move."
    )
    return said
