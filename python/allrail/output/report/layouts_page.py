"""The report of `plan --model`: layouts ranked, what each loses by, and what became of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allrail.base.errors import show
from allrail.base.units import show_count, show_number, show_percent
from allrail.output.report.document import (
    Cell,
    Cells,
    Chart,
    Page,
    Section,
    Table,
    badges,
    network_model_words,
    sentence,
    share,
    trust_words,
)
from allrail.output.report.points import data as points_data

_MEANINGS = {
    "layout": "tp, cp, ep, pp, dp: tensor, context, expert, pipeline and data parallelism; v: "
    "pieces of the model a stage; zero: the ZeRO stage; shard: over how many replicas states are "
    "cut; head: how many layers the ends count as; mb: samples of a microbatch.",
    "exposed": "Communication that computing does not hide, as a share of the step.",
    "bubble": "What an NPU waits for other stages of the pipeline, as a share of the step.",
    "bound": "No simulated step of the layout is shorter. What is bounded above the last row that "
    "was asked for is provably no better, and was not simulated.",
}


def page(told: Mapping[str, Any]) -> Page:
    """Return the report.

    Args:
        told: The job, layouts by what became of them, and the best one's scenario.
    """
    job, best = told["job"], _recommended(told)
    word, trust = trust_words(calibrated=told["calibrated"])
    network_models = ["dims"]
    return Page(
        title=f"Layouts of {job['model']} on {job['npus']:,} NPUs",
        subtitle=f"{show_count(told['layouts'], 'layout')} on {job['fabric']}, {job['device']},"
        f" {show_count(job['global_batch'], 'sample')} a step",
        badges=badges(network_models, calibrated=told["calibrated"]),
        headline=f"{best['name']} is recommended: {show_number(best['step_s'])} s a step.",
        summary=[*_summary(told), f"The numbers are {word}. {trust}", *_known(told)],
        cards=[
            ("tokens/s an NPU", _rate(best["tokens_per_s_per_npu"]), ""),
            ("step", f"{show_number(best['step_s'])} s", f"recomputes {best['recompute']}"),
            ("memory", f"{best['memory_gb']:.0f} GB", _capacity(best)),
            ("simulated", f"{told['simulated']:,}", f"of {show_count(told['layouts'], 'layout')}"),
        ],
        sections=[
            Section("layouts", "Layouts, simulated", [_ranked(told)]),
            Section("memory", "Memory against throughput", _chart(told)),
            Section("schedules", "Other schedules of communication", _schedules(told)),
            Section("rest", "Layouts that were not simulated", _rest(told)),
        ],
        meanings={"network_model": network_model_words(network_models), word: trust, **_MEANINGS},
        notes=list(told["notes"]),
        inputs={best["name"]: told["scenario"]},
        beside="layouts.parquet and layouts.csv beside it have every layout.",
    )


def _recommended(told: Mapping[str, Any]) -> dict[str, Any]:
    """The recommended layout's row."""
    found: dict[str, Any] = next(
        one for one in told["ranked"] if told["recommended"] in (one["name"], *one["same"])
    )
    return found


def _known(told: Mapping[str, Any]) -> list[str]:
    """What is known of the steps' error."""
    line = told.get("known_error")
    return [sentence(line)] if line else []


def _capacity(one: Mapping[str, Any]) -> str:
    has = one["capacity_gb"]
    return "of the fullest NPU" if has is None else f"of the fullest NPU's {has:.0f}"


def rows(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every layout and what became of it.

    Args:
        told: As for `page`.
    """
    blank = {"step_s": None, "tokens_per_s_per_npu": None, "memory_gb": None, "why": None}
    found: list[dict[str, Any]] = [
        {"layout": one["name"], "what": "simulated", "recompute": one["recompute"], "bound_s": None}
        | {key: one[key] for key in blank}
        for one in told["ranked"]
    ]

    def other(name: str, what: str, bound: float | None = None, why: str | None = None) -> None:
        row = {"layout": name, "what": what, "recompute": None, "bound_s": bound}
        found.append(row | blank | {"why": why})

    for one in told["ranked"]:
        for name in one["same"]:
            other(name, "simulated", why=f"the same as {one['name']}")
    for name, bound in told["left"].items():
        other(name, "not simulated", bound=bound, why=told["stopped"])
    for name, bound in told["pruned"].items():
        other(name, "provably no better", bound=bound)
    for name in told["too_large"]:
        other(name, "does not fit")
    for name, why in told["refused"].items():
        other(name, "cannot be", why=why)
    return found


def _summary(told: Mapping[str, Any]) -> list[str]:
    ranked = told["ranked"]
    best, fastest = _recommended(told), ranked[0]
    counts = (
        f"Simulated: {told['simulated']:,} of {show_count(told['layouts'], 'layout')};"
        f" {len(told['pruned']):,} provably no better, {len(told['too_large']):,} too large even"
        f" with full recomputation, {len(told['refused']):,} impossible."
    )
    said = [
        counts,
        f"What the recommended one loses by: {best['why']}.",
        f"Tools that can do it: {', '.join(best['tools']) or 'none'}.",
    ]
    if told["stopped"]:
        said.append(
            f"Stopped: {told['stopped']}; {show_count(len(told['left']), 'layout')} left,"
            f" {told['unseen']:,} not looked at."
        )
    said += [sentence(words) for words in told.get("no_tool", [])]
    if best["name"] != fastest["name"]:
        said.append(
            f"The fastest is {fastest['name']}: {show_number(fastest['step_s'])} s a step; of those"
            f" within 1 % of the fastest{' that a tool can run' if best['tools'] else ''}, the"
            " recommended one has the fewest kinds of parallelism, then the least memory."
        )
    if best["slow_network_s"] is not None:
        loses = show_percent(1 - best["step_s"] / best["slow_network_s"])
        said.append(f"On a pessimistic network it loses {loses} ({told['slow_network']}).")
    if len(ranked) > 1:
        second = ranked[1]
        more = second["step_s"] - fastest["step_s"]
        said.append(
            f"The second-best, {second['name']}, costs {show_number(1e3 * more, 3)} ms a step more"
            f" ({show_percent(more / fastest['step_s'])})."
            if more > 1e-6 * fastest["step_s"]
            else f"{second['name']} takes as long as {fastest['name']}."
        )
    for one in told["schedules"]:
        if one["schedule"]:
            gain = show_percent(1 - one["step_s"] / one["before_s"])
            said.append(f"What would help: another schedule for {one['name']}, {gain} shorter.")
    return said


def _rate(tokens: float) -> str:
    return f"{tokens:,.0f}" if tokens >= 1000 else show_number(tokens)


def _ranked(told: Mapping[str, Any]) -> Table:
    ranked = told["ranked"]
    best, most = _recommended(told), ranked[0]["tokens_per_s_per_npu"]
    kinds = [
        kind
        for kind in dict.fromkeys(kind for one in ranked for kind in one["lost"])
        if any(one["lost"].get(kind, 0) >= 1e-3 for one in ranked)
    ]
    header = [
        "layout",
        "recomputes",
        "tools",
        "step (s)",
        "tokens/s an NPU",
        "of the best",
        "memory (GB)",
    ]
    cells: list[Cells] = [
        [
            f"{one['name']} *" if one is best else one["name"],
            one["recompute"],
            ", ".join(one["tools"]) or "-",
            Cell(show_number(one["step_s"]), one["step_s"]),
            Cell(_rate(one["tokens_per_s_per_npu"]), one["tokens_per_s_per_npu"]),
            share(one["tokens_per_s_per_npu"] / most),
            Cell(f"{one['memory_gb']:.1f}", one["memory_gb"]),
            *(share(one["lost"].get(kind, 0.0)) for kind in kinds),
            Cell(
                f"{one['binding']['dimension']} {show_percent(one['binding']['busy'])}",
                one["binding"]["busy"],
            ),
        ]
        for one in ranked
    ]
    return Table(
        "ranked",
        [*header, *kinds, "busiest dimension"],
        cells,
        [0, 1, 2],
        note="* is the recommended layout. Shares of what a layout loses are of its own step.",
    )


def _chart(told: Mapping[str, Any]) -> list[Chart]:
    ranked = told["ranked"]
    if len({one["memory_gb"] for one in ranked}) < 2:
        return []
    points = [[one["memory_gb"], one["tokens_per_s_per_npu"], one["name"]] for one in ranked]
    return [
        Chart(
            name="memory-chart",
            title="Memory of the fullest NPU against tokens/s an NPU",
            caption="Up and to the left is better. The line joins what nothing smaller surpasses.",
            draws="points",
            data=points_data(
                points,
                one="a layout",
                many="layouts",
                line="nothing smaller is faster",
                axes=["memory (GB)", "tokens/s an NPU"],
                marked=[_recommended(told)["name"]],
            ),
            words=f"{show_count(len(points), 'layout')}, as in the table above.",
        )
    ]


def _schedules(told: Mapping[str, Any]) -> list[Table]:
    cells: list[Cells] = [
        [
            one["name"],
            ", ".join(f"{key}={show(value)}" for key, value in one["schedule"].items())
            or "none gains a thousandth",
            Cell(show_number(one["before_s"]), one["before_s"]),
            Cell(show_number(one["step_s"]), one["step_s"]),
            share(1 - one["step_s"] / one["before_s"]),
        ]
        for one in told["schedules"]
    ]
    header = ["layout", "the best found", "before (s)", "with it (s)", "gain"]
    return [Table("tried", header, cells, [0, 1])] if cells else []


def _rest(told: Mapping[str, Any]) -> list[Table]:
    tables = []
    if told["pruned"]:
        last = told["ranked"][0]["step_s"]
        bounded: list[Cells] = [
            [name, Cell(show_number(bound), bound), share(bound / last - 1)]
            for name, bound in told["pruned"].items()
        ]
        header = ["layout", "step at least (s)", "more than the best, at least"]
        tables.append(Table("bounded", header, bounded, [0], title="Provably no better"))
    others: list[Cells] = [[name, "does not fit, recomputing all"] for name in told["too_large"]]
    others += [[name, why] for name, why in told["refused"].items()]
    if others:
        tables.append(Table("others", ["layout", "why"], others, [0, 1], title="What cannot run"))
    never: list[Cells] = [
        [why, Cell(f"{count:,}", count)] for why, count in told["not_tried"].items()
    ]
    if never:
        header = ["what would have to hold", "combinations"]
        tables.append(Table("never", header, never, [0], title="Combinations that are no layout"))
    return tables
