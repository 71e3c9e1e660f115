"""Dumps of torch's Flight Recorder in the form of the profiler's traces, which the core reads.

Each kernel begins when it was called, or when the one before it on its group's stream ended, and
takes as long as was recorded. What the host did in between is a gap. Calls that were coalesced lie
before the launch of their one kernel, as the profiler shows them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.base.units import show_count
from allrail.formats.flight_recorder import Call, Dump, Unit, units


def write_traces(dumps: Sequence[Dump], folder: Path) -> list[Path]:
    """Write a trace of the profiler's form for each dump.

    Args:
        dumps: Of one rank for all, or of every rank.
        folder: Where they go; it is made.

    Returns:
        The files, by rank.

    Raises:
        InputError: No call has a duration.
    """
    if not any(unit.duration_us is not None for dump in dumps for unit in units(dump)):
        raise no_durations(dumps)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for place, dump in enumerate(dumps):
        path = folder / f"rank{place if dump.rank is None else dump.rank}.json"
        path.write_text(json.dumps(as_kineto(dump)), encoding="utf-8")
        files.append(path)
    return files


def no_durations(dumps: Sequence[Dump]) -> InputError:
    """Return what is said of dumps without any duration.

    Args:
        dumps: All of them.
    """
    calls = sum(len(one.calls) for one in dumps)
    return InputError(
        f"it has no durations: {show_count(calls, 'entry', 'entries')}",
        source=dumps[0].source,
        hint="run the job with `TORCH_NCCL_ENABLE_TIMING=1`; gloo records no durations",
    )


def left_out(dumps: Sequence[Dump]) -> list[str]:
    """Return what is said of entries that have no duration, or were never over.

    Args:
        dumps: All of them.
    """
    notes = []
    every = [unit for dump in dumps for unit in units(dump)]
    untimed = sum(unit.duration_us is None for unit in every)
    if untimed:
        of = show_count(len(every), "recorded kernel")
        notes.append(f"left out, without a duration: {untimed} of {of}")
    hung = sum(not call.completed for dump in dumps for call in dump.calls)
    if hung:
        notes.append(
            show_count(hung, "recorded call was", "recorded calls were")
            + " not over when the dump was written"
        )
    return notes


def as_kineto(dump: Dump) -> dict[str, Any]:
    """Return a dump as a trace of PyTorch's profiler.

    Args:
        dump: Of one rank.
    """
    streams: dict[str, int] = {}
    ends: dict[str, float] = {}
    events: list[dict[str, Any]] = []
    for number, unit in enumerate(units(dump)):
        if unit.duration_us is None:
            continue
        group = unit.calls[0].group
        start = max(unit.calls[-1].created_us, ends.get(group, 0.0))
        ends[group] = start + unit.duration_us
        stream = streams.setdefault(group, 20 + len(streams))
        alone = len(unit.calls) == 1
        args = _arguments(unit.calls[0], dump) if alone else {}
        if not alone:
            events += _calls(unit, dump, number)
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"ncclDevKernel ({unit.calls[0].name})",
                "ts": start,
                "dur": unit.duration_us,
                "args": {"stream": stream, "correlation": number, **args},
            }
        )
    told: dict[str, Any] = {}
    if dump.rank is not None:
        told["rank"] = dump.rank
    if "0" in dump.groups:  # the default group
        told["world_size"] = len(dump.groups["0"])
    return {"distributedInfo": told, "traceEvents": events}


def _calls(unit: Unit, dump: Dump, number: int) -> list[dict[str, Any]]:
    """The calls of a group, each on the host before the next, and the launch after the last."""
    last = unit.calls[-1].created_us
    common = {"ph": "X", "pid": 1, "tid": f"group {number}"}
    events = [
        {
            **common,
            "cat": "cpu_op",
            "name": "record_param_comms",
            "ts": last - 2.0 * (len(unit.calls) - place),
            "dur": 1.0,
            "args": _arguments(call, dump),
        }
        for place, call in enumerate(unit.calls)
    ]
    launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": last, "dur": 1.0}
    return [*events, {**common, **launch, "args": {"correlation": number}}]


def _arguments(call: Call, dump: Dump) -> dict[str, Any]:
    ranks = dump.groups.get(call.group)
    name, _, ends = call.name.partition(" ")
    args: dict[str, Any] = {
        "Collective name": name,
        "In msg nelems": sum(call.inputs),
        "Out msg nelems": sum(call.outputs),
        "dtype": call.dtype,
        "Process Group Name": call.group,
    }
    if ranks:
        args |= {"Process Group Ranks": list(ranks), "Group size": len(ranks)}
    peer = ends.replace("<-", "->").partition("->")[2]
    if call.message and peer.isdigit() and ranks and int(peer) < len(ranks):
        args["Src Rank" if name.startswith("recv") else "Dst Rank"] = ranks[int(peer)]
    return args
