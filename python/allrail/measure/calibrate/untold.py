"""How far predictions may be off for collectives that no table is of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from allrail.measure.calibrate.fitting import Found
from allrail.measure.calibrate.judged import Judged, error_within
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.predict import OPERATIONS, Own, default_us, predict_us
from allrail.measure.calibrate.ran import STAGES
from allrail.measure.calibrate.written import dimension_trees, library_tree, own_of

BY_STAGES = OPERATIONS[:3]
"""Collectives of which tables of one tell the others."""
_SIZES = 6
"""Of a table, where other collectives are compared."""


def elsewhere(own: Own, judged: Sequence[Judged], dimensions: list[dict[str, Any]]) -> list[float]:
    """Return how far the default schedule is from the library's own, where there is no table."""
    measured = {str(each.table.collective) for each in judged}
    found = []
    for each in judged:
        rows = each.table.rows
        sizes = [row.bytes for row in rows[:: math.ceil(len(rows) / _SIZES)]]
        for name in BY_STAGES:
            if name not in measured:
                found += [
                    abs(
                        default_us(name, each.part, dimensions, size)
                        / own.time_us(name, each.part, size)
                        - 1
                    )
                    for size in sizes
                ]
    return found


def disagreements(
    fabric: dict[str, Any],
    judged: Sequence[Judged],
    levels: Levels,
    nearly: Sequence[Found],
    own: Own | None,
) -> list[float]:
    """Return how far explanations that are nearly as good differ, by prediction: nine of ten sizes.

    Predictions are of collectives without a table, on every table's ranks and on half of them.
    """
    measured = {(str(each.table.collective), each.part) for each in judged}
    if any(name not in BY_STAGES for name, _ in measured):
        return []
    asked: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for each in judged:
        rows = each.table.rows
        sizes = [row.bytes for row in rows[:: math.ceil(len(rows) / _SIZES)]]
        for part in (each.part, _halved(each.part)):
            for name in BY_STAGES:
                if math.prod(part) > 1 and (name, part) not in measured:
                    asked[name, part] = sizes
    found = []
    for one in nearly:
        other = own_of(one) if one.ran not in STAGES else None
        if other == own:
            continue
        tree = {
            "dimensions": dimension_trees(levels, one.joint, one.ran),
            "library": library_tree(other, judged, 0.0),
        }
        for (name, part), sizes in asked.items():
            ratios = [
                predict_us(tree, name, part, size) / predict_us(fabric, name, part, size)
                for size in sizes
            ]
            # Either may be what runs.
            found.append(error_within([max(one, 1 / one) - 1 for one in ratios]))
    return found


def _halved(part: tuple[int, ...]) -> tuple[int, ...]:
    """Half as many of the outermost, or as many where that is odd."""
    place = max(place for place, one in enumerate(part) if one > 1)
    half = part[place] // 2 if part[place] % 2 == 0 else part[place]
    return (*part[:place], half, *part[place + 1 :])
