"""The report of `tune`: every trial, the best so far, and what changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allrail.base.errors import show
from allrail.base.units import show_count, show_percent, show_time
from allrail.output.report.document import (
    Cell,
    Cells,
    Chart,
    Page,
    Section,
    Table,
    badges,
    microseconds,
    network_model_words,
    share,
    trust_words,
)
from allrail.output.report.points import data as points_data


def page(told: Mapping[str, Any]) -> Page:
    """Return the report.

    Args:
        told: The scenario, its knobs, the trials and what the best has changed.
    """
    trials, best = told["trials"], told["best"]
    start = trials[0]["step_time_us"]
    fastest = min(_times(told), default=start)
    word, trust = trust_words(calibrated=told["calibrated"])
    changed = ", ".join(f"`{path}={show(value)}`" for path, value in best.items())
    failed = sum(one["step_time_us"] is None for one in trials)
    gain = show_percent(told["gain"])
    return Page(
        title=f"Schedule of {told['name']}, tuned",
        subtitle=f"{show_count(len(trials), 'trial')} over {', '.join(told['knobs'])}",
        badges=badges([told["network_model"]], calibrated=told["calibrated"]),
        headline=f"{gain} shorter with the best values."
        if changed
        else "Nothing is faster than the scenario as it is.",
        summary=[
            f"Simulated: {show_count(len(trials), 'trial')}, the first with the scenario as it is.",
            f"The search is {told['sampler']}.",
            *([f"What would help: {changed}."] if changed else []),
            *([f"{show_count(failed, 'trial')} could not be simulated."] if failed else []),
            f"The numbers are {word}. {trust}",
        ],
        cards=[
            ("step as it is", show_time(start), ""),
            ("best step", show_time(fastest), f"{gain} shorter"),
        ],
        sections=[
            Section("search", "How the search went", _chart(told)),
            Section("trials", "Trials", [_table(told)]),
        ],
        meanings={"network_model": network_model_words([told["network_model"]]), word: trust},
        inputs={told["name"]: told["scenario"]},
        beside="trials.parquet and trials.csv beside it have every trial.",
    )


def rows(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every trial, with what it has changed.

    Args:
        told: As for `page`.
    """
    return [
        {
            "trial": number,
            **{knob: _shown(one, knob) for knob in told["knobs"]},
            "step_time_us": one["step_time_us"],
        }
        for number, one in enumerate(told["trials"])
    ]


def _times(told: Mapping[str, Any]) -> list[float]:
    return [one["step_time_us"] for one in told["trials"] if one["step_time_us"] is not None]


def _shown(trial: Mapping[str, Any], knob: str) -> str | None:
    return show(trial["sets"][knob]) if knob in trial["sets"] else None


def _chart(told: Mapping[str, Any]) -> list[Chart]:
    start = told["trials"][0]["step_time_us"]
    points = [
        [number, 100 * (1 - one["step_time_us"] / start), _words(number, one)]
        for number, one in enumerate(told["trials"])
        if one["step_time_us"] is not None
    ]
    if len(points) < 2:
        return []
    return [
        Chart(
            name="search-chart",
            title="How much shorter the step is, trial by trial",
            caption="Up is better. The line joins the best so far.",
            draws="points",
            data=points_data(
                points,
                one="a trial",
                many="trials",
                line="the best so far",
                axes=["trial", "shorter (%)"],
            ),
            words=f"{show_count(len(points), 'trial')}, as in the table below.",
        )
    ]


def _words(number: int, trial: Mapping[str, Any]) -> str:
    changed = ", ".join(f"{path} {show(value)}" for path, value in trial["sets"].items())
    return f"trial {number}: {changed or 'as it is'}"


def _table(told: Mapping[str, Any]) -> Table:
    start = told["trials"][0]["step_time_us"]
    knobs = told["knobs"]
    cells: list[Cells] = []
    for number, one in enumerate(told["trials"]):
        time = one["step_time_us"]
        cells.append(
            [
                Cell(str(number), number),
                *(_shown(one, knob) or "–" for knob in knobs),
                "–" if time is None else microseconds(time),
                share(None if time is None else 1 - time / start),
            ]
        )
    header = ["trial", *knobs, "step (µs)", "shorter"]
    return Table(
        "each", header, cells, list(range(1 + len(knobs))), note="–: as the scenario has it."
    )
