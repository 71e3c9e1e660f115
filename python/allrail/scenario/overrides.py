"""`--set a.b=value`: change one value of a tree before it is validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allrail.base.arguments import check
from allrail.base.errors import InputError, show
from allrail.scenario.places import Path, Place, Places, parse_path, show_path
from allrail.scenario.text import read_text

Sets = Iterable[str] | Mapping[str, object]


def parse_sets(sets: Sets) -> list[tuple[Path, Any, Place]]:
    """Read overrides.

    Args:
        sets: `a.b=value` texts whose value is YAML, or a mapping of paths to values.

    Returns:
        Path, value and place of each.

    Raises:
        InputError: One is malformed.
    """
    if isinstance(sets, Mapping):
        return [(_path(key), value, Place("")) for key, value in sets.items()]
    parsed: list[tuple[Path, Any, Place]] = []
    for text in sets:
        check("sets", [text])
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(
                "it has no `=`",
                hint="for example `--set schedule.policy=themis`",
                source="--set",
                value=text,
            )
        path = _path(key.strip())
        tree = read_text(value, source=f"--set {text}")[0] if value.strip() else value
        parsed.append((path, tree, Place("--set")))
    return parsed


def apply(tree: Any, path: Path, value: object, *, place: Place, places: Places) -> Any:
    """Return `tree` with `value` at `path`; what stands on the way is copied, not changed.

    Args:
        tree: Nested mappings and lists.
        path: Where; missing mappings on the way are made.
        value: What.
        place: Where the override was written.
        places: Updated.

    Raises:
        InputError: The path leads through something that is neither a mapping nor a list.
    """
    changed = _put(tree, path, 0, value, place)
    replacement = Places({(): place})
    places.put(path, replacement)
    return changed


def _put(tree: Any, path: Path, depth: int, value: object, place: Place) -> Any:
    if depth == len(path):
        return value
    step = path[depth]
    if isinstance(step, int):
        if step == 0 and isinstance(tree, Mapping):  # a list of one may be written without [ ]
            return _put(tree, path, depth + 1, value, place)
        if not isinstance(tree, (list, tuple)) or step >= len(tree):
            count = len(tree) if isinstance(tree, (list, tuple)) else None
            raise InputError(
                "there is no such entry",
                hint="it is not a list" if count is None else f"the list has {count}, from 0",
                source=place.source,
                field=show_path(path),
                value=show(value),
            )
        items = list(tree)
        items[step] = _put(items[step], path, depth + 1, value, place)
        return items
    if tree is None:
        tree = {}
    if isinstance(tree, (list, tuple)) and len(tree) == 1:  # `collective.size` of the only one
        return [_put(tree[0], path, depth, value, place)]
    if not isinstance(tree, Mapping):
        where = show_path(path[:depth])
        raise InputError(
            f"`{where}` has no keys",
            hint=f"say which, such as `{where}[0].{step}`"
            if isinstance(tree, (list, tuple))
            else f"`{where}` is `{show(tree)}`",
            source=place.source,
            field=show_path(path),
            value=show(value),
        )
    return {**tree, step: _put(tree.get(step), path, depth + 1, value, place)}


def _path(text: str) -> Path:
    path = parse_path(text)
    if not path:
        raise InputError(
            "it is not a path",
            hint="for example `schedule.policy` or `fabric.dimensions[0].bandwidth`",
            source="--set",
            value=text,
        )
    return path
