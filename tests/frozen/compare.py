"""Compares the records of two runs: which case, which key, both values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from frozen.trees import Renames, dotted, flatten

ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """One value that differs."""

    case: str
    command: str
    key: str
    frozen: str
    now: str

    def __str__(self) -> str:
        return f"`{self.command}`: {self.key}: {self.frozen} -> {self.now}"


def differences(
    frozen: Mapping[str, Any], now: Mapping[str, Any], renames: Renames
) -> Iterator[Difference]:
    """What differs between two records of a case.

    Args:
        frozen: The kept record.
        now: The new one.
        renames: Keys of results that have new names.
    """
    case = str(frozen["case"])
    before, after = frozen["steps"], now["steps"]
    if len(before) != len(after):
        yield Difference(case, "", "number of commands", str(len(before)), str(len(after)))
    for old, new in zip(before, after, strict=False):
        command = str(new["command"])
        was, is_ = _values(old, renames), _values(new, None)
        for key in [*was, *(key for key in is_ if key not in was)]:
            one, other = was.get(key, ABSENT), is_.get(key, ABSENT)
            if one != other:
                yield Difference(case, command, key, one, other)


def _values(step: Mapping[str, Any], renames: Renames | None) -> dict[str, str]:
    """Dotted key to the text of its value, in the order of the output."""
    found = {"exit status": json.dumps(step["status"])}
    trees = [("", step.get("json", {}))]
    trees += [(f"{name}: ", tree) for name, tree in sorted(step.get("files", {}).items())]
    for place, tree in trees:
        for path, value in flatten(tree):
            named = path if renames is None else renames.path(path)
            found[place + dotted(named)] = json.dumps(value, ensure_ascii=False)
    return found
