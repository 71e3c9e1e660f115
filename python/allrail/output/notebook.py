"""Tables in a notebook: HTML whose columns are sorted by a click on their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from allrail.base.foreign import printable
from allrail.base.units import show_number

MAX_ROWS = 200
"""Rows of a table in a notebook; `to_polars` has all."""

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


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        shown = f"{value:,}" if isinstance(value, int) else show_number(value, 6)
        return f'<td data-v="{value!r}" style="text-align:right">{shown}</td>'
    return f"<td>{_escaped(value)}</td>"


def _escaped(value: object) -> str:
    return escape(printable(str(value)))
