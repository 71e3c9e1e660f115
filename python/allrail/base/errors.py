"""Errors of this package: what a person did wrong, where, and what to write instead.

A mistake in what is given is an `InputError`; its message has one shape, on the command line and in
Python::

    scenario.yaml:5: `schedule.policy` is `themiss`: it is not a policy

    hint: did you mean `themis`?

What goes wrong while a job runs is a `TrainingError`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

from allrail.base.foreign import printable

MAX_VALUE_CHARS = 80


class AllrailError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(AllrailError, ValueError):
    """A mistake in a file, an option or an argument.

    Attributes:
        why: What is wrong, as half a sentence.
        hint: What to write instead; may be empty.
        source: The file or option that it stands in; may be empty.
        line: Its line in `source`, from 1; None where lines mean nothing.
        field: Its path, such as `fabric.dimensions[1].size`; may be empty.
        value: What stands there, as text; None if nothing does.
        index: Which of several scenarios it is in; None for a single one.
    """

    def __init__(
        self,
        why: str,
        *,
        hint: str = "",
        source: str = "",
        line: int | None = None,
        field: str = "",
        value: str | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint
        self.source = source
        self.line = line
        self.field = field
        self.value = value
        self.index = index

    def __str__(self) -> str:
        """Return the message, then its hint after a blank line."""
        return f"{self.message}\n\nhint: {printable(self.hint)}" if self.hint else self.message

    @property
    def message(self) -> str:
        """The message without its hint; what others wrote in it moves no terminal."""
        place = "stdin" if self.source == "-" else self.source
        if self.index is not None:
            place = f"scenario {self.index}" + (f" ({place})" if place else "")
        if self.line is not None:
            place = f"{place or 'line'}:{self.line}"
        subject = f"`{self.field}`" if self.field else ""
        if self.value is not None:
            value = f"`{shorten(self.value)}`"
            subject = f"{subject} is {value}" if subject else value
        return printable(": ".join(part for part in (place, subject, self.why) if part))


class AllrailWarning(UserWarning):
    """What is to be known of an answer that may be otherwise than it seems."""


class TrainingError(AllrailError, RuntimeError):
    """A job cannot go on: what it exchanges, or a step that depends on it.

    Attributes:
        why: What is wrong, as half a sentence.
        field: The tensor that it is about; may be empty.
        hint: What to do; may be empty.
        kind: What sort of fault of a node it is, such as `left`; empty if it is none.
        rank: Whose fault it is; None if nobody's, or not known.
    """

    def __init__(
        self, why: str, *, field: str = "", hint: str = "", kind: str = "", rank: int | None = None
    ) -> None:
        super().__init__(why)
        self.why = why
        self.field = field
        self.hint = hint
        self.kind = kind
        self.rank = rank

    def __str__(self) -> str:
        """Return the message, then its hint after a blank line."""
        message = printable(f"`{self.field}`: {self.why}" if self.field else self.why)
        return f"{message}\n\nhint: {printable(self.hint)}" if self.hint else message


def shorten(text: str) -> str:
    """Return `text` on one line of at most 80 characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_VALUE_CHARS else line[: MAX_VALUE_CHARS - 1] + "…"


def show(value: object) -> str:
    """Return `value` as it would be written in a scenario file."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except Exception:  # noqa: BLE001, of others' classes
        return f"<{type(value).__name__}>"


def did_you_mean(word: str, known: Iterable[str], *, others: str = "valid here") -> str:
    """Return a hint that names what is near `word`, or all of `known`.

    Args:
        word: What was written.
        known: What could have been written.
        others: How the whole list is introduced.
    """
    names = list(known)
    folded = {name.casefold().replace("-", "_"): name for name in names}
    near = difflib.get_close_matches(word.casefold().replace("-", "_"), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{folded[near[0]]}`?"
    if not names:
        return ""
    return f"{others}: " + ", ".join(f"`{name}`" for name in names)
