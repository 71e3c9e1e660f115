"""Write what the configuration classes fill in, for types and keys that allrail's reader knows."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from library import CONFIG_MAPPING, TEXT

from allrail import _core

READER = Path(__file__).parents[2] / "crates/workload/src/models/hugging_face"

OWN = {"llama4"}
"""Types whose text model is a class with a head, which ties its tables by its own configuration."""


def write() -> Path:
    """Write `defaults.json` beside the reader, one line a type; return its path."""
    keys = known_keys()
    types = {
        kind: _defaults(kind, keys) for kind in _core.hugging_face_types() if kind in CONFIG_MAPPING
    }
    parts = {}
    for kind in sorted(CONFIG_MAPPING.keys()):
        part = _part(kind, keys, types)
        if part is not None:
            parts[kind] = part
    others = [
        kind
        for kind in sorted(CONFIG_MAPPING.keys())
        if kind not in types and kind not in parts and kind not in _core.hugging_face_types()
    ]
    path = READER / "defaults.json"
    lines = [
        f'  "{kind}": {json.dumps(one, sort_keys=True)}' for kind, one in sorted(types.items())
    ]
    rows = [f'  "{kind}": {json.dumps(one, sort_keys=True)}' for kind, one in sorted(parts.items())]
    path.write_text(
        '{\n"types": {\n'
        + ",\n".join(lines)
        + '\n},\n"parts": {\n'
        + ",\n".join(rows)
        + '\n},\n"others": '
        + json.dumps(others)
        + "\n}\n"
    )
    return path


def known_keys() -> set[str]:
    """Every word in the reader's source that may be a key of a configuration."""
    keys: set[str] = set()
    for source in READER.glob("*.rs"):
        keys |= set(re.findall(r'"([A-Za-z_][A-Za-z0-9_]*)"', source.read_text()))
    return keys - {"model_type", "architectures"}


def _defaults(kind: str, keys: set[str]) -> dict[str, Any]:
    """Plain values that a class has, as fields or for all its configurations."""
    cls = CONFIG_MAPPING[kind]
    names = keys & (set(dir(cls)) | {field.name for field in dataclasses.fields(cls)})
    found = {name: getattr(cls, name, None) for name in sorted(names)}
    return {name: one for name, one in found.items() if isinstance(one, bool | int | float | str)}


def _part(kind: str, keys: set[str], types: dict[str, Any]) -> dict[str, Any] | None:
    """Where a type of several parts has its text model, if that is one that is read."""
    cls = CONFIG_MAPPING[kind]
    try:
        whole = cls()
    except Exception:  # noqa: BLE001, a class that cannot be made without sizes has no defaults
        return None
    for key in TEXT:
        text = getattr(whole, key, None)
        inner = getattr(text, "model_type", None)
        if text is None or inner not in types:
            continue
        own = CONFIG_MAPPING[inner]().to_dict()
        mine = text.to_dict()
        others = {
            name: mine[name]
            for name in sorted(keys & set(types[inner]))
            if mine.get(name) != own.get(name)
            and isinstance(mine.get(name), bool | int | float | str)
        }
        return {
            "key": key,
            "kind": inner,
            "tied": None if kind in OWN else bool(getattr(whole, "tie_word_embeddings", False)),
            "forwards": _forwards(cls, key, inner),
            "with": others,
        }
    return None


def _forwards(cls: Any, key: str, inner: str) -> bool:
    """Whether a text model that ties its tables ties those of the whole."""
    try:
        text = {"model_type": inner, "tie_word_embeddings": True}
        whole = cls(**{key: text, "tie_word_embeddings": False})
    except Exception:  # noqa: BLE001, then it does not take it
        return False
    return bool(whole.tie_word_embeddings)
