"""What a chart of points draws, and the line through those that nothing before them surpasses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allrail.output.report.style import HUES

_POINT, _LINE = "#7b8794", HUES[1]


def data(
    points: Sequence[Sequence[Any]],
    *,
    one: str,
    many: str,
    line: str,
    axes: Sequence[str],
    marked: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the data of a `Chart` that draws `points`.

    Args:
        points: Each where it lies across and up, and what it is.
        one: What a point is, in words.
        many: What they are.
        line: What the line joins.
        axes: Across and up, with units.
        marked: Points by name that have their names written first, on the front or not.
    """
    return {
        "filter": f"words, all of which {one} has",
        "legend": [[_POINT, many], [_LINE, line]],
        "colours": [_POINT, _LINE],
        "axes": list(axes),
        "marked": list(marked),
        "points": [list(point) for point in points],
    }
