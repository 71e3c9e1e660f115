"""What a dimension carried in a run.

Stages overlap on a dimension, and one may end at once because a peer had sent before: so not stages
are looked at but the times in which any was under way, each with all bytes that this rank sent in
it. What the dimension carries is the rate that half of all bytes were sent below; how far other
bytes were from it is its error. What a stage takes beside its bytes does not show in a run whose
stages overlap: it stays as planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from allrail.runtime.record import Record
from allrail.runtime.report import merged, rate

_SCATTERED = 0.5
"""A rate is not trusted whose error is larger."""
_COLD = 10
"""One in so many stages, the first: they find connections and buffers cold."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A dimension as it was measured.

    Attributes:
        dimension: Its number.
        gbps: What it carries in one direction, Gb/s.
        error: Half of all bytes were sent at a rate that is nearer to it than this, over it.
        bytes: That were sent.
    """

    dimension: int
    gbps: float
    error: float
    bytes: int

    @property
    def trusted(self) -> bool:
        """Whether the rates are near enough to each other for one to be told."""
        return self.error <= _SCATTERED


def carried(records: Sequence[Record]) -> list[Carried]:
    """Say what every dimension of a run carried.

    Args:
        records: Of the ranks of one model.
    """
    rates: dict[int, list[tuple[float, int]]] = {}
    for record in records:
        for dimension, spans in _busy(record).items():
            mine = [(rate(*span), span[2]) for span in spans if span[2] and span[1] > span[0]]
            rates.setdefault(dimension, []).extend(mine)
    found = []
    for dimension, seen in sorted(rates.items()):
        if not seen:
            continue
        usual = middle(seen)
        error = middle([(abs(one / usual - 1), sent) for one, sent in seen])
        found.append(Carried(dimension, usual, error, sum(sent for _, sent in seen)))
    return found


def _busy(record: Record) -> dict[int, list[tuple[int, int, int]]]:
    """By dimension: start, end and bytes of each time in which a stage was under way."""
    timeline = record["timeline"]
    if timeline is None:
        return {}
    by: dict[int, list[tuple[int, int, int]]] = {}
    ended = [stage for stage in timeline["stages"] if stage["end"] is not None]
    for stage in sorted(ended, key=lambda one: one["start"])[len(ended) // _COLD :]:
        one = (stage["start"], stage["end"], stage["bytes"])
        by.setdefault(int(stage["dimension"]), []).append(one)
    return {dimension: merged(spans) for dimension, spans in by.items()}


def middle(values: Iterable[tuple[float, int]]) -> float:
    """Return the value that half of all weights lie below.

    Args:
        values: Each with its weight, such as bytes.
    """
    ordered = sorted(values)
    sums = list(accumulate(sent for _, sent in ordered))
    return next(
        value for (value, _), below in zip(ordered, sums, strict=True) if 2 * below >= sums[-1]
    )
