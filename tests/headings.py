"""What a heading of a printed table must say: what the column is of, never a unit alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNIT = re.compile(
    r"(%|[numµp]?s|[KMGTP]?i?[Bb](/s|ps)?|[KMGTP]?FLOP(/s|s)?|[KMGT]?Hz|W|kW|(k|M)?\$|off|percent)"
)


def bare(header: Sequence[str]) -> list[str]:
    """The headings that are a unit and nothing else."""
    return [name for name in header if _UNIT.fullmatch(name.strip(" ()[]_"))]
