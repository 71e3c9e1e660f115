"""Devices by tag or in files: what is known of them is the Rust core's to read."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from allrail.base.errors import InputError
from allrail.base.stdin import STDIN
from allrail.scenario.text import read_file

_SUFFIXES = (".json", ".yaml", ".yml")


def load_device(name: str, *, folder: FilePath | None = None) -> str | dict[str, Any]:
    """Read a device's file; a tag stays what it is.

    Args:
        name: A preset's tag, or a file's path: one that ends in `.json` or `.yaml`.
        folder: Where a relative path starts; the current folder if None.

    Raises:
        InputError: There is no such file, or it is not a mapping.
    """
    path = (folder or FilePath()) / name
    if path != STDIN and path.suffix not in _SUFFIXES:
        return name
    tree, _ = read_file(path)
    if not isinstance(tree, dict):
        raise InputError(
            "it is not a mapping of keys to values",
            hint="`allrail calibrate device --out FILE` writes one, with all keys",
            source=str(path),
        )
    return tree
