"""The report of training steps: one HTML file that opens without a network.

It is made as that of collectives is (`page`): the same style, the same rule that the same results
give the same file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allrail.report.page import Inputs, as_yaml, distinct, embed
from allrail.results.units import show_bandwidth, show_percent, show_size, show_time
from allrail.training_result import TrainingResult

if TYPE_CHECKING:
    from allrail.training import WhatIf

TITLES = {
    "step": "What every actor does, and when",
    "breakdown": "What the step’s time is spent on",
    "actors": "What each actor’s time is spent on",
    "what_ifs": "What there is to gain, and where",
}
CAPTIONS = {
    "step": "The last iteration. One band an actor: its compute above, what it sends on each "
    "dimension below, coloured by what it is for; in worlds of messages, what is under way on all "
    "that a group spans. Where compute is idle meanwhile, communication is exposed.",
    "breakdown": "Compute, exposed communication by what it is for, and waiting, of the actor that "
    "ends last. The stroke is a bound that no schedule of the same communication is below.",
    "actors": "One bar an actor. Where actors wait for each other, the slowest determines the "
    "step.",
    "what_ifs": "The step under one assumption each that is not so: what a better network or a "
    "better schedule could gain at most.",
}
MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class _Table:
    id: str
    title: str
    header: list[str]
    rows: list[list[str]]
    texts: list[int]
    note: str = ""


def page(
    results: Mapping[str, TrainingResult],
    *,
    inputs: Inputs,
    pictures: Mapping[str, str],
    what_ifs: Sequence[WhatIf],
    version: str,
) -> str:
    """The report as HTML.

    Args:
        results: By name; the first is what the others are compared with.
        inputs: The scenario of each result, as plain values.
        pictures: SVG by name, in the order in which they shall stand.
        what_ifs: Assumptions about the first result.
        version: Of allrail.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    fabrics = sorted({str(tree["fabric"].get("name", "a graph")) for tree in inputs.values()})
    models = dict.fromkeys(_model(tree) for tree in inputs.values())
    calibrated = all(result.calibrated for result in results.values())
    worlds = sorted({result.world for result in results.values()})
    text = environment.get_template("training.html.j2").render(
        title="A training step of " + ", ".join(models),
        subtitle="on " + ", ".join(fabrics),
        headline=_headline(results),
        path=next(iter(results.values())).critical_path_in_words if len(results) == 1 else "",
        badges=[
            ("plain", f"world: {', '.join(worlds)}"),
            ("good", "calibrated") if calibrated else ("care", "uncalibrated"),
        ],
        cards=_cards(next(iter(results.values()))),
        results=_results(results),
        pictures=[
            {
                "title": TITLES[name],
                "caption": CAPTIONS[name],
                "svg": embed(svg, name=name, label=TITLES[name]),
            }
            for name, svg in pictures.items()
        ],
        tables=_tables(results, what_ifs),
        notes=list(dict.fromkeys(note for one in results.values() for note in one.notes)),
        inputs={name: as_yaml(tree) for name, tree in distinct(inputs).items()},
        calibrated=calibrated,
        worlds=worlds,
        version=version,
    )
    return re.sub(r"[ \t]+\n", "\n", text)


def _model(tree: Mapping[str, object]) -> str:
    work = tree["workload"]
    model = work.get("model") if isinstance(work, Mapping) else None
    return next(iter(model.values())) if isinstance(model, dict) else str(model)


def _headline(results: Mapping[str, TrainingResult]) -> str:
    (base_name, base), *_ = results.items()
    if len(results) == 1:
        share = show_percent(base.exposed_communication_us / base.step_time_us)
        said = f"A step takes {show_time(base.step_time_us)}; "
        return said + f"{share} of it is exposed communication."
    name, best = min(results.items(), key=lambda item: item[1].step_time_us)
    if best is base:
        return f"{base_name} is the fastest: {show_time(base.step_time_us)} a step."
    return (
        f"{name} takes {show_time(best.step_time_us)} a step, {base_name} "
        f"{show_time(base.step_time_us)}."
    )


def _cards(one: TrainingResult) -> list[tuple[str, str, str]]:
    step = one.step_time_us
    above = step / one.bound_step_time_us - 1 if one.bound_step_time_us > 0 else None
    exposed = max(one.exposed_us.items(), key=lambda pair: pair[1], default=("", 0.0))
    cards = [
        ("step", show_time(step), f"{show_percent(above)} above the bound"),
        ("compute", show_time(one.compute_us), show_percent(one.compute_us / step)),
        (
            "exposed communication",
            show_time(one.exposed_communication_us),
            show_percent(one.exposed_communication_us / step)
            + (f", mostly {exposed[0]}" if exposed[1] > 0 else ""),
        ),
        ("waiting", show_time(one.waiting_us), show_percent(one.waiting_us / step)),
    ]
    if one.memory_per_npu_bytes is not None:
        memory = one.memory
        aside = f"{one.npus:,} NPUs"
        if memory is not None and memory.capacity is not None:
            fits = "" if memory.fits is not False else ": it does not fit"
            aside = f"of {show_size(memory.capacity)}{fits}"
        cards.append(("memory per NPU", show_size(one.memory_per_npu_bytes), aside))
    return cards


def _results(results: Mapping[str, TrainingResult]) -> list[list[str]]:
    first = next(iter(results.values())).step_time_us
    return [
        [
            name,
            f"{one.step_time_us:,.3f}",
            f"{first / one.step_time_us:.3f}",
            show_percent(one.compute_us / one.step_time_us),
            show_percent(one.exposed_communication_us / one.step_time_us),
            show_percent(one.waiting_us / one.step_time_us),
            f"{one.bound_step_time_us:,.3f}",
            one.tensor_policy,
            f"{one.policy}, {one.order.replace('_', ' ')}",
            one.world,
        ]
        for name, one in results.items()
    ]


def _tables(results: Mapping[str, TrainingResult], what_ifs: Sequence[WhatIf]) -> list[_Table]:
    tables = [_critical(results), _exposed(results), _dimensions(results), _links(results)]
    tables += [_busiest(results), _actors(results), _memory(results)]
    if what_ifs:
        rows = [
            [
                one.name.replace("_", " "),
                f"{one.result.step_time_us:,.3f}",
                f"{one.speedup:.3f}",
                show_percent(one.result.exposed_communication_us / one.result.step_time_us),
            ]
            for one in what_ifs
        ]
        header = ["what if", "step (µs)", "speed-up", "exposed"]
        tables.insert(0, _Table("what-ifs", "What if", header, rows, [0]))
    return [table for table in tables if table.rows]


def _critical(results: Mapping[str, TrainingResult]) -> _Table:
    most = MOST_ROWS if len(results) == 1 else 3
    rows = [
        [
            name,
            one.what,
            one.purpose or "–",
            one.dimension or "–",
            one.actor or "–",
            f"{count:,}",
            f"{one.time_us:,.3f}",
            show_percent(one.share),
            one.name or "–",
        ]
        for name, result in results.items()
        for one, count in result.path_by_kind()[:most]
    ]
    header = ["result", "", "for", "on", "actor", "parts", "time (µs)", "of the step", "longest"]
    note = "Parts of one kind are added up; every one of them is in the tables."
    return _Table("path", "The critical path", header, rows, [0, 1, 2, 3, 4, 8], note)


def _exposed(results: Mapping[str, TrainingResult]) -> _Table:
    used = {name for one in results.values() for name, us in one.exposed_us.items() if us > 0}
    header = [name for name, _ in next(iter(results.values())).exposed_us.items() if name in used]
    rows = [
        [name, *(f"{us:,.3f}" for purpose, us in one.exposed_us.items() if purpose in used)]
        for name, one in results.items()
        if used
    ]
    title = "Exposed communication by what it is for (µs)"
    return _Table("exposed", title, ["result", *header], rows, [0])


def _dimensions(results: Mapping[str, TrainingResult]) -> _Table:
    rows = [
        [
            name,
            one.name,
            one.kind.replace("_", " "),
            f"{one.size:,}",
            show_bandwidth(one.bandwidth_gbps),
            show_size(one.bytes_per_npu),
            show_percent(one.utilisation),
            show_percent(one.busy_fraction),
        ]
        for name, result in results.items()
        for one in result.dimensions
    ]
    header = ["result", "dimension", "kind", "size", "bandwidth", "sent per NPU", "used", "busy"]
    return _Table("dimensions", "Dimensions", header, rows, [0, 1, 2])


def _links(results: Mapping[str, TrainingResult]) -> _Table:
    rows = [
        [
            name,
            one.name,
            f"{one.links:,}",
            show_bandwidth(one.bandwidth_gbps),
            show_percent(one.mean),
            show_percent(one.max),
            one.busiest or "–",
        ]
        for name, result in results.items()
        for one in result.links
    ]
    header = ["result", "links", "count", "bandwidth", "used, mean", "used, most", "busiest"]
    note = "Directed links; of a topology, those of one plane."
    return _Table("links", "Links", header, rows, [0, 1, 6], note)


def _busiest(results: Mapping[str, TrainingResult]) -> _Table:
    most = MOST_ROWS if len(results) == 1 else 3
    rows = [
        [name, one.name, show_bandwidth(one.bandwidth_gbps), show_percent(one.utilisation)]
        for name, result in results.items()
        for one in result.busiest_links[:most]
    ]
    header = ["result", "link", "bandwidth", "used"]
    return _Table("busiest-links", "The busiest links", header, rows, [0, 1])


def _actors(results: Mapping[str, TrainingResult]) -> _Table:
    rows = [
        [
            name,
            one.name,
            f"{one.ranks:,}",
            f"{one.compute_us:,.3f}",
            f"{one.exposed_communication_us:,.3f}",
            f"{one.waiting_us:,.3f}",
        ]
        for name, result in results.items()
        if len(result.actors) > 1
        for one in result.actors
    ]
    header = ["result", "actor", "ranks", "compute (µs)", "exposed (µs)", "waiting (µs)"]
    left = len(rows) - MOST_ROWS
    note = f"{left:,} more are in the tables." if left > 0 else ""
    return _Table("actors", "Actors", header, rows[:MOST_ROWS], [0, 1], note)


def _memory(results: Mapping[str, TrainingResult]) -> _Table:
    rows = [
        [
            name,
            *(show_size(count) for _, count in one.memory.items()),
            show_size(one.memory_per_npu_bytes or 0),
            "–" if one.memory.capacity is None else show_size(one.memory.capacity),
        ]
        for name, one in results.items()
        if one.memory is not None
    ]
    kinds = ["parameters", "gradients", "optimizer", "activations"]
    header = ["result", *kinds, "together", "of"]
    return _Table("memory", "Memory of the fullest NPU", header, rows, [0])
