"""A line as the program printed it, out of what terminals, logs and mpirun put around it."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[@-~]")
_TIME = (
    r"(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?=\s)"
    r"|\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\]]{0,16}\]"
)
_TAG = re.compile(rf"^\s*(?:(?:\[\d+(?:,\d+)?\](?:<\w+>:)?|\d+:(?=\s)|{_TIME})\s*)+")
_INNER_TAG = re.compile(r"\[\d+(?:,\d+)?\](?:<\w+>:)?(?=\s|$)")


def plain(line: str) -> str:
    """Return it without colours, tags, times of a log, comment signs and frames.

    Args:
        line: As it was pasted.
    """
    line = _TAG.sub("", _ESCAPE.sub("", line))
    return _INNER_TAG.sub(" ", line).strip().lstrip("#").strip()
