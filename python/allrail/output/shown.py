"""One result in a notebook: its own numbers, and its lists to unfold."""

from __future__ import annotations

from html import escape
from typing import Any

from allrail.base.foreign import printable
from allrail.base.units import show_number
from allrail.results.frame import flat, lists
from allrail.results.record import _Record

_PRINTED = 12
"""Rows of a result's first table in a notebook; the others only unfold there."""


def page(result: _Record) -> str:
    """Return a result as HTML: its own numbers, and its lists to unfold.

    Args:
        result: The result.
    """
    own = list(flat(result))
    parts = [f"<b>{escape(type(result).__name__)}</b>", _rows(own[:_PRINTED])]
    if own[_PRINTED:]:
        parts.append(f"<details><summary>more</summary>{_rows(own[_PRINTED:])}</details>")
    for name, records in lists(result):
        columns = [column for column, _ in flat(records[0])]
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_text(value)}</td>" for _, value in flat(one)) + "</tr>"
            for one in records[:100]
        )
        told = f"{escape(name)} ({len(records)})"
        parts.append(
            f"<details><summary>{told}</summary><table><tr>{head}</tr>{body}</table></details>"
        )
    return "\n".join(parts)


def _rows(pairs: list[tuple[str, Any]]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{_text(value)}</td></tr>" for name, value in pairs)
    return f"<table>{''.join(rows)}</table>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return show_number(value, 6)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else escape(printable(str(value)))
