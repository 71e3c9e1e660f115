"""One result as a table: for polars, and for a notebook.

A row has the result's own numbers and texts under the names of `--json`; what has parts (exposed
communication, memory, throughput) stands as `memory_parameters`. What a result has many of (its
dimensions, links, actors) is a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from allrail.base.errors import InputError, did_you_mean
from allrail.base.foreign import printable
from allrail.base.units import show_number
from allrail.results.result import _names, _Record

if TYPE_CHECKING:
    import polars as pl

_PRINTED = 12
"""Rows of a result's first table in a notebook; the others only unfold there."""


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
        return pl.DataFrame([dict(_flat(result))], infer_schema_length=None)
    lists = dict(_lists(result))
    if table not in lists:
        raise InputError(
            "the result has no such table",
            hint=did_you_mean(table, lists, others="its tables are"),
            field="table",
            value=table,
        )
    return pl.DataFrame([dict(_flat(one)) for one in lists[table]], infer_schema_length=None)


def page(result: _Record) -> str:
    """Return a result as HTML: its own numbers, and its lists to unfold.

    Args:
        result: The result.
    """
    own = list(_flat(result))
    parts = [f"<b>{escape(type(result).__name__)}</b>", _rows(own[:_PRINTED])]
    if own[_PRINTED:]:
        parts.append(f"<details><summary>more</summary>{_rows(own[_PRINTED:])}</details>")
    for name, records in _lists(result):
        columns = [column for column, _ in _flat(records[0])]
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_text(value)}</td>" for _, value in _flat(one)) + "</tr>"
            for one in records[:100]
        )
        told = f"{escape(name)} ({len(records)})"
        parts.append(
            f"<details><summary>{told}</summary><table><tr>{head}</tr>{body}</table></details>"
        )
    return "\n".join(parts)


def _flat(record: _Record, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers and texts of a record, those of its parts too."""
    for name in _names(type(record)):
        value = getattr(record, name)
        if isinstance(value, _Record):
            yield from _flat(value, f"{prefix}{name}_")
        elif value is None or isinstance(value, (str, bool, int, float)):
            yield prefix + name, value


def _lists(result: _Record) -> Iterator[tuple[str, tuple[_Record, ...]]]:
    """What a result has many of, by name; what is empty is left out."""
    for name in _names(type(result)):
        value = getattr(result, name)
        if isinstance(value, tuple) and value and isinstance(value[0], _Record):
            yield name, value


def _rows(pairs: list[tuple[str, Any]]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{_text(value)}</td></tr>" for name, value in pairs)
    return f"<table>{''.join(rows)}</table>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return show_number(value, 6)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else escape(printable(str(value)))
