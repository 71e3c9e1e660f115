"""Trees of JSON as lists of paths and values: what is left out, and how keys are renamed.

A path is a tuple of keys (text) and places in lists (numbers). An empty object or list is a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Path = tuple[str | int, ...]

HOST = "host"
"""The key of measurements of this machine, wherever it is."""
PROSE = frozenset(
    {
        # Sentences.
        "about",
        "bar_of",
        "behind_baseline",
        "causes.test",
        "causes.what",
        "computing.what",
        "counted",
        "critical_path_in_words",
        "hint",
        "message",
        "no_dimensions",
        "notes",
        "simulated_as",
        "sources",
        "taken_because",
        "unknown",
        "warnings",
        "why",
        # Names of rows, made for people to read.
        "actor",
        "busiest",
        "label",
        "name",
        "ran",
        "routing",
        "worst",
    }
)
"""Keys whose values, and all below them, are words: the last parts of their dotted key."""
DIGEST = re.compile("[0-9a-f]{64}")
"""Digests of text, which a renamed key changes."""
_LONGEST = max(len(key.split(".")) for key in PROSE)


def everything(tree: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All values of a tree, with their paths."""
    children: Sequence[tuple[str | int, Any]] = ()
    if isinstance(tree, dict):
        children = list(tree.items())
    elif isinstance(tree, list):
        children = list(enumerate(tree))
    if not children:
        yield at, tree
    for key, value in children:
        yield from everything(value, (*at, key))


def flatten(tree: Any) -> list[tuple[Path, Any]]:
    """The values of a tree without what is of the host, without prose and without digests.

    Args:
        tree: What JSON or YAML holds.
    """
    return [
        (path, value)
        for path, value in everything(tree)
        if not _left_out(path) and not (isinstance(value, str) and DIGEST.fullmatch(value))
    ]


def _left_out(path: Path) -> bool:
    keys = [part for part in path if isinstance(part, str)]
    return HOST in keys or any(
        ".".join(keys[start : start + count]) in PROSE
        for count in range(1, _LONGEST + 1)
        for start in range(len(keys) - count + 1)
    )


def dotted(path: Path) -> str:
    """A path as it is written: `collectives[0].time_us`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(the whole)"


class Renames:
    """A table of renamed keys.

    Args:
        table: Old dotted key to new dotted key, as `renamed.yaml` says.

    Raises:
        ValueError: If an entry has more lists, or other wildcards, on one side than on the other.
    """

    def __init__(self, table: Mapping[str, str]) -> None:
        self._rows = [(_parsed(old), _parsed(new), old, new) for old, new in table.items()]
        for old, new, *said in self._rows:
            if old.count(None) != new.count(None) or (old[0] == "**") != (new[0] == "**"):
                raise ValueError(
                    f"`{said[0]}: {said[1]}`: both sides need as many `[]`, and `**.` or not"
                )

    def __bool__(self) -> bool:
        return bool(self._rows)

    def path(self, path: Path) -> Path:
        """The path of a value under its new name."""
        for old, new, *_ in self._rows:
            renamed = _renamed(path, old, new)
            if renamed is not None:
                path = renamed
        return path

    def tree(self, tree: Any) -> Any:
        """A tree with its keys renamed."""
        if not self._rows:
            return tree
        return _grown([(self.path(path), value) for path, value in everything(tree)])


def _parsed(key: str) -> list[str | None]:
    """A dotted key as keys, None for a place in a list."""
    return [None if part == "[]" else part for part in re.findall(r"\[\]|[^.\[\]]+", key)]


def _renamed(path: Path, old: list[str | None], new: list[str | None]) -> Path | None:
    anywhere = old[0] == "**"
    old, new = (old[1:], new[1:]) if anywhere else (old, new)
    for start in range(len(path) - len(old) + 1) if anywhere else (0,):
        part = path[start : start + len(old)]
        if len(part) == len(old) and all(
            isinstance(here, int) if said is None else here == said
            for here, said in zip(part, old, strict=True)
        ):
            places = iter([here for here in part if isinstance(here, int)])
            put = tuple(next(places) if said is None else said for said in new)
            return (*path[:start], *put, *path[start + len(old) :])
    return None


def _grown(values: list[tuple[Path, Any]]) -> Any:
    if not values[0][0]:
        return values[0][1]
    parts: dict[str | int, list[tuple[Path, Any]]] = {}
    for path, value in values:
        parts.setdefault(path[0], []).append((path[1:], value))
    if all(isinstance(key, int) for key in parts):
        return [_grown(part) for part in parts.values()]
    return {key: _grown(part) for key, part in parts.items()}
