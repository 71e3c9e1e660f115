"""Messages from each rank to each other one: which of them, or which rank, is unlike the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

SLOW = 0.7
"""Of the median bandwidth: less is told."""
LATE = 2.0
"""Times the median of a small message: more is told."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What a pair of ranks exchanged, each with the other at once.

    Attributes:
        one: A rank.
        other: A larger one.
        small_us: A message of a few bytes, µs.
        gbps: Of large ones, in one direction, GB/s.
    """

    one: int
    other: int
    small_us: float
    gbps: float


def rounds(ranks: int) -> Iterator[list[tuple[int, int]]]:
    """Yield pairs that are apart from each other, until every two ranks have met once.

    Args:
        ranks: How many; of an odd number one rests in each round (the circle method).
    """
    circle: list[int | None] = [*range(ranks), *([None] if ranks % 2 else [])]
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        met = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield sorted(
            (min(one, other), max(one, other))
            for one, other in met
            if one is not None and other is not None
        )
        circle.insert(1, circle.pop())


def unlike(pairs: Sequence[Pair], inside: int) -> list[str]:
    """Say which ranks and pairs are slower than others of their kind; nothing of less than three.

    Args:
        pairs: All of a job.
        inside: Ranks of a machine: pairs within are compared with each other, and those across; 0
            where machines differ: all are compared.
    """
    kinds: dict[str, list[Pair]] = {}
    for pair in pairs:
        where = "" if not inside else "between machines"
        if inside and pair.one // inside == pair.other // inside:
            where = "within a machine"
        kinds.setdefault(where, []).append(pair)
    return [
        line for where, kind in kinds.items() if len(kind) >= 3 for line in _unlike(kind, where)
    ]


def _unlike(pairs: Sequence[Pair], where: str) -> list[str]:
    rate, time = median(pair.gbps for pair in pairs), median(pair.small_us for pair in pairs)
    slow = {(pair.one, pair.other): pair.gbps for pair in pairs if pair.gbps < SLOW * rate}
    late = {(pair.one, pair.other): pair.small_us for pair in pairs if pair.small_us > LATE * time}
    met: dict[int, int] = {}
    for pair in pairs:
        for rank in (pair.one, pair.other):
            met[rank] = met.get(rank, 0) + 1
    told, at = [], f" {where}" if where else ""
    for found, usual, unit in ((slow, rate, "GB/s"), (late, time, "us")):
        left = dict(found)
        for rank, count in met.items():
            mine = [value for pair, value in found.items() if rank in pair]
            # Of two ranks alone nobody can tell which one it is.
            if count > 1 and len(mine) == count:
                told.append(
                    f"rank {rank}: {median(mine):.3g} {unit} with every other{at}, where"
                    f" {usual:.3g} is usual"
                )
                left = {pair: value for pair, value in left.items() if rank not in pair}
        told += [
            f"ranks {one} and {other}: {value:.3g} {unit}{at}, where {usual:.3g} is usual"
            for (one, other), value in left.items()
        ]
    return told
