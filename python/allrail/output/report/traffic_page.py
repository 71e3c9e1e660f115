"""The report of traffic on graph fabrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allrail.base.units import show_bandwidth, show_number, show_percent, show_time
from allrail.output.report.document import (
    Cell,
    Cells,
    Page,
    Picture,
    Section,
    Table,
    badges,
    microseconds,
    network_model_words,
    sentence,
    share,
    trust_words,
)
from allrail.output.report.fabric import fabric_section
from allrail.output.report.front import front_section, priced
from allrail.output.report.rendering import render
from allrail.results.compared import alike, equally_fast, fastest, leaders, speedup
from allrail.results.network_accuracy import TRAFFIC
from allrail.results.traffic_result import TrafficResult

TITLES = {
    "shares": "Share of injection",
    "bandwidths": "What each NPU got",
}
CAPTIONS = {
    "shares": "One bar a result: what an NPU sent, over what its cables carry in that time.",
    "bandwidths": "One line a result: which part of the NPUs got at most so much.",
}

Inputs = Mapping[str, Mapping[str, Any]]


def page(
    results: Mapping[str, TrafficResult],
    *,
    inputs: Inputs,
    pictures: Mapping[str, str],
    version: str,
) -> str:
    """The report as HTML.

    Args:
        results: By name; the first is what the others are compared with.
        inputs: The scenario of each result, as plain values.
        pictures: SVG by name.
        version: Of allrail.
    """
    ones = list(results.values())
    fabrics = ", ".join(sorted({str(tree["fabric"]["name"]) for tree in inputs.values()}))
    patterns = ", ".join(dict.fromkeys(one.pattern.replace("_", "-") for one in ones))
    calibrated = all(one.calibrated for one in ones)
    word, trust = trust_words(calibrated=calibrated)
    words = {
        "shares": "; ".join(
            f"{name}: {show_percent(one.share_of_injection)}" for name, one in results.items()
        ),
        "bandwidths": "; ".join(
            f"{name}: {show_number(one.npu_bandwidth_gbps.min)} to "
            f"{show_number(one.npu_bandwidth_gbps.max)} Gb/s"
            for name, one in results.items()
            if one.npu_bandwidth_gbps is not None
        ),
    }
    wirings = list(dict.fromkeys(one.simulated_as for one in ones if one.simulated_as))
    drawn = [
        Picture(name, TITLES[name], CAPTIONS[name], svg, words[name])
        for name, svg in pictures.items()
    ]
    rates = {name: 1e6 / one.time_us for name, one in results.items()}
    return render(
        Page(
            title=f"Traffic on {fabrics}",
            subtitle=patterns,
            badges=badges([one.network_model for one in ones], calibrated=calibrated),
            headline=_headline(results),
            summary=[
                *_summary(results, f"{patterns} on {fabrics}"),
                f"The numbers are {word}. {trust}",
                sentence(TRAFFIC.told),
            ],
            sections=[
                Section("results", "Results", [_results(results), *drawn]),
                Section("npus", "What NPUs got", _distributions(results)),
                front_section(priced(rates, inputs), rate="runs per second"),
                fabric_section(inputs),
            ],
            meanings={
                "network_model": network_model_words([one.network_model for one in ones]),
                word: trust,
                "time": "Until the last byte has arrived.",
                "speed-up": "Size over time, over those of the first result.",
                "bound": "No time is below it.",
                "share of injection": "Bytes that an NPU sends (of an incast: that its destination "
                "receives) over what its cables carry in that time.",
                "share of optimum": "Of an all-reduce: what an NPU must send over the same.",
                **({"simulated as": " ".join(wirings)} if wirings else {}),
            },
            notes=list(dict.fromkeys(note for one in ones for note in one.notes)),
            inputs=inputs,
            beside="The tables are beside it as CSV and Parquet.",
        ),
        version=version,
    )


def _headline(results: Mapping[str, TrafficResult]) -> str:
    name, best = fastest(results)
    if len(results) == 1:
        return (
            f"It takes {show_time(best.time_us)} and uses {show_percent(best.share_of_injection)} "
            "of what the NPUs could send."
        )
    first = leaders(results)
    if len(first) == len(results):
        verb = "are equally fast" if alike(results) else "carry as many bytes a second"
        return f"{equally_fast(first, of=len(results), verb=verb)}."
    slowest, worst = min(results.items(), key=lambda item: item[1].work / item[1].time_us)
    if not alike(results):
        return f"{name} carries {speedup(best, worst):.2f} times the bytes a second of {slowest}."
    if len(first) > 1:
        name = equally_fast(first, of=len(results))
        return f"{name}, {show_time(best.time_us)}; {slowest} takes {show_time(worst.time_us)}."
    return (
        f"{name} is the fastest, {show_time(best.time_us)}; {slowest} takes "
        f"{show_time(worst.time_us)}."
    )


def _summary(results: Mapping[str, TrafficResult], what: str) -> list[str]:
    ones = list(results.values())
    npus = " or ".join(f"{count:,}" for count in sorted({one.npus for one in ones}))
    network_models = ", ".join(sorted({one.network_model for one in ones}))
    said = [f"Simulated: {what}, {npus} NPUs taking part, in the network model {network_models}."]
    name, best = fastest(results)
    used = best.share_of_injection
    where = "the NPUs’ own cables" if used > 0.9 else "the network between the NPUs"
    said.append(
        f"What dominates in {name}: {where}; an NPU sends {show_percent(used)} of what its cables "
        "could carry in that time."
    )
    least = best.lower_bound_time_us
    if least > 0:
        above = 100 * (best.time_us / least - 1)
        said.append(
            f"What would help: {name} is {above:.1f} % above a time that none is below on this "
            "network, so "
            + ("other links would, other paths would not." if above < 5 else "other paths may.")
        )
    return said


def _results(results: Mapping[str, TrafficResult]) -> Table:
    first = next(iter(results.values()))
    rows: list[Cells] = [
        [
            name,
            one.pattern.replace("_", " "),
            one.network_model,
            (one.paths or one.algorithm or "–").replace("_", " "),
            Cell(f"{one.npus:,}", one.npus),
            microseconds(one.time_us),
            Cell(f"{speedup(one, first):.3f}", speedup(one, first)),
            microseconds(one.lower_bound_time_us),
            share(one.share_of_injection),
            share(one.share_of_optimum),
            Cell(show_bandwidth(one.injection_gbps), one.injection_gbps),
        ]
        for name, one in results.items()
    ]
    header = [
        "result",
        "pattern",
        "network_model",
        "paths",
        "NPUs",
        "time (µs)",
        "speed-up",
        "bound (µs)",
    ]
    header += ["share of injection", "of optimum", "injection"]
    return Table("runs", header, rows, [0, 1, 2, 3])


def _distributions(results: Mapping[str, TrafficResult]) -> Sequence[Table]:
    rows: list[Cells] = [
        [
            name,
            what,
            *(Cell(show_number(one, 6), one) for one in (of.min, of.p1, of.median, of.p99, of.max)),
        ]
        for name, result in results.items()
        for what, of in (
            ("bandwidth of an NPU (Gb/s)", result.npu_bandwidth_gbps),
            ("latency of a message (µs)", result.message_latency_us),
        )
        if of is not None
    ]
    header = ["result", "of", "least", "1 %", "median", "99 %", "most"]
    return [Table("distributions", header, rows, [0, 1])] if rows else []
