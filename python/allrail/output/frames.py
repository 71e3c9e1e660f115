"""Results as tables of columns (polars), written as CSV and Parquet."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.foreign import FORMULA, NUMBER, cell
from allrail.results.columns import COLLECTIVES
from allrail.results.result import CollectivesResult

if TYPE_CHECKING:
    import polars as pl

DIMENSION_TYPES = {
    "name": "String",
    "kind": "String",
    "size": "Int64",
    "bandwidth_gbps": "Float64",
    "algorithm": "String",
    "bytes_per_npu": "Float64",
    "utilisation": "Float64",
    "busy_fraction": "Float64",
    "header_bytes_per_npu": "Float64",
    "line_rate_gbps": "Float64",
}
TIMELINE_TYPES = {
    "dimension": "Int64",
    "collective": "Int64",
    "chunk": "Int64",
    "stage": "Int64",
    "operation": "String",
    "bytes": "Float64",
    "start_us": "Float64",
    "end_us": "Float64",
    "finish_us": "Float64",
}


def results_frame(results: Mapping[str, CollectivesResult]) -> pl.DataFrame:
    """One row a result.

    Args:
        results: By name.
    """
    return _frame([(name, result) for name, result in results.items()], COLLECTIVES)


def dimensions_frame(results: Mapping[str, CollectivesResult]) -> pl.DataFrame:
    """One row a result and dimension; `starved_us` of results with a timeline.

    Args:
        results: By name.
    """
    import polars as pl

    rows = [(name, one) for name, result in results.items() for one in result.dimensions]
    starved = [
        time
        for result in results.values()
        for time in result.starved_us or [None] * len(result.dimensions)
    ]
    frame = _frame(rows, DIMENSION_TYPES)
    return frame.with_columns(pl.Series("starved_us", starved, dtype=pl.Float64))


def timeline_frame(results: Mapping[str, CollectivesResult]) -> pl.DataFrame:
    """One row a result and stage, of the results that have a timeline.

    Args:
        results: By name.
    """
    rows = [(name, one) for name, result in results.items() for one in result.timeline or ()]
    return _frame(rows, TIMELINE_TYPES)


def write_frame(frame: pl.DataFrame, *, folder: Path, name: str) -> None:
    """Write `name.csv` and `name.parquet`; in the first no text begins as a formula does.

    Raises OSError where the system refuses it.

    Args:
        frame: The table.
        folder: Where.
        name: Without an ending.
    """
    import polars as pl

    texts = [pl.col(name) for name, kind in frame.schema.items() if kind == pl.String]
    begins, number = (rf"\A(?:{pattern})" for pattern in (FORMULA, rf"(?:{NUMBER})\z"))
    safe = [
        pl.when(text.str.contains(begins) & ~text.str.contains(number))
        .then(pl.concat_str(pl.lit("'"), text))
        .otherwise(text)
        .alias(text.meta.output_name())
        for text in texts
    ]
    try:
        frame.with_columns(safe).rename(cell).write_csv(folder / f"{name}.csv")
        frame.write_parquet(folder / f"{name}.parquet")
    except pl.exceptions.ComputeError as error:  # what the system refuses, in polars' words
        told = re.search(r"\(os error (\d+)\)", str(error))
        if told is None:
            raise
        raise OSError(int(told[1]), os.strerror(int(told[1]))) from None


def _frame(rows: Sequence[tuple[str, object]], types: dict[str, str]) -> pl.DataFrame:
    """The named attributes of records as columns, with the name of their result first."""
    import polars as pl

    columns: dict[str, list[Any]] = {"result": [name for name, _ in rows]}
    for attribute in types:
        columns[attribute] = [getattr(record, attribute) for _, record in rows]
    schema = {"result": pl.String, **{name: getattr(pl, kind) for name, kind in types.items()}}
    return pl.DataFrame(columns, schema=schema)
