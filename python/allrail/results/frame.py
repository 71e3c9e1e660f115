"""One result as a table of polars.

A row has the result's own numbers and texts under the names of `--json`; what has parts (exposed
communication, memory, throughput) stands as `memory_parameters`. What a result has many of (its
dimensions, links, actors) is a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from allrail.base.errors import InputError, did_you_mean
from allrail.results.record import _names, _Record
from allrail.results.timeline import Timeline

if TYPE_CHECKING:
    import polars as pl


def frame(result: _Record, table: str | None) -> pl.DataFrame:
    """Return a result as a table.

    Args:
        result: The result.
        table: Which of its lists, such as `dimensions`; None for the result itself, as one row.

    Raises:
        InputError: It has no such list, or none of it.
    """
    import polars as pl

    if table is None:
        return pl.DataFrame([dict(flat(result))], infer_schema_length=None)
    several = dict(lists(result))
    if table not in several:
        raise InputError(
            "the result has no such table",
            hint=did_you_mean(table, several, others="its tables are"),
            field="table",
            value=table,
        )
    return pl.DataFrame([dict(flat(one)) for one in several[table]], infer_schema_length=None)


def flat(record: _Record, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers and texts of a record, those of its parts too.

    Args:
        record: The record.
        prefix: What their names begin with.
    """
    for name in _names(type(record)):
        value = getattr(record, name)
        if isinstance(value, _Record):
            yield from flat(value, f"{prefix}{name}_")
        elif value is None or isinstance(value, (str, bool, int, float)):
            yield prefix + name, value


def lists(result: _Record) -> Iterator[tuple[str, Sequence[_Record]]]:
    """Yield what a result has many of, by name; what is empty is left out.

    Args:
        result: The result.
    """
    for name in _names(type(result)):
        value = getattr(result, name)
        if isinstance(value, (tuple, Timeline)) and value and isinstance(value[0], _Record):
            yield name, value
