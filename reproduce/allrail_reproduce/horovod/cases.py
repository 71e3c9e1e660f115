"""One run of Horovod's rows, and what came out of all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes:
        model: Which, by name.
        way: Its coordination, with what else is said of it, for tables.
        ranks: How many.
    """

    model: str
    way: str
    ranks: int


Efficiencies = dict[Case, dict[str, float]]
"""What came out, by run."""
