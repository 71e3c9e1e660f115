"""How fast one result is beside another: by what each does a second, as what they do may differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar


class Timed(Protocol):
    """What any result has."""

    @property
    def work(self) -> float:
        """How much it does: bytes of collectives or messages, samples of a step."""

    @property
    def took_us(self) -> float:
        """In how long, µs."""


T = TypeVar("T", bound=Timed)


def speedup(one: Timed, rival: Timed) -> float:
    """Return how many times as much one does a second.

    Args:
        one: A result.
        rival: What it is compared with.
    """
    return rival.took_us / one.took_us * (one.work / rival.work)


def fastest(results: Mapping[str, T]) -> tuple[str, T]:
    """Return the name of the result that does most a second, and it; the first of equals.

    Args:
        results: By name.
    """
    return max(results.items(), key=lambda item: item[1].work / item[1].took_us)


def alike(results: Mapping[str, Timed]) -> bool:
    """Return whether all do as much, so that their times say which is faster.

    Args:
        results: By name.
    """
    return len({one.work for one in results.values()}) == 1
