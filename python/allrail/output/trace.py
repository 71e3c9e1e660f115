"""A timeline as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Chrome's trace event format: one process a result, one track a dimension, one slice a stage from its
first byte to its last; the slice's arguments say when its latency was over.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from typing import Any

from allrail.output.lanes import assign_lanes
from allrail.results.result import CollectivesResult

SHORT = {
    "reduce_scatter": "RS",
    "all_gather": "AG",
    "all_reduce": "AR",
    "all_to_all": "A2A",
    "broadcast": "BC",
}
"""The field's abbreviations of the operations."""


def trace_events(results: Mapping[str, CollectivesResult]) -> list[dict[str, Any]]:
    """The events of one or several results.

    Args:
        results: By the name of their process; those without a timeline are left out.
    """
    events: list[dict[str, Any]] = []
    for process, (name, result) in enumerate(results.items(), start=1):
        if result.timeline is None:
            continue
        events.append(name_event("process_name", process, 0, f"{name} ({result.network_model})"))
        track = 0
        for index, dimension in enumerate(result.dimensions):
            spans = [span for span in result.timeline if span.dimension == index]
            lanes, count = assign_lanes(spans)
            label = f"{dimension.name} {dimension.kind} of {dimension.size}"
            for lane in range(max(count, 1)):
                suffix = f", lane {lane + 1}" if count > 1 else ""
                events.append(name_event("thread_name", process, track + lane, label + suffix))
                events.append(
                    {
                        "name": "thread_sort_index",
                        "ph": "M",
                        "pid": process,
                        "tid": track + lane,
                        "args": {"sort_index": track + lane},
                    }
                )
            for span, lane in zip(spans, lanes, strict=True):
                short = SHORT.get(span.operation, span.operation)
                events.append(
                    {
                        "name": f"chunk {span.chunk} stage {span.stage} {short}",
                        "cat": span.operation,
                        "ph": "X",
                        "ts": span.start_us,
                        "dur": max(0.0, span.end_us - span.start_us),
                        "pid": process,
                        "tid": track + lane,
                        "args": {
                            "collective": result.collectives[span.collective].name,
                            "chunk": span.chunk,
                            "stage": span.stage,
                            "operation": span.operation,
                            "bytes": span.bytes,
                            "finish_us": span.finish_us,
                        },
                    }
                )
            track += max(count, 1)
    return events


def trace_gzip(results: Mapping[str, CollectivesResult]) -> bytes:
    """The trace as a compressed file; the same results give the same bytes.

    Args:
        results: By the name of their process.
    """
    return gzipped({"displayTimeUnit": "ns", "traceEvents": trace_events(results)})


def gzipped(tree: Mapping[str, Any]) -> bytes:
    """A trace as a compressed file; the same trace gives the same bytes.

    Args:
        tree: With `traceEvents`.
    """
    return zipped(json.dumps(tree, separators=(",", ":"), ensure_ascii=False))


def zipped(text: str) -> bytes:
    """A text as a compressed file; the same text gives the same bytes.

    Args:
        text: Of the file.
    """
    data = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=data, mode="wb", compresslevel=6, mtime=0) as file:
        file.write(text.encode())
    return data.getvalue()


def name_event(event: str, process: int, track: int, name: str) -> dict[str, Any]:
    """The event that gives a process or a track its name.

    Args:
        event: `process_name` or `thread_name`.
        process: Its number.
        track: Its number; 0 of a process.
        name: What it is called.
    """
    return {"name": event, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
