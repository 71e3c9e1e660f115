"""The table of a study: a row a point, in their order, whoever simulated them and when.

Columns: `point`, what was changed (typed), the results, and `error` where there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allrail.search.sweeps.axes import column
from allrail.search.sweeps.evaluate import columns
from allrail.search.sweeps.study import Study

if TYPE_CHECKING:
    import polars as pl

FIELDS = "point"
ERROR = "error"


def frame(study: Study, outcomes: Mapping[int, Mapping[str, Any]]) -> pl.DataFrame:
    """Return the table.

    Args:
        study: Whose.
        outcomes: By point: its `row` or its `error`; points that are missing have no row.
    """
    import polars as pl

    known = sorted(outcomes)
    series = [pl.Series(FIELDS, known, dtype=pl.Int64)]
    cells = [study.points.cells(index) for index in known]
    for field in fields(study):
        name, kind, values = column(field, [row.get(field) for row in cells])
        series.append(pl.Series(name, values, dtype=getattr(pl, kind)))
    taken = {one.name for one in series}
    rows = [outcomes[index].get("row") or {} for index in known]
    for name, kind in columns(study.base).items():
        if name not in taken:  # what was changed says it already
            values = [row.get(name) for row in rows]
            series.append(pl.Series(name, values, dtype=getattr(pl, kind)))
    errors = [outcomes[index].get("error") for index in known]
    series.append(pl.Series(ERROR, errors, dtype=pl.String))
    return pl.DataFrame(series)


def fields(study: Study) -> list[str]:
    """Return what a study changes, in the order of its axes.

    Args:
        study: Which.
    """
    return [field for axis in study.axes for field in axis.fields]


def numbers(study: Study) -> list[str]:
    """Return the results that are numbers.

    Args:
        study: Which.
    """
    return [name for name, kind in columns(study.base).items() if kind in ("Float64", "Int64")]
