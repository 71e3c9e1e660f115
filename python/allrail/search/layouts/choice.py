"""Which of the layouts that are as fast is recommended, and which are one but for their name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allrail.search.layouts.trial import Bounded, Ranked

WITHIN = 0.01
"""Steps that differ by less are as fast: chosen, as predictions of layouts that differ by less are
in no order that anybody has measured."""

_Place = tuple[int, float, int, str]


def simplicity(one: Ranked | Bounded) -> _Place:
    """Return the place of a layout among those that are as fast: the least is recommended.

    The fewest kinds of parallelism, then the least memory, then the shortest name.

    Args:
        one: The layout; its step does not count.
    """
    name = one.layout.name
    return one.layout.kinds, one.memory_gb, name.count(","), name


@dataclass(frozen=True, slots=True)
class Row:
    """Layouts that are the same but for their name.

    Attributes:
        ranked: The simplest of them.
        others: The rest.
    """

    ranked: Ranked
    others: tuple[Ranked, ...] = ()


def by_time(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return layouts with the fastest first; of those as fast the simplest.

    Args:
        ranked: The layouts.
    """
    return sorted(ranked, key=lambda one: (one.step_s, simplicity(one)))


def folded(ranked: Sequence[Ranked]) -> list[Row]:
    """Return one row for all layouts with the same step, memory, losses and tools.

    Args:
        ranked: Layouts.
    """
    rows: dict[object, list[Ranked]] = {}
    for one in by_time(ranked):
        same = (one.step_s, one.memory_gb, one.recompute, one.lost, one.binding, *one.tools)
        rows.setdefault(same, []).append(one)
    return [Row(first, tuple(others)) for first, *others in rows.values()]


def recommended(ranked: Sequence[Ranked]) -> Ranked:
    """Return the simplest layout of those within `WITHIN` of the fastest that some tool can run.

    Where no tool runs any of them, the simplest of those as fast as the fastest.

    Args:
        ranked: At least one.
    """
    some = [one for one in ranked if one.tools] or ranked
    limit = min(one.step_s for one in some) * (1 + WITHIN)
    return min((one for one in some if one.step_s <= limit), key=simplicity)


def may_be_recommended(
    left: Sequence[Bounded], ranked: Sequence[Ranked], runs: Callable[[Bounded], bool]
) -> list[Bounded]:
    """Return layouts that would be recommended if they were as fast as their bound.

    First those that may be faster than all that a tool can run, the lowest bound first; once there
    are none, the simplest.

    Args:
        left: What was not simulated.
        ranked: What was.
        runs: Whether some tool can run a layout.
    """
    best = recommended(ranked)
    fastest = min((one.step_s for one in ranked if one.tools), default=float("inf"))
    faster = [one for one in left if one.bound_s < fastest and runs(one)]
    if faster:
        return sorted(faster, key=lambda one: (one.bound_s, one.layout.name))
    if not best.tools:
        fastest = min(one.step_s for one in ranked)
    limit, place = fastest * (1 + WITHIN), simplicity(best)
    some = [one for one in left if one.bound_s <= limit and simplicity(one) < place]
    return sorted((one for one in some if not best.tools or runs(one)), key=simplicity)
