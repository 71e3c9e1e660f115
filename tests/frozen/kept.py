"""What is kept: one line of JSON a case in one compressed file, written whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

VERSION = 1


def write(path: Path, head: Mapping[str, Any], records: Iterable[Mapping[str, Any]]) -> None:
    """Write records in the order of their names.

    Args:
        path: The file; it is replaced once all is written.
        head: What was frozen: commit, groups.
        records: One a case.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    rows = sorted(records, key=lambda record: record["case"])
    try:
        # No name and no time in the header: the same records give the same bytes.
        with (
            partial.open("wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file,
        ):
            for row in ({"version": VERSION, **head}, *rows):
                file.write(line(row))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def line(record: Mapping[str, Any]) -> bytes:
    """A record as a line of JSON, with its keys in order."""
    return (json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n").encode()


def read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read what `write` has written.

    Args:
        path: The file.

    Returns:
        The head, and the records by their case.

    Raises:
        ValueError: If the file is of another version, or none of these.
    """
    with gzip.open(path, "rb") as file:
        head, *rows = (json.loads(text) for text in file)
    if head.get("version") != VERSION:
        raise ValueError(f"{path} has version {head.get('version')}, and {VERSION} is read")
    return head, {row["case"]: row for row in rows}
