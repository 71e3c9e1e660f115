"""How long each exchange took, and how long the simulator says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from allrail.results.training_result import TrainingResult
from allrail.runtime.record import Record


@dataclass(frozen=True, slots=True)
class Exchange:
    """A tensor's exchange, from its first byte to its last.

    Attributes:
        name: Of the tensor.
        bytes: That it has.
        measured_ms: The median over steps and ranks.
        predicted_ms: None if the simulator has none of that name.
    """

    name: str
    bytes: int
    measured_ms: float
    predicted_ms: float | None


def exchanges(records: Sequence[Record], predicted: TrainingResult) -> list[Exchange]:
    """Return every tensor's exchange, the longest first.

    Args:
        records: Of the ranks of one model.
        predicted: The simulation of the same job, with its timeline.
    """
    said = _predicted(predicted)
    found = []
    for name, (size, times) in _measured(records).items():
        found.append(Exchange(name, size, median(times) / 1e6, said.get(name)))
    return sorted(found, key=lambda one: -one.measured_ms)


def _measured(records: Sequence[Record]) -> dict[str, tuple[int, list[int]]]:
    found: dict[str, tuple[int, list[int]]] = {}
    for record in records:
        timeline = record["timeline"]
        if timeline is None:
            continue
        tensors = record["tensors"]
        # Parts of one exchange of a tensor have its name and generation.
        parts: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for one in timeline["partitions"]:
            if one["end"] is not None:
                key = (one["name"], one["generation"])
                parts.setdefault(key, []).append((one["start"], one["end"], one["bytes"]))
        for (name, generation), spans in parts.items():
            if name >= len(tensors) or generation == 0:
                continue
            size = sum(amount for *_, amount in spans)
            took = max(end for _, end, _ in spans) - min(start for start, *_ in spans)
            found.setdefault(tensors[name]["name"], (size, []))[1].append(took)
    return found


def _predicted(result: TrainingResult) -> dict[str, float]:
    """Milliseconds of the last iteration, by the tensor's name."""
    last = result.iterations - 1
    spans: dict[str, tuple[float, float]] = {}
    for one in result.timeline or ():
        if one.communication is None or one.iteration != last or one.purpose != "data":
            continue
        name = one.name.split(" gradient", maxsplit=1)[0]
        start, end = spans.get(name, (one.start_us, one.end_us))
        spans[name] = (min(start, one.start_us), max(end, one.end_us))
    return {name: (end - start) / 1e3 for name, (start, end) in spans.items()}
