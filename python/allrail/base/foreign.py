r"""Text that others wrote, made safe to show: names in files and traces, words of other ranks.

Terminals act on control characters, and so may the pages and tables that show a name: `printable`
shows such characters as what they are, such as `\x1b`. Spreadsheets take a cell that begins with
`=` for a formula: `cell` puts an apostrophe before it.
"""

from __future__ import annotations

import re

_UNSAFE = (
    "\x00-\x1f\x7f-\x9f"  # control characters, the terminal's among them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of text round
    "\u200b\u2028\u2029\u2060\ufeff"  # what is not seen, and other ends of lines
    "\ud800-\udfff"  # halves of characters, of bytes that are no UTF-8
)
_ANY = re.compile(f"[{_UNSAFE}]")
_BUT_LINES = re.compile(f"(?![\n\t])[{_UNSAFE}]")
FORMULA = "[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""What a spreadsheet may take for the begin of a formula; the last four are their wide forms."""
NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?%?|[+-]|[+-]?(inf|nan|NaN)"
"""Text that begins as a formula does, and is a number, or stands for none."""


def printable(text: str, *, lines: bool = False, backslash: str = "\\") -> str:
    """Return text without characters that a terminal acts on; they are shown as escapes.

    Args:
        text: Of others.
        lines: Whether ends of lines and tabs stay: of text that has several lines on purpose.
        backslash: What escapes begin with; two of them within JSON.
    """
    pattern = _BUT_LINES if lines else _ANY
    return pattern.sub(lambda found: backslash + _escape(found[0]), text)


def in_json(text: str) -> str:
    """Return JSON text whose strings have no such characters, only their escapes: the same values.

    Args:
        text: JSON.
    """
    return _BUT_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cell(text: str) -> str:
    """Return the text of a cell of CSV that no spreadsheet takes for a formula.

    Numbers stay as they are.

    Args:
        text: Of others.
    """
    if re.match(FORMULA, text) and not re.fullmatch(NUMBER, text):
        return f"'{text}"
    return text


def _escape(character: str) -> str:
    known = {"\n": "n", "\r": "r", "\t": "t"}
    code = ord(character)
    return known.get(character) or (f"x{code:02x}" if code < 256 else f"u{code:04x}")
