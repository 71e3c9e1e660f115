"""Records of all ranks as one trace that Perfetto (ui.perfetto.dev) opens.

Chrome's trace events, as of simulated timelines (`allrail.output.trace`): one process a rank, and
in it tracks of steps, computing, waits, partitions and every dimension. Times are of the clock of
the first rank that is there; clocks of others are moved by what it knows of them, whose uncertainty
stands in the name of their process. On one machine all have one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from allrail.output.lanes import assign_lanes
from allrail.output.trace import SHORT, gzipped, name_event
from allrail.runtime.record import Record
from allrail.runtime.steps import steps_of

_TRACKS = 1000
"""So many tracks has a process for each kind of thing."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A slice of a track; times in µs."""

    name: str
    kind: str
    start_us: float
    end_us: float
    arguments: dict[str, Any]


def trace_gzip(records: Sequence[Record]) -> bytes:
    """Return the trace as a compressed file.

    Args:
        records: Of one or several ranks and models, one or more.
    """
    return gzipped({"displayTimeUnit": "ms", "traceEvents": trace_events(records)})


def trace_events(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the events of all ranks.

    Args:
        records: As for `trace_gzip`.
    """
    ahead, unsure = _clocks(records)
    firsts = [mark.start - ahead[one["rank"]] for one in records for mark in one["marks"][:1]] or [
        0
    ]
    begin = min(firsts)
    events: list[dict[str, Any]] = []
    models = sorted({one["model"] for one in records})
    for record in records:
        rank = record["rank"]
        process = rank + record["ranks"] * models.index(record["model"])
        label = f"rank {rank}"
        if len(models) > 1:
            label += f", {record['model']}"
        if unsure[rank]:
            label += f" (clock known to {unsure[rank] / 1e3:.0f} µs)"
        events.append(name_event("process_name", process, 0, label))
        events.append(_order("process_sort_index", process, 0, process))
        origin = begin + ahead[rank]
        for place, (title, spans) in enumerate(_tracks(record, origin)):
            events += _track(process, _TRACKS * (place + 1), title, spans)
    return events


def _clocks(records: Sequence[Record]) -> tuple[dict[int, int], dict[int, int]]:
    """By rank: how far its clock is ahead of the first one's, and how far that may be wrong, ns."""
    ahead = {one["rank"]: 0 for one in records}
    unsure = dict(ahead)
    first = min(records, key=lambda one: one["rank"])
    for peer in (first["report"] or {}).get("peers", []):
        # Within one machine the estimate is worse than what is known: one clock.
        if peer["offset"] is not None and abs(peer["offset"]) > peer["round_trip"] / 2:
            ahead[peer["rank"]] = peer["offset"]
            unsure[peer["rank"]] = peer["round_trip"] // 2
    return ahead, unsure


def _tracks(record: Record, origin: int) -> Iterable[tuple[str, list[_Span]]]:
    def span(name: str, kind: str, times: tuple[int, int], **arguments: Any) -> _Span:
        start, end = times
        return _Span(name, kind, (start - origin) / 1e3, (end - origin) / 1e3, arguments)

    names = [row["name"] for row in record["tensors"]]
    marks = record["marks"]
    yield (
        "steps",
        [
            span(f"step {number + 2}", "step", (step.start, step.end))
            for number, step in enumerate(steps_of(record))
        ],
    )
    forwards = [mark for mark in marks if mark.kind == "forward"]
    computing = [span("forward", "compute", (mark.start, mark.end)) for mark in forwards]
    rounds = [mark.start for mark in marks if mark.kind == "round"]
    ends = iter(rounds)
    after = next(ends, None)
    for mark in forwards:
        while after is not None and after < mark.end:
            after = next(ends, None)
        if after is not None:
            computing.append(span("backward", "compute", (mark.end, after)))
    yield "passes", computing
    yield (
        "entries of modules: waits and steps",
        [
            span(names[mark.tensor], "enter", (mark.start, mark.end))
            for mark in marks
            if mark.kind == "enter"
        ],
    )
    yield (
        "waits",
        [
            span(names[mark.tensor], "wait", (mark.start, mark.end))
            for mark in marks
            if mark.kind == "wait"
        ],
    )
    timeline = record["timeline"]
    if timeline is None:
        return
    called = timeline["names"]
    partitions = timeline["partitions"]
    yield (
        "partitions",
        [
            span(
                f"{called[one['name']]} part {one['part']}",
                one["operation"],
                (one["start"], one["end"]),
                exchange=one["generation"],
                bytes=one["bytes"],
            )
            for one in partitions
            if one["end"] is not None
        ],
    )
    stages = [one for one in timeline["stages"] if one["end"] is not None]
    for dimension in sorted({one["dimension"] for one in stages}):
        yield (
            f"dimension {dimension}",
            [
                span(
                    f"{called[partitions[one['partition']]['name']]}"
                    f" part {partitions[one['partition']]['part']}"
                    f" chunk {one['chunk']} {SHORT.get(one['operation'], one['operation'])}",
                    one["operation"],
                    (one["start"], one["end"]),
                    exchange=partitions[one["partition"]]["generation"],
                    stage=one["stage"],
                    bytes=one["bytes"],
                )
                for one in stages
                if one["dimension"] == dimension
            ],
        )


def _track(process: int, first: int, title: str, spans: list[_Span]) -> list[dict[str, Any]]:
    lanes, count = assign_lanes(spans)
    events = []
    for lane in range(count):
        suffix = f", lane {lane + 1}" if count > 1 else ""
        events.append(name_event("thread_name", process, first + lane, title + suffix))
        events.append(_order("thread_sort_index", process, first + lane, first + lane))
    for one, lane in zip(spans, lanes, strict=True):
        events.append(
            {
                "name": one.name,
                "cat": one.kind,
                "ph": "X",
                "ts": one.start_us,
                "dur": max(0.0, one.end_us - one.start_us),
                "pid": process,
                "tid": first + lane,
                "args": one.arguments,
            }
        )
    return events


def _order(event: str, process: int, track: int, place: int) -> dict[str, Any]:
    return {
        "name": event,
        "ph": "M",
        "pid": process,
        "tid": track,
        "args": {"sort_index": place},
    }
