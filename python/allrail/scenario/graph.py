"""A fabric of switches and cables: `topology` and the keys of that topology.

The keys of each topology are the Rust core's: this file reads their JSON schemas from it, so that a
new topology needs no line here. What only the values together tell (boards that do not tile) is the
core's to check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from allrail import _core
from allrail.base.errors import InputError, did_you_mean, show
from allrail.scenario.fields import U32_MAX, Quantity, Text
from allrail.scenario.node import Described
from allrail.scenario.places import Path, Places, parse_path, show_path

_QUANTITIES = {
    "Bandwidth": Quantity("bandwidth"),
    "Bytes": Quantity("size"),
    "Time": Quantity("time"),
}


class GraphFabric(Described):
    """The network of a cluster as a graph of switches and cables."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Annotated[str, Text()] = Field(
        default="inline", exclude=True, description="What people call it."
    )
    topology: str = Field(description="Which topology; its keys stand beside it.")

    _places: Places = PrivateAttr(default_factory=Places)

    def check_whole(self, places: Places) -> None:
        """Let the core check what only the values together tell.

        Args:
            places: Where the values were written.

        Raises:
            InputError: They do not fit each other.
        """
        self._places = places
        self.ask(_core.graph_count)

    def ask(self, function: Callable[[str, str | None], str], prices: str | None = None) -> Any:
        """Ask the core about this fabric.

        Args:
            function: One of the core's that take a graph fabric and prices.
            prices: Prices as JSON; the paper's if None.

        Raises:
            InputError: The core refuses the fabric.
        """
        try:
            return json.loads(function(self.model_dump_json(), prices))
        except _core.InputError as error:
            told = json.loads(str(error.args[0]))
            path = (parse_path(told["field"]) or ())[1:]
            place = self._places.of(path)
            raise InputError(
                told["why"],
                hint=told["hint"] or "",
                source=place.source or self.name,
                line=place.line,
                field=show_path(self._places.as_written(path)),
                value=told["value"],
            ) from None

    @property
    def keys(self) -> dict[str, Any]:
        """The topology's keys as they were written."""
        return dict(self.model_extra or {})


@cache
def topologies() -> dict[str, dict[str, Any]]:
    """Return the core's topologies by name: each has `about` and `schema`."""
    return {row["name"]: row for row in json.loads(_core.topologies())}


def inner_topologies(tag: str) -> list[str]:
    """Return those keys of a topology that are topologies themselves."""
    schema = topologies()[tag]["schema"]
    named = {f"#/$defs/{name}" for name, one in schema.get("$defs", {}).items() if _is_whole(one)}
    return [key for key, one in schema["properties"].items() if one.get("$ref") in named]


def _is_whole(schema: dict[str, Any]) -> bool:
    return bool(schema.get("x-topology"))


def check_keys(tree: dict[str, Any], *, places: Places, at: Path = ()) -> None:
    """Check the topology's name and its keys, one by one.

    Args:
        tree: The fabric as plain values.
        places: Where they were written.
        at: Where the fabric stands in the tree that `places` is about.

    Raises:
        InputError: There is no such topology, or a key is missing, unknown or of the wrong kind.
    """
    tag = tree.get("topology")
    if not isinstance(tag, str) or tag not in topologies():
        hint = did_you_mean(show(tag), topologies(), others="the topologies are")
        raise _wrong("there is no such topology", hint, (*at, "topology"), tag, places)
    schema = topologies()[tag]["schema"]
    common = list(GraphFabric.model_fields) if not at else ["topology"]
    keys = {key: value for key, value in tree.items() if key not in common}
    _Check(schema.get("$defs", {}), places).mapping(keys, schema, at, extra=common)


def check_mapping(tree: Any, schema: dict[str, Any], *, path: Path, places: Places) -> None:
    """Check a mapping against one of the core's JSON schemas, key by key.

    Args:
        tree: The mapping as plain values.
        schema: Of its keys.
        path: Where it stands.
        places: Where its values were written.

    Raises:
        InputError: A key is missing, unknown or of the wrong kind.
    """
    _Check(schema.get("$defs", {}), places).mapping(tree, schema, path)


class _Check:
    """Compares values with a JSON schema, in our words."""

    def __init__(self, definitions: dict[str, Any], places: Places) -> None:
        self.definitions = definitions
        self.places = places

    def refuse(self, why: str, hint: str, path: Path, value: object) -> InputError:
        return _wrong(why, hint, path, value, self.places)

    def mapping(
        self, tree: Any, schema: dict[str, Any], path: Path, *, extra: list[str] | None = None
    ) -> None:
        known = schema["properties"]
        if not isinstance(tree, dict):
            hint = "its keys are " + ", ".join(f"`{key}`" for key in known)
            raise self.refuse("it is not a mapping of keys to values", hint, path, tree)
        for key, value in tree.items():
            if key not in known:
                hint = did_you_mean(str(key), [*known, *(extra or ())], others="the keys here are")
                raise self.refuse("there is no such key", hint, (*path, key), value)
        for key in schema.get("required", ()):
            if key not in tree:
                field = show_path((*path, key))
                place = self.places.of(path)
                raise InputError(
                    "it is missing",
                    hint=f"add `{key}`: {known[key].get('description', '...')}",
                    source=place.source,
                    line=place.line,
                    field=field,
                )
        for key, value in tree.items():
            self.value(value, known[key], (*path, key))

    def value(self, value: Any, schema: dict[str, Any], path: Path) -> None:
        name = schema.get("$ref", "").rpartition("/")[2]
        if name in _QUANTITIES:
            self._quantity(value, _QUANTITIES[name], path)
            return
        if name:
            self.value(value, self.definitions[name], path)
            return
        choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if choices:
            words = [one["const"] for one in choices if "const" in one]
            lists = any(one.get("type") == "array" for one in choices)
            if len(choices) == 1:  # which of several forms it has is the core's to say
                self.value(value, choices[0], path)
            elif words and lists and value not in words and not isinstance(value, (list, tuple)):
                known = ", ".join(f"`{word}`" for word in words)
                raise self.refuse(f"it is neither {known} nor a list", "write `[...]`", path, value)
            return
        if "oneOf" in schema:
            self._choice(value, [one["const"] for one in schema["oneOf"]], path)
            return
        kind = schema["type"]
        if _is_whole(schema) and isinstance(value, dict):
            check_keys(value, places=self.places, at=path)
        elif _is_whole(schema):
            hint = "for example `{topology: fat_tree, npus: 1024, levels: 2}`"
            raise self.refuse("it is not a mapping with `topology`", hint, path, value)
        elif kind == "object" and "properties" not in schema:
            self._named(value, schema["additionalProperties"], path)
        elif kind == "object":
            self.mapping(value, schema, path)
        elif kind == "array":
            self._list(value, schema, path)
        elif kind == "integer":
            self._count(value, path)
        elif kind == "boolean":
            self._flag(value, path)
        elif kind == "string":
            self._text(value, path)
        else:
            self._number(value, path)

    def _named(self, value: Any, schema: dict[str, Any], path: Path) -> None:
        if not isinstance(value, dict):
            raise self.refuse("it is not a mapping of names", "`{name: ...}`", path, value)
        for name, one in value.items():
            self.value(one, schema, (*path, name))

    def _quantity(self, value: Any, field: Quantity, path: Path) -> None:
        try:
            field.check(value)
        except PydanticCustomError as error:
            told = error.context or {}
            raise self.refuse(told["why"], told["hint"], path, value) from None

    def _choice(self, value: Any, known: list[str], path: Path) -> None:
        if value not in known:
            hint = did_you_mean(show(value), known)
            raise self.refuse(f"it is not a choice of `{path[-1]}`", hint, path, value)

    def _list(self, value: Any, schema: dict[str, Any], path: Path) -> None:
        low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        asked = f"it takes {low} values" if low == high else f"it takes {low} to {high} values"
        if not isinstance(value, list):
            raise self.refuse("it is not a list", "write it as `[...]`", path, value)
        if not low <= len(value) <= high:
            raise self.refuse(f"it has {len(value)} values", asked, path, value)
        for index, item in enumerate(value):
            self.value(item, schema["items"], (*path, index))

    def _count(self, value: Any, path: Path) -> None:
        hint = "for example `16`"
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse("it is not a whole number", hint, path, value)
        if not 0 <= value <= U32_MAX:
            side = "below 0" if value < 0 else f"above {U32_MAX}"
            raise self.refuse(f"it is {side}", hint, path, value)

    def _flag(self, value: Any, path: Path) -> None:
        if not isinstance(value, bool):
            hint = "write `true` or `false`"
            raise self.refuse("it is neither `true` nor `false`", hint, path, value)

    def _text(self, value: Any, path: Path) -> None:
        if not isinstance(value, str):
            raise self.refuse("it is not a name", "put it in quotes", path, value)

    def _number(self, value: Any, path: Path) -> None:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not math.isfinite(value):
            raise self.refuse("it is not a number", "for example `0.5`", path, value)


def _wrong(why: str, hint: str, path: Path, value: object, places: Places) -> InputError:
    place = places.of(path)
    return InputError(
        why,
        hint=hint,
        source=place.source,
        line=place.line,
        field=show_path(places.as_written(path)),
        value=show(value),
    )
