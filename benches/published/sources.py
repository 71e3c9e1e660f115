"""The numbers that a folder of reference files holds, each with the place where it stands.

A place is the heading above a number in Markdown, the path of keys to it in JSON (an element of a
list by its `name`, else by its index), and nothing in CSV. Digits that belong to a word (`VGG16`,
`SC'22`, `2D-SW`) are no numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMBER = re.compile(
    r"(?<![\w'])(?<!\d[.,])(?<![A-Za-z]-)(\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)"
    r"(?!\.?\d)(?=(?:[xGMB]|[mun]s)?(?!\w))"
)
"""A unit may follow at once (`7.8x`, `112.5M`)."""
TEXTS = (".md", ".csv")


@dataclass(frozen=True, slots=True)
class Printed:
    """A number of a file.

    Attributes:
        place: A heading, or a path of keys joined by `/`.
        text: As it stands there, such as `1,024`.
    """

    place: str
    text: str

    @property
    def value(self) -> float:
        """What it is."""
        return value_of(self.text)


def value_of(text: str) -> float:
    """Return the number that a text is.

    Args:
        text: Such as `1,024` or `.98`.
    """
    return float(text.replace(",", ""))


def files(folder: Path) -> list[str]:
    """Return the names of the files of numbers in a folder, and in its folders of one level.

    Args:
        folder: The reference.
    """
    endings = (*TEXTS, ".json")
    found = [*folder.glob("*"), *folder.glob("*/*.json")]
    return sorted(str(one.relative_to(folder)) for one in found if one.suffix in endings)


def numbers(file: Path) -> list[Printed]:
    """Return the numbers of a file, in its order.

    Args:
        file: Markdown, CSV or JSON.
    """
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return list(_leaves(json.loads(text), ()))
    found = []
    heading = ""
    for line in text.splitlines():
        if line.startswith("#") and file.suffix == ".md":
            heading = line.lstrip("# ").strip()
        told = line.replace(",", " ") if file.suffix == ".csv" else line
        found += [Printed(heading, one) for one in NUMBER.findall(told)]
    return found


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[Printed]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, (*path, str(key)))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            name = value.get("name") if isinstance(value, dict) else None
            yield from _leaves(value, (*path, str(index if name is None else name)))
    elif isinstance(tree, str):
        for one in NUMBER.findall(tree):
            yield Printed("/".join(path), one)
    elif isinstance(tree, (int, float)) and not isinstance(tree, bool):
        yield Printed("/".join(path), repr(tree))
