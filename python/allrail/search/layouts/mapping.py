"""Which degree lies on which dimension, where it is not as the core has it.

The core takes `tp`, `cp`, `ep`, `pp`, `dp` from the inside out. Here `dp` may lie inside of `pp`:
then gradients have the faster dimensions, and messages between stages the slower ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import Any

from allrail.search.layouts.tools import DP_INSIDE, PP_INSIDE

_ORDERS = {DP_INSIDE: ("tp", "cp", "ep", "dp", "pp")}
"""By the degree that lies inside."""
_USUAL = ("tp", "cp", "ep", "pp", "dp")


def maps(
    degrees: Mapping[str, int], dimensions: tuple[int, ...], npus: int
) -> dict[str, dict[str, list[str]]]:
    """Return other ways to lay degrees out that use other dimensions: `map` by what lies inside.

    Args:
        degrees: By axis.
        dimensions: Sizes, innermost first.
        npus: How many train.
    """
    taken = block(dimensions, npus, degrees["tp"])
    if taken is None:
        return {}
    dimensions = taken
    usual = _places(degrees, dimensions, _USUAL)
    found = {}
    for name, order in _ORDERS.items():
        places = _places(degrees, dimensions, order)
        if usual is None or places is None or _used(places) == _used(usual):
            continue
        found[name] = places
    return found


def block(dimensions: Sequence[int], ranks: int, together: int = 1) -> tuple[int, ...] | None:
    """Return the part of each dimension that a job takes; None if there is no such block.

    Of each dimension its first places, the inner ones as full as it goes, as the core takes them
    (`crates/simulate/src/training/part.rs`).

    Args:
        dimensions: Sizes of the fabric's, innermost first.
        ranks: Of the job.
        together: Ranks of a group of tensor parallelism, which lie within a dimension if they can.
    """
    if not dimensions:
        return () if ranks == 1 else None
    parts = [part for part in range(min(ranks, dimensions[0]), 0, -1) if ranks % part == 0]
    parts.sort(key=lambda part: part % together > 0 and together % part > 0)
    for part in parts:
        left = together // part if together % part == 0 else 1
        rest = block(dimensions[1:], ranks // part, left)
        if rest is not None:
            return part, *rest
    return None


def numberings(
    parallelism: Mapping[str, Any], dimensions: tuple[int, ...], npus: int
) -> tuple[str, ...]:
    """Return which numberings of ranks place a layout as its scenario does: `pp` inside, `dp`.

    Args:
        parallelism: As `workload.parallelism` has it, with all degrees.
        dimensions: Sizes, innermost first.
        npus: How many train.

    Returns:
        Both where they use the same dimensions, or nothing is known of them.
    """
    both = (PP_INSIDE, DP_INSIDE)
    taken = block(dimensions, npus, int(parallelism.get("tp") or 1))
    if taken is None:
        return both
    dimensions = taken
    degrees = {axis: int(parallelism.get(axis) or 1) for axis in _USUAL}
    orders = ((PP_INSIDE, _USUAL), (DP_INSIDE, _ORDERS[DP_INSIDE]))
    places = {name: _places(degrees, dimensions, order) for name, order in orders}
    used = {name: _used(own) for name, own in places.items() if own is not None}
    said = parallelism.get("map")
    if said:
        wanted = _used({axis: _factors(said[axis], dimensions) for axis in said if axis in degrees})
    elif PP_INSIDE in used:
        wanted = used[PP_INSIDE]
    else:
        return both
    return tuple(name for name, own in used.items() if own == wanted)


def parts_of(degrees: Mapping[str, int], dimensions: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return how much of each dimension an axis takes, and neighbouring axes together.

    Args:
        degrees: By axis.
        dimensions: Sizes, innermost first.

    Returns:
        The parts of single axes first; none where the degrees do not divide the dimensions.
    """
    taken = block(dimensions, prod(degrees.values()), degrees.get("tp", 1))
    places = None if taken is None else _places(degrees, taken, _USUAL)
    if taken is None or places is None:
        return []
    own = []
    for axis in _USUAL:
        part = [1] * len(taken)
        for place in places.get(axis, ()):
            dimension, count = _size(place)
            part[int(dimension)] *= count
        own.append(tuple(part))
    together = [
        tuple(prod(each) for each in zip(*own[first:last], strict=True))
        for first in range(len(own))
        for last in range(first + 2, len(own) + 1)
    ]
    return [*own, *together]


def _factors(places: Sequence[object], dimensions: tuple[int, ...]) -> list[str]:
    """Places of a `map` as `_places` writes them: `D[A:B]`."""
    found = []
    for place in places:
        dimension, _, part = str(place).rstrip("]").partition("[")
        low, _, high = part.partition(":")
        first = max(1, int(low or 1))
        found.append(f"{dimension}[{first}:{high or dimensions[int(dimension)]}]")
    return found


def _places(
    degrees: Mapping[str, int], dimensions: tuple[int, ...], order: tuple[str, ...]
) -> dict[str, list[str]] | None:
    """Factors of dimensions for each axis, from the inside out; None if they do not divide."""
    places: dict[str, list[str]] = {}
    at, used = 0, 1
    for axis in order:
        left = degrees[axis]
        while left > 1:
            if at == len(dimensions):
                return None
            take = gcd(left, dimensions[at] // used)
            if take > 1:
                places.setdefault(axis, []).append(f"{at}[{used}:{used * take}]")
            left //= take
            used *= take
            if used == dimensions[at]:
                at, used = at + 1, 1
            elif left > 1:
                return None
    return places


def _used(places: Mapping[str, list[str]]) -> dict[str, list[tuple[str, int]]]:
    """What counts in `dims`: by axis, the dimensions and how much of each."""
    return {axis: [_size(place) for place in own] for axis, own in places.items()}


def _size(place: str) -> tuple[str, int]:
    dimension, part = place.rstrip("]").split("[")
    low, high = part.split(":")
    return dimension, int(high) // int(low)
