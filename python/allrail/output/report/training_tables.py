"""The tables of a report of training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allrail.base.units import show_bandwidth, show_duration, show_number, show_size
from allrail.output.report.document import Cell, Cells, Table, bandwidth, microseconds, share
from allrail.results.compared import speedup
from allrail.results.training_parts import Memory
from allrail.results.training_result import TrainingResult

MOST_ROWS = 40
WhatIfs = Sequence[Mapping[str, Any]]
"""Entries of `what_ifs` in `result.json`."""


def assumption(one: Mapping[str, Any]) -> str:
    """An assumption as people read it.

    Args:
        one: An entry of `what_ifs` in `result.json`.
    """
    return str(one["name"]).replace("_", " ")


def results(results: Mapping[str, TrainingResult]) -> Table:
    """A row a result.

    Args:
        results: By name.
    """
    first = next(iter(results.values()))
    rows: list[Cells] = [
        [
            name,
            microseconds(one.step_time_us),
            Cell(f"{speedup(one, first):.3f}", speedup(one, first)),
            _samples(one),
            share(one.compute_us / one.step_time_us),
            share(one.exposed_communication_us / one.step_time_us),
            share(one.waiting_us / one.step_time_us),
            microseconds(one.bound_step_time_us),
            one.tensor_policy,
            f"{one.policy}, {one.order.replace('_', ' ')}",
            one.network_model,
        ]
        for name, one in results.items()
    ]
    header = ["result", "step (µs)", "speed-up", "samples/s", "compute", "exposed", "waiting"]
    return Table(
        "steps", [*header, "bound (µs)", "tensors", "policy", "network_model"], rows, [0, 8, 9, 10]
    )


def _samples(one: TrainingResult) -> Cell | str:
    if one.throughput is None:
        return "–"
    rate = one.throughput.samples_per_s
    return Cell(show_number(rate, 6), rate)


def what_ifs(rows_of: WhatIfs) -> list[Table]:
    """A row an assumption.

    Args:
        rows_of: Entries of `what_ifs` in `result.json`.
    """
    rows: list[Cells] = [
        [
            assumption(one),
            microseconds(one["step_time_us"]),
            Cell(f"{one['speedup']:.3f}", one["speedup"]),
            share(one["exposed_communication_us"] / one["step_time_us"]),
        ]
        for one in rows_of
    ]
    header = ["what if", "step (µs)", "speed-up", "exposed"]
    return [Table("assumptions", header, rows, [0])] if rows else []


def critical(results: Mapping[str, TrainingResult]) -> Table:
    """The critical path, parts of one kind added up.

    Args:
        results: By name.
    """
    most = MOST_ROWS if len(results) == 1 else 3
    rows: list[Cells] = [
        [
            name,
            one.what,
            one.purpose or "–",
            one.dimension or "–",
            one.actor or "–",
            Cell(f"{count:,}", count),
            microseconds(one.time_us),
            share(one.share),
            one.name or "–",
        ]
        for name, result in results.items()
        for one, count in result.path_by_kind()[:most]
    ]
    header = [
        "result",
        "what",
        "for",
        "on",
        "actor",
        "parts",
        "time (µs)",
        "of the step",
        "longest",
    ]
    note = "Parts of one kind are added up; every one of them is in the tables."
    return Table("path", header, rows, [0, 1, 2, 3, 4, 8], note=note)


def exposed(results: Mapping[str, TrainingResult]) -> Table:
    """Exposed communication by what it is for.

    Args:
        results: By name.
    """
    used = {name for one in results.values() for name, us in one.exposed_us.items() if us > 0}
    header = [name for name, _ in next(iter(results.values())).exposed_us.items() if name in used]
    rows: list[Cells] = [
        [name, *(microseconds(us) for purpose, us in one.exposed_us.items() if purpose in used)]
        for name, one in results.items()
        if used
    ]
    names = ["result", *(f"{name} (µs)" for name in header)]
    title = "Exposed communication by what it is for"
    return Table("exposed", names, rows, [0], title=title)


def passes(results: Mapping[str, TrainingResult]) -> Table:
    """The step by pass.

    Args:
        results: By name.
    """
    rows: list[Cells] = [
        [
            name,
            part,
            microseconds(one.time_us),
            microseconds(one.compute_us),
            microseconds(one.exposed_us),
            microseconds(one.waiting_us),
            share(one.time_us / result.step_time_us),
        ]
        for name, result in results.items()
        for part, one in result.passes.items()
        if one.time_us > 0
    ]
    header = ["result", "pass", "time (µs)", "compute (µs)", "exposed (µs)", "waiting (µs)"]
    note = "Exposed gradients count to the backward pass, gathered parameters to the update."
    return Table("passes", [*header, "of the step"], rows, [0, 1], title="By pass", note=note)


def train(results: Mapping[str, TrainingResult]) -> Table:
    """What all of the training takes.

    Args:
        results: By name.
    """
    rows: list[Cells] = []
    for name, result in results.items():
        one = result.time_to_train
        if one is None:
            continue
        numbers = (one.npu_hours, one.cost, one.energy_kwh)
        cells = ["–" if value is None else Cell(show_number(value), value) for value in numbers]
        steps = Cell(f"{one.steps:,}", one.steps)
        rows.append([name, steps, Cell(show_duration(one.time_s), one.time_s), *cells])
    header = ["result", "steps", "time", "NPU hours", "cost", "energy (kWh)"]
    note = "Steps times a steady step: evaluation, checkpoints and failures are not counted."
    return Table("time-to-train", header, rows, [0], title="Time to train", note=note)


def dimensions(results: Mapping[str, TrainingResult]) -> Table:
    """A row a result and dimension.

    Args:
        results: By name.
    """
    rows: list[Cells] = [
        [
            name,
            one.name,
            one.kind.replace("_", " "),
            Cell(f"{one.size:,}", one.size),
            bandwidth(one.bandwidth_gbps, one.line_rate_gbps),
            Cell(show_size(one.bytes_per_npu), one.bytes_per_npu),
            share(one.utilisation),
            share(one.busy_fraction),
        ]
        for name, result in results.items()
        for one in result.dimensions
    ]
    header = ["result", "dimension", "kind", "size", "bandwidth", "sent per NPU", "used", "busy"]
    return Table("dimensions", header, rows, [0, 1, 2], title="Dimensions")


def links(results: Mapping[str, TrainingResult]) -> Table:
    """Classes of links, in network models of messages.

    Args:
        results: By name.
    """
    rows: list[Cells] = [
        [
            name,
            one.name,
            Cell(f"{one.links:,}", one.links),
            Cell(show_bandwidth(one.bandwidth_gbps), one.bandwidth_gbps),
            share(one.mean),
            share(one.max),
            one.busiest or "–",
        ]
        for name, result in results.items()
        for one in result.links
    ]
    header = ["result", "links", "count", "bandwidth", "used, mean", "used, most", "busiest"]
    note = "Directed links; of a topology, those of one plane."
    return Table("links", header, rows, [0, 1, 6], title="Links", note=note)


def busiest(results: Mapping[str, TrainingResult]) -> Table:
    """The busiest links, in network models of messages.

    Args:
        results: By name.
    """
    most = MOST_ROWS if len(results) == 1 else 3
    rows: list[Cells] = [
        [
            name,
            one.name,
            Cell(show_bandwidth(one.bandwidth_gbps), one.bandwidth_gbps),
            share(one.utilisation),
        ]
        for name, result in results.items()
        for one in result.busiest_links[:most]
    ]
    header = ["result", "link", "bandwidth", "used"]
    return Table("busiest-links", header, rows, [0, 1], title="The busiest links")


def actors(results: Mapping[str, TrainingResult]) -> Table:
    """A row an actor, where there are several.

    Args:
        results: By name.
    """
    rows: list[Cells] = [
        [
            name,
            one.name,
            Cell(f"{one.ranks:,}", one.ranks),
            microseconds(one.compute_us),
            microseconds(one.exposed_communication_us),
            microseconds(one.waiting_us),
        ]
        for name, result in results.items()
        if len(result.actors) > 1
        for one in result.actors
    ]
    header = ["result", "actor", "ranks", "compute (µs)", "exposed (µs)", "waiting (µs)"]
    left = len(rows) - MOST_ROWS
    note = f"{left:,} more are in the tables." if left > 0 else ""
    return Table("actors", header, rows[:MOST_ROWS], [0, 1], note=note)


def memory(results: Mapping[str, TrainingResult]) -> Table:
    """What the fullest NPU keeps.

    Args:
        results: By name.
    """
    known = {name: one.memory for name, one in results.items() if one.memory is not None}
    used = [kind for kind in Memory.PARTS if any(dict(one.items())[kind] for one in known.values())]
    rows: list[Cells] = []
    for name, one in known.items():
        parts = dict(one.items())
        rows.append(
            [
                name,
                *(_bytes(parts[kind]) for kind in used),
                _bytes(one.total),
                _bytes(one.needed),
                "–" if one.capacity is None else _bytes(one.capacity),
                {True: "yes", False: "no", None: "–"}[one.fits],
            ]
        )
    header = ["result", *used, "total", "needed at least", "capacity", "fits"]
    return Table("memory", header, rows, [0, len(header) - 1], title="Memory of the fullest NPU")


def _bytes(count: float) -> Cell:
    return Cell(show_size(count), count)
