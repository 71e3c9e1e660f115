"""Timelines of training steps as traces that Perfetto opens and analysers of PyTorch traces read.

The format is Kineto's (the profiler of PyTorch): Chrome's trace events, `cat: kernel`, the stream
and the device among the arguments. One process an actor, which stands for all its alike ranks under
the number of its first; one stream for compute, one for each dimension, or for each set of them
that a group spans in network models of messages. What is sent there
is named as Kineto names the kernel of that collective, with the arguments that it records: the
elements that go in and come out, their type, the group. A collective that a dimension serves in
several slices has its elements shared out over them by their length.

Analysers take one file a rank: `trace_of` with one actor is such a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allrail.output.lanes import assign_lanes
from allrail.output.trace import zipped
from allrail.results.training_parts import ActorResult, Slice
from allrail.results.training_result import TrainingResult

COMPUTE_STREAM = 7
"""PyTorch's usual one."""
FIRST_STREAM = 20
"""Of the dimensions; streams of one dimension are `STRIDE` apart from the next one's."""
STRIDE = 1000
STEPS = 1
"""The track of the iterations."""

_TYPES = {
    "fp32": ("f32", "Float", 4),
    "fp16": ("f16", "Half", 2),
    "bf16": ("bf16", "BFloat16", 2),
    "fp8": ("f8e4m3", "Float8_e4m3fn", 1),
}
"""Of a precision: NCCL's name, PyTorch's name, bytes."""

_KERNELS = {
    "all_reduce": ("AllReduce_Sum_{}_RING_LL", "allreduce"),
    "reduce_scatter": ("ReduceScatter_Sum_{}_RING_LL", "_reduce_scatter_base"),
    "all_gather": ("AllGather_RING_LL", "_allgather_base"),
    "broadcast": ("Broadcast_RING_LL", "broadcast"),
    "all_to_all": ("SendRecv", "all_to_all"),
    "send": ("SendRecv", "send"),
    "receive": ("SendRecv", "recv"),
}
"""Of an operation: NCCL's kernel, PyTorch's name of the collective."""


@dataclass(frozen=True, slots=True)
class Named:
    """A result to be traced.

    Attributes:
        name: Of the result.
        result: With a timeline.
        precision: Of what is communicated.
    """

    name: str
    result: TrainingResult
    precision: str = "fp16"


def kernel_name(operation: str | None, precision: str = "fp16") -> str:
    """Return what Kineto calls the kernel of an operation.

    Args:
        operation: Such as `all_reduce`; None if it is not known.
        precision: Of what is communicated.
    """
    kernel = _KERNELS.get(operation or "", ("Generic", ""))[0].format(_TYPES[precision][0])
    return f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"


def elements(operation: str | None, count: float, ranks: int) -> tuple[int, int]:
    """Return how many elements an operation takes in and gives out on one rank.

    Args:
        operation: Such as `all_reduce`.
        count: Elements of its buffer: the input of a reduce-scatter, the output of an all-gather.
        ranks: How many take part.
    """
    whole, part = round(count), round(count / max(ranks, 1))
    if operation == "reduce_scatter":
        return whole, part
    if operation == "all_gather":
        return part, whole
    if operation == "send":
        return whole, 0
    if operation == "receive":
        return 0, whole
    return whole, whole


def first_ranks(actors: Sequence[ActorResult]) -> dict[str, int]:
    """Return the rank under whose number each actor is shown, by name.

    Args:
        actors: In their order.
    """
    return {
        actor.name: index if actor.first_rank is None else actor.first_rank
        for index, actor in enumerate(actors)
    }


def trace_of(
    shown: Sequence[Named], *, actor: str | None = None, first_process: int = 0
) -> dict[str, Any]:
    """The trace of one or several results.

    Args:
        shown: Those without a timeline are left out.
        actor: Show this one alone; all if None.
        first_process: The number of the first process.
    """
    events: list[dict[str, Any]] = []
    process = first_process
    ranks: list[int] = []
    for one in shown:
        timeline = one.result.timeline
        if timeline is None:
            continue
        numbers = first_ranks(one.result.actors)
        for each in one.result.actors:
            if actor is not None and each.name != actor:
                continue
            mine = [piece for piece in timeline if piece.actor == each.name]
            if not mine:
                continue
            rank = numbers[each.name]
            ranks.append(rank)
            label = f"{one.name}: {each.name}, rank {rank}"
            if each.ranks > 1:
                label += f" for {each.ranks:,} alike"
            events += _process(one, label, mine, process=process, events_before=len(events))
            process += 1
    world_size = max((one.result.npus for one in shown), default=0)
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "distributedInfo": {
            "backend": "nccl",
            "rank": min(ranks, default=0),
            "world_size": world_size,
        },
        "traceEvents": events,
    }


def compressed(tree: Mapping[str, Any]) -> bytes:
    """The trace as a compressed file, an event a line; the same trace gives the same bytes.

    Analysers look for `"rank": 0` with a space before they read the file.

    Args:
        tree: What `trace_of` returns.
    """
    events = tree["traceEvents"]
    head = {key: value for key, value in tree.items() if key != "traceEvents"}
    lines = [json.dumps(event, separators=(",", ":"), ensure_ascii=False) for event in events]
    opening = json.dumps(head, ensure_ascii=False)[:-1]
    return zipped(f'{opening},\n"traceEvents": [\n' + ",\n".join(lines) + "\n]}\n")


def _process(
    one: Named, label: str, mine: Sequence[Slice], *, process: int, events_before: int
) -> list[dict[str, Any]]:
    events = [_meta("process_name", process, 0, {"name": label})]
    events.append(_meta("process_sort_index", process, 0, {"sort_index": process}))
    events += _steps(one.result, process)
    dimensions = [dimension.name for dimension in one.result.dimensions]
    about = {d.name: f"{d.name} {d.kind} of {d.size}" for d in one.result.dimensions}
    others = sorted({piece.track for piece in mine} - {"compute", *dimensions})
    for place, track in enumerate(["compute", *dimensions, *others]):
        pieces = [piece for piece in mine if piece.track == track]
        whole: dict[tuple[object, ...], float] = {}
        for piece in pieces:
            key = _collective(piece)
            whole[key] = whole.get(key, 0.0) + piece.end_us - piece.start_us
        lanes, count = assign_lanes(pieces)
        base = COMPUTE_STREAM if place == 0 else FIRST_STREAM + STRIDE * (place - 1)
        for lane in range(max(count, 1)):
            suffix = f", lane {lane + 1}" if count > 1 else ""
            name = {"name": about.get(track, track) + suffix}
            events.append(_meta("thread_name", process, base + lane, name))
            order = {"sort_index": STRIDE * place + lane}
            events.append(_meta("thread_sort_index", process, base + lane, order))
        for piece, lane in zip(pieces, lanes, strict=True):
            length = whole[_collective(piece)]
            share = (piece.end_us - piece.start_us) / length if length > 0 else 1.0
            place_on = {"device": process, "stream": base + lane}
            number = {"correlation": events_before + len(events)}
            events.append(_slice(one, piece, {**place_on, **number}, share=share))
    return events


def _steps(result: TrainingResult, process: int) -> list[dict[str, Any]]:
    """The iterations, not under the names of PyTorch's profiler.

    Analysers that see these names keep only kernels that a CPU has launched; there is no CPU here.
    """
    events = [_meta("thread_name", process, STEPS, {"name": "steps"})]
    events.append(_meta("thread_sort_index", process, STEPS, {"sort_index": -1}))
    start = 0.0
    for number, length in enumerate(result.steps_us):
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"step {number}",
                "pid": process,
                "tid": STEPS,
                "ts": start,
                "dur": length,
                "args": {},
            }
        )
        start += length
    return events


def _collective(piece: Slice) -> tuple[object, ...]:
    """What tells a collective from the others of its track."""
    if piece.communication is not None:
        return (piece.communication,)
    return piece.iteration, piece.name, piece.operation, piece.bytes


def _slice(one: Named, piece: Slice, arguments: dict[str, Any], *, share: float) -> dict[str, Any]:
    name = piece.name
    if piece.track == "compute":
        arguments["pass"] = piece.work_pass
    else:
        name = kernel_name(piece.operation, one.precision)
        arguments |= _communication(piece, one.precision, share)
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": arguments["device"],
        "tid": arguments["stream"],
        "ts": piece.start_us,
        "dur": max(0.0, piece.end_us - piece.start_us),
        "args": arguments,
    }


def _communication(piece: Slice, precision: str, share: float) -> dict[str, Any]:
    _, dtype, size = _TYPES[precision]
    arguments: dict[str, Any] = {"work": piece.name, "purpose": piece.purpose}
    if piece.operation is not None:
        arguments["Collective name"] = _KERNELS.get(piece.operation, ("", piece.operation))[1]
    arguments["dtype"] = dtype
    if piece.bytes is not None:
        taken, given = elements(piece.operation, share * piece.bytes / size, piece.group_size or 1)
        arguments |= {"In msg nelems": taken, "Out msg nelems": given}
        arguments |= {"In split size": "[]", "Out split size": "[]"}
    if piece.group_size is not None:
        arguments["Group size"] = piece.group_size
    arguments["Process Group Name"] = piece.group or piece.purpose or "world"
    arguments["Process Group Description"] = f"{piece.purpose or 'other'} on {piece.track}"
    return arguments


def _meta(event: str, process: int, track: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": event, "ph": "M", "pid": process, "tid": track, "ts": 0, "args": arguments}
