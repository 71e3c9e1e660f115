"""Typed values out of a foreign file, with errors that name file, line, field and value."""

from __future__ import annotations

import difflib
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from allrail.base.errors import InputError, did_you_mean, show
from allrail.scenario.places import Path as Steps
from allrail.scenario.places import Places, show_path
from allrail.scenario.text import read_bytes, read_file

T = TypeVar("T")

LARGEST_COUNT = 2**32 - 1
"""Dimension sizes and link counts are 32-bit numbers."""

SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH = 1e3 / 2**30, 1e15 / 2**30
"""In GiB/s; the core takes 1 KB/s to 1 PB/s."""

LONGEST_DELAY = 86_400 * 1e9
"""In ns; the core takes a day at most."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file and where its values stand; every error made from it names them.

    Attributes:
        file: The file as the user named it.
        places: The line of each value; empty for plain text.
    """

    file: str
    places: Places = field(default_factory=Places)

    def error(
        self,
        why: str,
        *,
        at: Steps | str = (),
        line: int | None = None,
        value: object = None,
        hint: str = "",
    ) -> InputError:
        """An error about the value at `at`, to be raised by the caller.

        Args:
            why: What is wrong, as half a sentence.
            at: The path of the field in the file.
            line: Its line, where the path does not tell it.
            value: What stands there; None if nothing does.
            hint: What to write instead.
        """
        steps: Steps = (at,) if isinstance(at, str) else at
        if line is None:
            line = self.places.of(steps).line
        return InputError(
            why,
            source=self.file,
            line=line,
            field=show_path(steps),
            value=None if value is None else show(value),
            hint=hint,
        )

    def choice(self, value: object, table: Mapping[str, T], *, at: Steps | str) -> T:
        """What `table` says about `value`.

        Args:
            value: A name from the file.
            table: The names that it may be.
            at: Its path.

        Raises:
            InputError: It is not in the table; the hint names the near miss or all of them.
        """
        if isinstance(value, str) and value in table:
            return table[value]
        raise self.error(
            "ASTRA-sim knows no such name",
            at=at,
            value=value,
            hint=did_you_mean(str(value), table, others="it is one of"),
        )

    def number(
        self, value: object, *, at: Steps | str, unit: str, at_least: float, at_most: float
    ) -> float:
        """A finite number within limits; text is taken too, as system `.txt` files hold it.

        Args:
            value: What the file holds.
            at: Its path.
            unit: What it counts, for the message.
            at_least: The smallest that is taken.
            at_most: The largest that is taken.

        Raises:
            InputError: It is no number, NaN, infinite, or outside the limits.
        """
        limits = f"{_short(at_least)} to {_short(at_most)} {unit}"
        number = math.nan
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                number = math.nan
        if not math.isfinite(number):
            raise self.error(
                "it is not a finite number", at=at, value=value, hint=f"write {limits}, no unit"
            )
        if not at_least <= number <= at_most:
            why = "it is negative" if number < 0 else "it is out of range"
            raise self.error(
                "it is zero" if number == 0 else why, at=at, value=value, hint=f"write {limits}"
            )
        return number

    def count(
        self, value: object, *, at: Steps | str, at_least: int = 1, at_most: int = LARGEST_COUNT
    ) -> int:
        """A whole number within limits.

        Args:
            value: What the file holds.
            at: Its path.
            at_least: The smallest that is taken.
            at_most: The largest that is taken.

        Raises:
            InputError: It is not a whole number, or outside the limits.
        """
        hint = f"write a whole number from {at_least} to {at_most:,}".replace(",", "")
        whole: int | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            whole = value
        elif isinstance(value, float) and value.is_integer():
            whole = int(value)
        elif isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
            whole = _int(value)
        if whole is None:
            raise self.error("it is not a whole number", at=at, value=value, hint=hint)
        if not at_least <= whole <= at_most:
            why = f"it is {'less' if whole < at_least else 'more'} than it can be"
            raise self.error(why, at=at, value=value, hint=hint)
        return whole


def read_tree(path: str | Path) -> tuple[dict[str, object], Source]:
    """The keys of a JSON or YAML file.

    Args:
        path: The file; `.json` is JSON, everything else YAML.

    Raises:
        InputError: It is missing, not text, malformed, or holds no keys.
    """
    tree, places = read_file(Path(path))
    source = Source(str(path), places)
    if not isinstance(tree, dict):
        raise source.error("it holds no keys", hint="the file is one object of keys and values")
    return {str(key): value for key, value in tree.items()}, source


def read_lines(path: str | Path) -> tuple[list[tuple[int, str]], Source]:
    """The lines of a text file that hold something, with their numbers from 1.

    Args:
        path: The file.

    Raises:
        InputError: It is missing, not text, or empty.
    """
    text = read_bytes(Path(path))
    source = Source(str(path))
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        raise source.error("it is empty", hint="is it the right file?")
    return lines, source


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """The name of `known` that `word` is a typing mistake of, if it clearly is one.

    Args:
        word: What was written.
        known: What could have been written.
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.85)
    return near[0] if near else None


def times(number: float, scale: float) -> float:
    """A number times a scale as ASTRA-sim 1.0 computes it: in 32-bit floats.

    Of a size above 16 MiB the last digits change, and so whether it divides into chunks.

    Args:
        number: Bytes or nanoseconds of a workload.
        scale: Of the command line.
    """
    return _single(_single(number) * _single(scale))


def _single(number: float) -> float:
    """The nearest 32-bit float; itself where it is out of their range."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return number


def plain(number: float, *, decimals: int = 12) -> str:
    """Decimal digits without an exponent, which the core does not take.

    Args:
        number: A finite number.
        decimals: How many digits after the point are kept.
    """
    text = f"{Decimal(repr(float(number))):.{decimals}f}"
    return text.rstrip("0").rstrip(".")


def _short(number: float) -> str:
    return f"{number:g}"


def _int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return None
