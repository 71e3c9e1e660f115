"""Graphs of names: their cycles, and the same graph over groups of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Arrows = Mapping[str, set[str]]
"""Each name to what it needs."""


def cycles(arrows: Arrows) -> list[list[str]]:
    """Groups of names that all reach each other, the largest first (Tarjan, without recursion).

    Args:
        arrows: The graph; names that are only needed may be left out.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in sorted(arrows):
        if root in index:
            continue
        work = [(root, iter(sorted(arrows.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, needed = work[-1]
            for other in needed:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(arrows.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.remove(group[-1])
                    if len(group) > 1:
                        found.append(sorted(group))
    return sorted(found, key=lambda group: (-len(group), group))


def mutual(arrows: Arrows) -> list[tuple[str, str]]:
    """Pairs of names that need each other directly."""
    return sorted(
        (one, other)
        for one, needed in arrows.items()
        for other in needed
        if one < other and one in arrows.get(other, ())
    )


def folded(arrows: Arrows, names: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The graph over groups of names; arrows within a group are left out.

    Args:
        arrows: The graph.
        names: Each name and its group.
    """
    group = dict(names)
    found: dict[str, set[str]] = {one: set() for one in group.values()}
    for one, needed in arrows.items():
        found[group[one]] |= {group[other] for other in needed} - {group[one]}
    return found
