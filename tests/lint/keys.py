"""Finds keys of scenarios and job files that pages name and no schema has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

NAMED = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)+)(?::[^`]*|=[^`]*)?`")
"""A dotted name in backquotes, with or without a value."""
SET = re.compile(r"(?:--set|--each)[ =]'?([a-z_]+(?:\.[a-z_0-9]+)+)=")
"""A key on a command line."""
FILES = re.compile(
    r"\.(?:args|csv|env|et|gz|html|jsonl?|md|parquet|png|py|rs|svg|toml|txt|xml|ya?ml)$"
)

Schema = Mapping[str, Any]


def parts(node: Any, schema: Schema) -> Iterator[Schema]:
    """Yield the forms that a value may have, references followed.

    Args:
        node: A part of the schema.
        schema: The schema, which has the definitions.
    """
    if not isinstance(node, Mapping):
        return
    if "$ref" in node:
        yield from parts(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    for word in ("anyOf", "oneOf", "allOf"):
        for one in node.get(word, ()):
            yield from parts(one, schema)
    if "items" in node:
        yield from parts(node["items"], schema)
    yield node


def has(path: list[str], node: Any, schema: Schema) -> bool:
    """Whether a value of this part of the schema may have the key.

    Args:
        path: The key's names, from here on.
        node: A part of the schema.
        schema: The schema.
    """
    if not path:
        return True
    for form in parts(node, schema):
        known = form.get("properties", {})
        if path[0] in known:
            if has(path[1:], known[path[0]], schema):
                return True
        elif (more := form.get("additionalProperties")) is True or (
            isinstance(more, Mapping) and has(path[1:], more, schema)
        ):
            return True
    return False


def found(path: list[str], node: Any, schema: Schema) -> Iterator[Any]:
    """Yield the parts of the schema that a key leads to.

    Args:
        path: The key's names, from here on.
        node: A part of the schema.
        schema: The schema.
    """
    if not path:
        yield node
        return
    for form in parts(node, schema):
        if path[0] in form.get("properties", {}):
            yield from found(path[1:], form["properties"][path[0]], schema)


def groups(schema: Schema) -> dict[str, list[Any]]:
    """Return every key that has keys of its own, by name, with the parts that it may be.

    Args:
        schema: The schema.
    """
    named: dict[str, list[Any]] = {}
    for part in [schema, *schema.get("$defs", {}).values()]:
        for form in parts(part, schema):
            for name, value in form.get("properties", {}).items():
                if any("properties" in one for one in parts(value, schema)):
                    named.setdefault(name, []).append(value)
    return named


def unknown(text: str, schemas: list[Schema]) -> list[tuple[int, str]]:
    """Return each key that no schema has: its line and its name.

    A dotted name counts as a key where its first word is a key that has keys of its own, at the
    top of a schema or below: `schedule.tensor.credit`, `compute.device`.

    Args:
        text: A page, code and all.
        schemas: Those of the files that keys are in.
    """
    wrong = []
    starts = [(schema, groups(schema)) for schema in schemas]
    for number, line in enumerate(text.splitlines(), start=1):
        for name in [*NAMED.findall(line), *SET.findall(line)]:
            first, *rest = name.split(".")
            places = [(node, schema) for schema, known in starts for node in known.get(first, ())]
            if not places or FILES.search(name):
                continue
            if not any(has(rest, node, schema) for node, schema in places):
                wrong.append((number, name))
    return wrong
