"""A line as the program printed it, out of what terminals, logs and mpirun put around it."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[@-~]")
_TAG = re.compile(r"^\s*(?:\[\d+(?:,\d+)?\](?:<\w+>:)?|\d+:(?=\s))\s*")
_INNER_TAG = re.compile(r"\[\d+(?:,\d+)?\](?:<\w+>:)?(?=\s|$)")


def plain(line: str) -> str:
    """Return it without colours, tags, comment signs and frames.

    Args:
        line: As it was pasted.
    """
    line = _TAG.sub("", _ESCAPE.sub("", line))
    return _INNER_TAG.sub(" ", line).strip().lstrip("#").strip()
