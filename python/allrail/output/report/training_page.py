"""The report of training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allrail.base.units import (
    show_count,
    show_duration,
    show_number,
    show_percent,
    show_size,
    show_time,
)
from allrail.output.report import training_tables as tables
from allrail.output.report.advice import advice
from allrail.output.report.document import (
    Block,
    Page,
    Picture,
    Section,
    Table,
    badges,
    network_model_words,
    sentence,
    trust_words,
)
from allrail.output.report.fabric import fabric_section
from allrail.output.report.front import front_section, priced
from allrail.output.report.rendering import render
from allrail.output.report.timeline import Bar, Row, left_out, timeline
from allrail.output.report.training import BY_PURPOSE, PASSES, shade
from allrail.results.accuracy import lines
from allrail.results.compared import alike, equally_fast, fastest, leaders, speedup
from allrail.results.training_parts import ActorResult, Slice
from allrail.results.training_result import TrainingResult

TITLES = {
    "step": "What every actor does, and when",
    "breakdown": "What the step’s time is spent on",
    "actors": "What each actor’s time is spent on",
    "what_ifs": "What there is to gain, and where",
}
CAPTIONS = {
    "step": "Every iteration that was simulated. A group of rows an actor (a class of ranks that "
    "do the same): its compute above, what it sends on each dimension below, coloured by what it "
    "is for; in network models of messages, what is under way on all that a group spans. Where "
    "compute is idle meanwhile, communication is exposed.",
    "breakdown": "Compute, exposed communication by what it is for, and waiting: means over all "
    "ranks. The stroke is a bound that no schedule of the same communication is below.",
    "actors": "One bar an actor. Where actors wait for each other, the slowest determines the "
    "step.",
    "what_ifs": "The step under one assumption each that is not so: what a better network or a "
    "better schedule could gain at most.",
}

Inputs = Mapping[str, Mapping[str, Any]]


def page(
    results: Mapping[str, TrainingResult],
    *,
    inputs: Inputs,
    pictures: Mapping[str, str],
    what_ifs: tables.WhatIfs,
    version: str,
) -> str:
    """The report as HTML.

    Args:
        results: By name; the first is what the others are compared with.
        inputs: The scenario of each result, as plain values, with its model's name for the model.
        pictures: SVG by name.
        what_ifs: Assumptions about the first result.
        version: Of allrail.
    """
    ones = list(results.values())
    fabrics = sorted({str(tree["fabric"]["name"]) for tree in inputs.values()})
    models = ", ".join(dict.fromkeys(_model(tree) for tree in inputs.values()))
    words = {
        "breakdown": "; ".join(f"{name}: {_parts(one)}" for name, one in results.items()),
        "actors": "; ".join(f"{one.name}: {_actor(one)}" for one in ones[0].actors[:40]),
        "what_ifs": "; ".join(
            f"{tables.assumption(one)}: {show_time(one['step_time_us'])}" for one in what_ifs
        ),
    }
    drawn = {
        name: [Picture(name, TITLES[name], CAPTIONS[name], pictures[name], words[name])]
        if name in pictures
        else []
        for name in words
    }
    return render(
        Page(
            title=f"A training step of {models}",
            subtitle=f"on {', '.join(fabrics)}",
            badges=badges(
                [one.network_model for one in ones], calibrated=all(one.calibrated for one in ones)
            ),
            headline=_headline(results),
            summary=_summary(results, what_ifs, inputs, fabrics),
            cards=_cards(results),
            sections=[
                Section(
                    "results",
                    "Results",
                    [
                        tables.results(results),
                        *_there(tables.train(results), tables.passes(results)),
                        *drawn["breakdown"],
                    ],
                ),
                Section("what-if", "What if", [*tables.what_ifs(what_ifs), *drawn["what_ifs"]]),
                Section("timeline", "Timeline", _timelines(results)),
                Section("critical-path", "The critical path", _there(tables.critical(results))),
                Section("communication", "Exposed communication", _there(tables.exposed(results))),
                Section(
                    "utilisation",
                    "Utilisation",
                    _there(
                        tables.dimensions(results), tables.links(results), tables.busiest(results)
                    ),
                ),
                Section("ranks", "Actors", [*_there(tables.actors(results)), *drawn["actors"]]),
                Section("memory", "Memory", _there(tables.memory(results))),
                _front(results, inputs),
                fabric_section(inputs),
            ],
            meanings=_meanings(ones),
            notes=list(dict.fromkeys(note for one in ones for note in one.notes)),
            inputs=inputs,
            beside="trace.json.gz beside it, where there is one, opens in Perfetto; the tables are "
            "there as CSV and Parquet.",
        ),
        version=version,
    )


def _there(*tables: Table) -> list[Table]:
    return [table for table in tables if table.rows]


def _parts(one: TrainingResult) -> str:
    exposed = [(f"exposed {name}", us) for name, us in one.exposed_us.items() if us > 0]
    parts = [("compute", one.compute_us), *exposed, ("waiting", one.waiting_us)]
    return ", ".join(f"{name} {show_time(us)}" for name, us in parts)


def _actor(one: ActorResult) -> str:
    return (
        f"compute {show_time(one.compute_us)}, exposed "
        f"{show_time(one.exposed_communication_us)}, waiting {show_time(one.waiting_us)}"
    )


def _summary(
    results: Mapping[str, TrainingResult],
    what_ifs: tables.WhatIfs,
    inputs: Inputs,
    fabrics: Sequence[str],
) -> list[str]:
    """What was simulated and where; what dominates; what would help most."""
    ones = list(results.values())
    first = ones[0]
    name, best = fastest(results)
    word, trust = trust_words(calibrated=all(one.calibrated for one in ones))
    network_models = ", ".join(sorted({one.network_model for one in ones}))
    several = f", {len(ones)} ways to do it" if len(ones) > 1 else ""
    models = ", ".join(dict.fromkeys(_model(tree) for tree in inputs.values()))
    where = f"{', '.join(fabrics)} ({first.npus:,} NPUs)"
    where += f"{several}, in the network model {network_models}"
    said = [
        f"Simulated: {show_count(first.iterations, 'iteration')} of {models} on {where}.",
        f"The numbers are {word}. {trust}",
    ]
    said += [sentence(told) for told in lines(one.known for one in ones)]
    kind, us = max(best.exposed_us.items(), key=lambda pair: pair[1], default=("", 0.0))
    parts = {
        "compute": best.compute_us,
        f"exposed communication, mostly {kind}" if us > 0 else "exposed communication": (
            best.exposed_communication_us
        ),
        "waiting for other ranks": best.waiting_us,
    }
    largest = max(parts, key=lambda part: parts[part])
    said.append(
        f"What dominates in {name}: {largest}, {show_percent(parts[largest] / best.step_time_us)} "
        f"of the step. Critical path: {best.critical_path_in_words}."
    )
    assumed = what_ifs if best is first else ()
    said += advice(best, what_ifs=assumed, scenario=inputs[name])
    return said


def _meanings(ones: Sequence[TrainingResult]) -> dict[str, str]:
    word, trust = trust_words(calibrated=all(one.calibrated for one in ones))
    return {
        "step": "One iteration in the steady state: the mean of all but the first. Its parts are "
        "means over all ranks: compute, exposed communication and waiting.",
        "speed-up": "Samples a second over those of the first result; steps a second where the "
        "workload does not say its samples.",
        "actor": "A class of NPUs that do the same: all of them in a data-parallel job, one stage "
        "of a pipeline.",
        "exposed": "A communication is under way and nothing is computed. What compute hides costs "
        "nothing and is not counted.",
        "waiting": "Neither computes nor communicates: the bubble of a pipeline, or others that "
        "are slower.",
        "bound": "No schedule of the same communication is faster: the longest compute, and the "
        "bytes over all bandwidth.",
        "critical path": "The chain of work and communication that determines when the step ends; "
        "whatever is not on it could take longer for free.",
        "network_model": network_model_words([one.network_model for one in ones]),
        word: trust,
    }


def _timelines(results: Mapping[str, TrainingResult]) -> Sequence[Block]:
    shown = {name: one for name, one in results.items() if one.timeline}
    if not shown:
        return left_out(list(results.values()))
    rows = []
    seen: dict[str, str] = {}
    for name, result in shown.items():
        busy = {one.name: show_percent(one.busy_fraction) for one in result.dimensions}
        tracks: dict[str, dict[str, list[Bar]]] = {one.name: {} for one in result.actors}
        for piece in result.timeline or ():
            colour = shade(piece)
            kind = piece.work_pass if piece.track == "compute" else piece.purpose
            seen.setdefault(kind or piece.track, colour)
            of = tracks.setdefault(piece.actor, {"compute": []})
            of.setdefault(piece.track, []).append(_bar(piece, colour))
        order = ["compute", *busy]
        for actor in result.actors:
            mine = tracks[actor.name]
            group = actor.name + _ranks(actor)
            if len(shown) > 1:
                group = f"{name}: {group}"
            known = [track for track in order if track in mine]
            for track in [*known, *(track for track in mine if track not in known)]:
                aside = busy.get(track, "") if len(result.actors) == 1 else ""
                rows.append(Row(group, track, aside, mine[track]))
    known = [*PASSES, "compute", *BY_PURPOSE]
    legend = [
        (seen[kind], f"communication: {kind}" if kind in BY_PURPOSE else kind)
        for kind in known
        if kind in seen
    ]
    return [
        timeline(
            "step",
            rows,
            title=TITLES["step"],
            caption=CAPTIONS["step"],
            legend=legend,
            end_us=max(sum(result.steps_us) for result in shown.values()),
            example="such as dim1 iteration 1",
        )
    ]


def _ranks(actor: ActorResult) -> str:
    if actor.first_rank is None:
        return f", {actor.ranks:,} ranks" if actor.ranks > 1 else ""
    alike = f" and {actor.ranks - 1:,} like it" if actor.ranks > 1 else ""
    return f", rank {actor.first_rank}{alike}"


def _bar(piece: Slice, colour: str) -> Bar:
    said = [f"iteration {piece.iteration}"]
    if piece.work_pass:
        said.append(piece.work_pass)
    if piece.purpose:
        said.append(piece.purpose)
    if piece.operation:
        size = f" of {show_size(piece.bytes)}" if piece.bytes is not None else ""
        said.append(f"{piece.operation.replace('_', '-')}{size}")
    if piece.group_size:
        said.append(f"among {piece.group_size:,}")
    return Bar(piece.start_us, piece.end_us, piece.name, colour, ", ".join(said))


def _front(results: Mapping[str, TrainingResult], inputs: Inputs) -> Section:
    what = "samples per second"
    rates = {name: one.throughput.samples_per_s for name, one in results.items() if one.throughput}
    if len(rates) < len(results):
        what = "steps per second"
        rates = {name: 1e6 / one.step_time_us for name, one in results.items()}
    return front_section(priced(rates, inputs), rate=what)


def _model(tree: Mapping[str, object]) -> str:
    work = tree["workload"]
    model = work.get("model") if isinstance(work, Mapping) else None
    return next(iter(model.values())) if isinstance(model, dict) else str(model)


def _headline(results: Mapping[str, TrainingResult]) -> str:
    (base_name, base), *_ = results.items()
    if len(results) == 1:
        part = show_percent(base.exposed_communication_us / base.step_time_us)
        said = f"A step takes {show_time(base.step_time_us)}; "
        return said + f"{part} of it is exposed communication."
    name, best = fastest(results)
    first = leaders(results)
    if len(first) > 1:
        if not alike(results):
            verb = "train as many samples a second"
            return equally_fast(first, of=len(results), verb=verb) + "."
        said = equally_fast(first, of=len(results))
        return f"{said}: {show_time(best.step_time_us)} a step."
    if best is base:
        return f"{base_name} is the fastest: {show_time(base.step_time_us)} a step."
    if not alike(results):
        return f"{name} trains {speedup(best, base):.3f} times the samples a second of {base_name}."
    return (
        f"{name} takes {show_time(best.step_time_us)} a step, {base_name} "
        f"{show_time(base.step_time_us)}."
    )


def _cards(results: Mapping[str, TrainingResult]) -> list[tuple[str, str, str]]:
    """Of the result that the headline names as the fastest."""
    name, one = fastest(results)
    whose = f" of {name}" if len(results) > 1 else ""
    step = one.step_time_us
    above = step / one.bound_step_time_us - 1 if one.bound_step_time_us > 0 else None
    exposed = max(one.exposed_us.items(), key=lambda pair: pair[1], default=("", 0.0))
    cards = [
        (f"step{whose}", show_time(step), f"{show_percent(above)} above the bound"),
        ("compute", show_time(one.compute_us), show_percent(one.compute_us / step)),
        (
            "exposed communication",
            show_time(one.exposed_communication_us),
            show_percent(one.exposed_communication_us / step)
            + (f", mostly {exposed[0]}" if exposed[1] > 0 else ""),
        ),
        ("waiting", show_time(one.waiting_us), show_percent(one.waiting_us / step)),
    ]
    if one.time_to_train is not None:
        train = one.time_to_train
        aside = show_count(train.steps, "step")
        aside += f", {show_number(train.npu_hours)} NPU hours"
        cards.append(("time to train", show_duration(train.time_s), aside))
    if one.memory_per_npu_bytes is not None:
        memory = one.memory
        aside = f"{one.npus:,} NPUs"
        if memory is not None and memory.capacity is not None:
            fits = "" if memory.fits is not False else ": it does not fit"
            aside = f"of {show_size(memory.capacity)}{fits}"
        cards.append(("memory per NPU", show_size(one.memory_per_npu_bytes), aside))
    return cards
