"""How fast one result is beside another: by what each does a second, as what they do may differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar


class Timed(Protocol):
    """What any result has."""

    @property
    def work(self) -> float:
        """How much it does: bytes of collectives or messages, samples of a step."""

    @property
    def time_us(self) -> float:
        """In how long, µs."""


T = TypeVar("T", bound=Timed)


def speedup(one: Timed, rival: Timed) -> float:
    """Return how many times as much one does a second.

    Args:
        one: A result.
        rival: What it is compared with.
    """
    return rival.time_us / one.time_us * (one.work / rival.work)


def fastest(results: Mapping[str, T]) -> tuple[str, T]:
    """Return the name of the result that does most a second, and it; the first of equals.

    Args:
        results: By name.
    """
    return max(results.items(), key=lambda item: item[1].work / item[1].time_us)


SAME = 5e-4
"""Results whose speeds differ by less are told as equally fast: a twentieth of a percent is below
what any of the network models resolves, and mostly rounds to the same four digits. Chosen."""


def leaders(results: Mapping[str, T]) -> list[str]:
    """Return the names of all results that are as fast as the fastest, to within `SAME`.

    Args:
        results: By name.
    """
    rates = {name: one.work / one.time_us for name, one in results.items()}
    best = max(rates.values())
    return [name for name, rate in rates.items() if rate >= best * (1 - SAME)]


def equally_fast(names: Sequence[str], *, of: int, verb: str = "are equally fast") -> str:
    """Return the words for several results that are as fast as each other.

    Args:
        names: Of those.
        of: How many were compared.
        verb: What they do alike.
    """
    if len(names) == of and of > 2:
        return f"All {of:,} {verb}"
    shown = list(names[:3])
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else f" and {shown.pop()}"
    return f"{', '.join(shown)}{more} {verb}"


def alike(results: Mapping[str, Timed]) -> bool:
    """Return whether all do as much, so that their times say which is faster.

    Args:
        results: By name.
    """
    return len({one.work for one in results.values()}) == 1
