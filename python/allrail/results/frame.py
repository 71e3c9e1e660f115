"""One result as a table of polars.

A row has the result's own numbers and texts under the names of `--json`; what has parts (exposed
communication, memory, throughput) stands as `memory_parameters`. What a result has many of (its
dimensions, links, actors) is a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        return pl.DataFrame([own(result)], infer_schema_length=None)
    several = dict(lists(result))
    if table not in several:
        raise InputError(
            "the result has no such table",
            hint=did_you_mean(table, several, others="its tables are"),
            field="table",
            value=table,
        )
    return pl.DataFrame([own(one) for one in several[table]], infer_schema_length=None)


def own(record: _Record) -> dict[str, Any]:
    """Return the numbers and texts of a record, those of its parts too.

    Args:
        record: The record.
    """
    return dict(flat(_tree(record)))


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers and texts of a mapping, short lists as texts, parts as `cables_aoc`.

    Args:
        tree: The mapping.
        prefix: What the names begin with.
    """
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}_")
        elif value is None or isinstance(value, (str, bool, int, float)):
            yield name, value
        elif isinstance(value, (list, tuple)) and all(
            isinstance(one, (str, int, float)) for one in value
        ):
            yield name, ",".join(map(str, value))


def _tree(record: _Record) -> dict[str, Any]:
    """Its fields without what it has many of, and without what is no part of it."""
    values = ((name, getattr(record, name)) for name in _names(type(record)))
    return {
        name: _tree(value) if isinstance(value, _Record) else value
        for name, value in values
        if isinstance(value, _Record) or not isinstance(value, (Mapping, list, tuple, Timeline))
    }


def lists(result: _Record) -> Iterator[tuple[str, Sequence[_Record]]]:
    """Yield what a result has many of, by name; what is empty is left out.

    Args:
        result: The result.
    """
    for name in _names(type(result)):
        value = getattr(result, name)
        if isinstance(value, (tuple, Timeline)) and value and isinstance(value[0], _Record):
            yield name, value
