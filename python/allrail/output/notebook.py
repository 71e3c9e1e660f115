"""Answers in a notebook: tables whose columns are sorted by a click, one result's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from allrail.base.foreign import printable
from allrail.base.units import show_number
from allrail.results.frame import lists, own
from allrail.results.record import _Record

MAX_ROWS = 200
"""Rows of a table in a notebook; `to_polars` has all."""
_UNFOLDED = 12
"""Numbers of a result that are seen at once."""

# One row of the body to the other by the cell below the name that was clicked; again: backwards.
_SORT = (
    "const t=this.closest('table'),b=t.tBodies[0],i=this.cellIndex,d=this.dataset.up==='1'?-1:1;"
    "this.dataset.up=d===1?'1':'0';"
    "const v=r=>r.cells[i].dataset.v??r.cells[i].textContent;"
    "[...b.rows].sort((x,y)=>{const p=v(x),q=v(y),m=Number(p)-Number(q);"
    "return d*(isNaN(m)?String(p).localeCompare(String(q)):m)}).forEach(r=>b.append(r))"
)


def table(rows: Sequence[Mapping[str, Any]], *, name: str = "") -> str:
    """Return rows as an HTML table.

    Args:
        rows: By column; a cell that a row lacks is empty.
        name: What stands above it.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(
        f'<th style="cursor:pointer" onclick="{escape(_SORT)}">{_escaped(column)}</th>'
        for column in columns
    )
    body = "".join(
        f"<tr>{''.join(_cell(row.get(column)) for column in columns)}</tr>"
        for row in rows[:MAX_ROWS]
    )
    title = f"<b>{_escaped(name)}</b>" if name else ""
    left = len(rows) - MAX_ROWS
    more = f"<p>{left:,} more rows: <code>to_polars()</code></p>" if left > 0 else ""
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def page(result: _Record) -> str:
    """Return a result as HTML: its own numbers, and its lists to unfold.

    Args:
        result: The result.
    """
    numbers = list(own(result).items())
    parts = [f"<b>{_escaped(type(result).__name__)}</b>", _lines(numbers[:_UNFOLDED])]
    if numbers[_UNFOLDED:]:
        parts.append(_folded("more", _lines(numbers[_UNFOLDED:])))
    for name, records in lists(result):
        rows = [own(one) for one in records[: MAX_ROWS + 1]]
        parts.append(_folded(f"{name} ({len(records)})", table(rows)))
    return "\n".join(parts)


def _lines(pairs: list[tuple[str, Any]]) -> str:
    lines = (f"<tr><th>{_escaped(name)}</th>{_cell(value)}</tr>" for name, value in pairs)
    return f"<table>{''.join(lines)}</table>"


def _folded(name: str, inner: str) -> str:
    return f"<details><summary>{_escaped(name)}</summary>{inner}</details>"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        shown = f"{value:,}" if isinstance(value, int) else show_number(value, 6)
        return f'<td data-v="{value!r}" style="text-align:right">{shown}</td>'
    return f"<td>{_escaped(value)}</td>"


def _escaped(value: object) -> str:
    return escape(printable(str(value)))
