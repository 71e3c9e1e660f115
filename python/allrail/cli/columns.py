"""Columns of text, as wide as a terminal.

A table that is too wide for a terminal is folded in two steps: names of columns and cells of text
go on in the next line where they have `_`, `/`, `,` or a space; where that isn't enough, the
columns that are left over follow in a second table, with the first column before them again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from itertools import zip_longest
from typing import TextIO

GAP = 2
LEAST = 12
"""No cell of text is folded to fewer characters."""
_PARTS = re.compile(r"[^ _/,]*(?:[ _]%[^ _/,]*)?(?:[ _/,]+|$)")

Lines = list[str]


def terminal_width(stream: TextIO) -> int | None:
    """Return how many characters a line of a terminal has; None where it is no terminal.

    Args:
        stream: Where the text goes.
    """
    return shutil.get_terminal_size().columns if stream.isatty() else None


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, bold: bool) -> Lines:
    """Return a line a row.

    Args:
        header: A name for each column.
        rows: The cells.
        bold: Whether the header is bold.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return _laid_out(header, rows, widths, bold=bold)


def folded(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, bold: bool
) -> Lines:
    """Return the lines of a table, none longer than `width` as far as its cells let it.

    Args:
        header: A name for each column.
        rows: The cells.
        width: Of a line.
        bold: Whether the header is bold.
    """
    natural = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    if _total(natural) <= width:
        return _laid_out(header, rows, natural, bold=bold)
    least = [_least(column) for column in zip(header, *rows, strict=True)]
    lines: Lines = []
    for block in _blocks(least, width):
        widths = _shared([natural[i] for i in block], [least[i] for i in block], width)
        cells = [[row[i] for i in block] for row in rows]
        lines += [""] if lines else []
        lines += _laid_out([header[i] for i in block], cells, widths, bold=bold)
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _least(column: Sequence[str]) -> int:
    """The least width of a column, whose first cell is its name."""
    name, *cells = column
    words = max(map(len, _parts(name)), default=0)
    if all(map(is_number, cells)):
        return max([words, *map(len, cells)])
    return max([words, *(min(len(cell), max(LEAST, _longest(cell))) for cell in cells)])


def _longest(cell: str) -> int:
    return max(map(len, _parts(cell)), default=0)


def _parts(text: str) -> list[str]:
    return [part for part in _PARTS.findall(text) if part]


def _blocks(least: Sequence[int], width: int) -> list[list[int]]:
    """Columns that fit beside each other; the first stands in every block."""
    blocks: list[list[int]] = [[0]]
    for index in range(1, len(least)):
        together = [least[i] for i in (*blocks[-1], index)]
        if _total(together) > width and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(index)
    return blocks


def _shared(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Widths from the least up to the natural ones, that use a line."""
    widths = list(least)
    left = width - _total(widths)
    while left > 0:
        short = [i for i, wide in enumerate(widths) if wide < natural[i]]
        if not short:
            break
        # The column that lacks the smallest part of its width first: names before long texts.
        i = min(short, key=lambda i: natural[i] - widths[i])
        more = min(left, natural[i] - widths[i])
        widths[i] += more
        left -= more
    return widths


def _laid_out(
    header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], *, bold: bool
) -> Lines:
    right = [all(is_number(row[i]) for row in rows) for i in range(len(header))]
    lines: Lines = []
    for number, row in enumerate((header, *rows)):
        cells = [wrapped(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            line = "  ".join(
                part.rjust(wide) if to_right else part.ljust(wide)
                for part, wide, to_right in zip(parts, widths, right, strict=True)
            ).rstrip()
            lines.append(f"\x1b[1m{line}\x1b[0m" if bold and number == 0 else line)
    return lines


def wrapped(text: str, width: int) -> Lines:
    """Return the lines of a cell.

    Args:
        text: The cell.
        width: Of a line; a word that is longer stands alone.
    """
    if len(text) <= width:
        return [text]
    lines = [""]
    for part in _parts(text):
        if lines[-1] and len((lines[-1] + part).rstrip(" ")) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip(" ") for line in lines]


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, or stands for one that is not there.

    Args:
        cell: Its text.
    """
    text = cell.replace(",", "").rstrip("x%")
    try:
        float(text)
    except ValueError:
        return cell in ("", "-")
    return True
