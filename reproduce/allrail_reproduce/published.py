"""What a source prints, where it prints it, and how our number beside it came about.

A published value is an interval: a number is both its ends, "more than 7.8" has no upper end,
"97-125 %" has two. It always names the page, table, figure or section that it stands in. What no
source prints has no `Published`, however reasonable it would be to expect it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_PLACE = re.compile(r"p\. \d|abstract|§|section|[Tt]able|Fig\.|[Ee]xercise|issue \d|talk|file `")
"""What a source must name: where in a publication, or which file of it."""


@dataclass(frozen=True, slots=True)
class Published:
    """A value as a source prints it.

    Attributes:
        low: Its lower end; None if it has none.
        high: Its upper end; None if it has none.
        source: Where: page, table, figure or section.
    """

    low: float | None
    high: float | None
    source: str

    def __post_init__(self) -> None:
        """Refuse what is no value, or stands nowhere."""
        if self.low is None and self.high is None:
            raise ValueError("a published value has at least one end")
        if not _PLACE.search(self.source):
            raise ValueError(f"`{self.source}` names no page, table, figure or section")

    @property
    def number(self) -> float | None:
        """The value if it is one number."""
        return self.low if self.low == self.high else None

    def beyond(self, ours: float) -> float:
        """How far a number of ours is outside; 0 within. NaN stays NaN.

        Args:
            ours: In the same unit.
        """
        if self.low is not None and not ours >= self.low:
            return ours - self.low
        if self.high is not None and not ours <= self.high:
            return ours - self.high
        return 0.0

    @property
    def text(self) -> str:
        """It as text, such as `25.3`, `97-125`, `>7.8`, `<2`."""
        low, high = (None if end is None else f"{end:.10g}" for end in (self.low, self.high))
        if low is None:
            return f"<{high}"
        if high is None:
            return f">{low}"
        return low if low == high else f"{low}-{high}"


def number(value: float, source: str) -> Published:
    """A single number.

    Args:
        value: As printed.
        source: Where.
    """
    return Published(value, value, source)


def span(low: float, high: float, source: str) -> Published:
    """A range.

    Args:
        low: Its lower end.
        high: Its upper end.
        source: Where.
    """
    return Published(low, high, source)


def more_than(value: float, source: str) -> Published:
    """A claim of "more than" or "at least".

    Args:
        value: As printed.
        source: Where.
    """
    return Published(value, None, source)


def less_than(value: float, source: str) -> Published:
    """A claim of "less than" or "at most".

    Args:
        value: As printed.
        source: Where.
    """
    return Published(None, value, source)


Word = Literal["computed", "fitted", "chosen"]

THIS_ROW = "this row"
"""What the number was fitted to is the published number beside it: it shows nothing."""


@dataclass(frozen=True, slots=True)
class Made:
    """How a number of ours came about.

    Attributes:
        word: `computed` from what others measured or printed; `fitted`, with parameters that were
            searched for until another number came out as published; `chosen`, with settings that
            were picked among others with the results in view.
        parameters: What was fitted or chosen, each named.
        to: What it was fitted to, or by what it was chosen.
    """

    word: Word = "computed"
    parameters: tuple[str, ...] = ()
    to: str = ""

    def __post_init__(self) -> None:
        """Refuse a fit that does not say of what, and parameters of what is computed."""
        if (self.word == "computed") == bool(self.parameters and self.to):
            raise ValueError(f"`{self.word}`: what was fitted or chosen, and to what")

    @property
    def itself(self) -> bool:
        """Whether the row is what its parameters were fitted to."""
        return self.to == THIS_ROW

    def beside(self, other: Made) -> Made:
        """What was chosen here, and there.

        Args:
            other: Chosen, too.
        """
        return Made(self.word, (*self.parameters, *other.parameters), f"{self.to}, and {other.to}")

    @property
    def text(self) -> str:
        """It in words."""
        if self.word == "computed":
            return "computed"
        link = "to" if self.word == "fitted" else "by"
        return f"{self.word} ({', '.join(self.parameters)}; {link} {self.to})"


COMPUTED = Made()


def fitted(*parameters: str, to: str) -> Made:
    """Searched for until another number came out as published.

    Args:
        parameters: What was searched for.
        to: The published number; `THIS_ROW` in the row of that number.
    """
    return Made("fitted", parameters, to)


def chosen(*parameters: str, by: str) -> Made:
    """Picked among others with the results in view.

    Args:
        parameters: What was picked.
        by: The result that was in view.
    """
    return Made("chosen", parameters, by)
