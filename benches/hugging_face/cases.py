"""Write configurations with the library's counts, for the core's tests, which have no library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import judge
import library
from defaults import READER, TEXT, known_keys

from allrail import _core

PATH = READER.parents[2] / "tests" / "it" / "hugging_face_counts.jsonl"
EACH = 3
"""Configurations of a type that are kept."""


def write() -> Path:
    """Write the file, a line a configuration: type, class, parameters, keys; return its path."""
    keys = known_keys()
    lines = []
    for kind in library.kinds():
        if kind not in _core.hugging_face_types():
            continue
        found = []
        for name, theirs, saved in judge.counted(kind):
            found.append([kind, name, theirs, trimmed(saved, keys)])
        lines += [json.dumps(one, sort_keys=True) for one in found[:EACH]]
    PATH.write_text("\n".join(lines) + "\n")
    return PATH


def trimmed(saved: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    """Keys that allrail's reader asks for, and the text model's."""
    kept = {"model_type", "architectures"} | keys
    found = {key: value for key, value in saved.items() if key in kept}
    for key in TEXT:
        if isinstance(saved.get(key), dict):
            found[key] = {name: one for name, one in saved[key].items() if name in kept}
    return found
