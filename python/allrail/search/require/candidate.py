"""A fabric that may reach a target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fabric of the list.

    Attributes:
        fabric: A preset or a file.
        step_s: Of the same job on it; None where it cannot run.
        reaches: Whether that is the target or better.
        cost_usd: What it costs; None if no price is known.
        binding: The dimension that works most of the time.
        why_not: Why it cannot run.
    """

    fabric: str
    step_s: float | None = None
    reaches: bool = False
    cost_usd: float | None = None
    binding: str = ""
    why_not: str = ""
