"""A row of nccl-tests: its size, and twice a time and two bandwidths, wherever they stand."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_NEAR = 0.02
"""How far a printed bandwidth may be from size over time, for rounding."""


@dataclass(frozen=True, slots=True)
class Found:
    """A row as it was printed.

    Attributes:
        bytes: Its size.
        halves: Out of place and in place: µs, algorithm and bus bandwidth in GB/s, and the word
            behind.
        dtype: The type of its elements; empty where the column was left out.
        redop: The reduction; empty likewise.
        words: All of its columns.
    """

    bytes: int
    halves: tuple[tuple[float, float, float, str], ...]
    dtype: str
    redop: str
    words: tuple[str, ...]


def rows_in(plain: str) -> list[Found | None]:
    """Return the rows of a line: several where outputs were pasted side by side.

    A row that is cut off is None, so that those behind it keep their place; a line without any row
    gives an empty list.

    Args:
        plain: The line without tags and colours.
    """
    for spelled in _spellings(plain):
        found = [_of(part) for part in _beside(spelled.split())]
        if any(found):
            return found
    return []


def _beside(words: list[str]) -> list[list[str]]:
    """The words of each row of a line."""
    starts = _places(words)
    if len(starts) < 2:
        return [words]
    return [words[begin:end] for begin, end in pairwise([*starts, len(words)])]


def _places(words: list[str]) -> list[int]:
    """Where a size, a count and a type follow each other."""
    return [
        place
        for place in range(len(words) - 5)
        if words[place + 2][0].isalpha() and all(map(_is_whole, words[place : place + 2]))
    ]


def _spellings(plain: str) -> Iterator[str]:
    """As it stands; with decimal commas; with commas between columns."""
    yield plain
    if any(sign in plain for sign in ",;|"):
        apart = re.sub("[;|]", " ", plain)
        yield re.sub(r"(?<=\d),(?=\d)", ".", apart)
        yield apart.replace(",", " ")


def _of(words: list[str]) -> Found | None:
    """A row of columns: behind its size a count and a type, if they are there."""
    places = _places(words)
    # Some leave those out, and some add a column before the size.
    for first in places or range(min(2, len(words))):
        size = whole_of(words[first])
        if not size:
            continue
        halves = []
        at = first + 1
        while at + 2 < len(words):
            found = _half(size, words[at : at + 3])
            if found is None:
                at += 1
                continue
            # Where that column was left out, what is behind is the other half.
            other = _half(size, words[at + 3 : at + 6]) if at + 5 < len(words) else None
            behind = words[at + 3] if at + 3 < len(words) and other is None else ""
            halves.append((*found, behind))
            at += 3
        if halves:
            typed = words[first + 2 : first + 4] if places else []
            names = [word if word[0].isalpha() else "" for word in typed] + ["", ""]
            return Found(size, tuple(halves[:2]), names[0], names[1], tuple(words))
    return None


def _half(size: int, words: list[str]) -> tuple[float, float, float] | None:
    numbers = [number_of(word) for word in words]
    time, algbw, busbw = numbers
    if time is None or algbw is None or busbw is None or time <= 0 or algbw < 0 or busbw < 0:
        return None
    if busbw > 2.01 * algbw + 0.01 or "." not in words[1]:
        return None
    for unit in (1.0, 1e3):
        rate = size / (time * unit) / 1e3
        if not rate:
            continue
        # Printed with two digits behind the point.
        if abs(rate - algbw) <= 0.0051 + _NEAR * algbw:
            return time * unit, algbw, busbw
        # Before June 2020 an all-gather's was that of the bus, in both columns.
        share = algbw / rate
        ranks = round(1 / (1 - share)) if share < 0.995 else 0
        if words[1] == words[2] and ranks > 1 and abs(share * ranks / (ranks - 1) - 1) < _NEAR:
            return time * unit, rate, busbw
    return None


def _is_whole(word: str) -> bool:
    return whole_of(word) is not None


def whole_of(word: str) -> int | None:
    """Return a count, which may have separators; None for other words.

    Args:
        word: As it was printed.
    """
    digits = word.replace("_", "").replace(",", "")
    whole = digits.isascii() and digits.isdigit() and len(digits) < 19
    return int(digits) if whole else None


def number_of(word: str) -> float | None:
    """Return a finite number; None for other words.

    Args:
        word: As it was printed.
    """
    try:
        number = float(word.replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
