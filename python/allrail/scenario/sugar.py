"""Keys that people write otherwise than the core reads them, each with its own check.

A model by name, a degree's places, a what-if in one word, rows of a trace, one form of several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic_core import PydanticCustomError

from allrail import _core
from allrail.base.errors import InputError, did_you_mean, show
from allrail.scenario.choices import FORMS, PLACEMENTS
from allrail.scenario.devices import load_device
from allrail.scenario.fields import U32_MAX, Count, Number, OneOf, Quantity, _Field, refuse
from allrail.scenario.graph import check_mapping
from allrail.scenario.places import Places

AXES = ("tp", "cp", "op", "ep", "pp", "dp")
"""The degrees of parallelism."""

Message = tuple[str, int, int, str]
"""Time, source, destination, size."""


class Model(_Field):
    """A preset's name, a file, or a mapping with one of `FORMS`; kept as the last of these.

    Attributes:
        by_name: Loads a preset or a file; `models` sets it, which checks defaults as a workload.
    """

    by_name: ClassVar[Callable[[str], dict[str, Any]]]

    def check(self, value: Any) -> dict[str, Any]:
        """Return the mapping."""
        if isinstance(value, str):
            return type(self).by_name(value)
        hint = "name a preset or a file, or write one of " + ", ".join(f"`{one}`" for one in FORMS)
        if not isinstance(value, dict):
            refuse("it is neither a name nor a mapping", hint=hint)
        for key in value:
            if key not in FORMS and key not in ("name", "defaults", "rotary_base"):
                refuse(
                    f"there is no such form as `{key}`",
                    hint=did_you_mean(show(key), FORMS, others="the forms are"),
                )
        if len(set(value) & set(FORMS)) != 1:
            refuse("it takes exactly one form", hint=hint)
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        name = {"name": {"type": "string"}}
        mappings = [
            {
                "type": "object",
                "description": about,
                "properties": {**name, form: {}},
                "required": [form],
                "additionalProperties": False,
            }
            for form, about in FORMS.items()
        ]
        return {"anyOf": [{"type": "string", "description": "A preset or a file."}, *mappings]}


class Device(_Field):
    """A preset's tag, a device's file, or its content; kept as a tag or as content."""

    def check(self, value: Any) -> str | dict[str, Any]:
        """Return the tag, or the content."""
        if isinstance(value, str):
            return load_device(value)
        if not isinstance(value, dict):
            refuse("it is neither a name nor a mapping", hint="such as `h100`, or a device's file")
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {
            "anyOf": [
                {"type": "string", "description": "A preset or a file."},
                {"type": "object", "description": "The content of a device's file."},
            ]
        }


class Mapped(_Field):
    """Degree to dimensions or factors of them: `{tp: [0], dp: [1, 2]}`, `{tp: ["1[0:8]"]}`."""

    _HINT = "for example `{tp: [0], dp: [1, 2]}`, or `1[0:8]` for the inner 8 of dimension 1"

    def check(self, value: Any) -> dict[str, tuple[int | str, ...]]:
        """Return the mapping."""
        if not isinstance(value, dict):
            refuse("it is not a mapping of degrees to dimensions", hint=self._HINT)
        found: dict[str, tuple[int | str, ...]] = {}
        for key, places in value.items():
            if key not in AXES:
                near = did_you_mean(show(key), AXES, others="the degrees are")
                refuse(f"there is no such degree as `{show(key)}`", hint=near)
            listed = list(places) if isinstance(places, (list, tuple)) else [places]
            for place in listed:
                whole = isinstance(place, int) and not isinstance(place, bool) and place >= 0
                if not whole and not isinstance(place, str):
                    refuse(f"`{show(place)}` is no dimension", hint=self._HINT)
            found[key] = tuple(listed)
        return found

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        place = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
        places = {"anyOf": [place, {"type": "array", "items": place}]}
        properties = dict.fromkeys(AXES, places)
        return {"type": "object", "properties": properties, "additionalProperties": False}


class WhatIfName(_Field):
    """An assumption that is not so: by name, or `{utilisation: x}`."""

    _DOUBLED = re.compile(r"dim([1-9]\d{0,2})_x2")
    _NAMES = ("infinite_bandwidth", "ideal_schedule", "dim1_x2", "no_straggler")

    _USED = Number(above=0, high=1, example="0.6")

    def check(self, value: Any) -> str | dict[str, float]:
        """Return the name, or the mapping."""
        if isinstance(value, dict) and set(value) == {"utilisation"}:
            return {"utilisation": self._USED.check(value["utilisation"])}
        if not isinstance(value, str) or (
            value not in self._NAMES and self._DOUBLED.fullmatch(value) is None
        ):
            near = did_you_mean(show(value), self._NAMES, others="the assumptions are")
            refuse("there is no such assumption", hint=near)
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        doubled = {"type": "string", "pattern": f"^{self._DOUBLED.pattern}$"}
        used = {
            "type": "object",
            "properties": {"utilisation": self._USED.schema()},
            "required": ["utilisation"],
            "additionalProperties": False,
        }
        return {"anyOf": [{"type": "string", "enum": list(self._NAMES)}, doubled, used]}

    @classmethod
    def fits(cls, name: str | Mapping[str, float], count: int) -> None:
        """Refuse a dimension that the fabric has not.

        Args:
            name: The assumption.
            count: How many dimensions there are.

        Raises:
            InputError: It names none of them.
        """
        doubled = cls._DOUBLED.fullmatch(name) if isinstance(name, str) else None
        if doubled is not None and int(doubled[1]) > count:
            raise InputError(
                f"the fabric has no dimension {doubled[1]}",
                hint=f"its dimensions are `dim1` to `dim{count}`",
                field="what_if",
                value=show(name),
            )

    @classmethod
    def tree(cls, name: str | Mapping[str, float]) -> str | dict[str, int]:
        """Return what the Rust core reads.

        Args:
            name: The assumption.
        """
        if not isinstance(name, str):
            return {"utilisation": max(1, round(1e6 * name["utilisation"]))}
        doubled = cls._DOUBLED.fullmatch(name)
        if doubled is not None:
            return {"double": int(doubled[1]) - 1}
        return "ideal" if name == "ideal_schedule" else name


class ByGroup(_Field):
    """Group names to texts, or to pairs of numbers."""

    def __init__(self, *, pairs: bool) -> None:
        self.pairs = pairs

    def check(self, value: Any) -> dict[str, Any]:
        """Return the mapping."""
        hint = "for example `{data: [16, 16]}`" if self.pairs else "for example `{data: rings}`"
        if not isinstance(value, dict):
            refuse("it is not a mapping of groups", hint=hint)
        algorithm = OneOf(table="grid_algorithms")
        for one in value.values():
            if not self.pairs:
                algorithm.check(one)
            elif not (isinstance(one, (list, tuple)) and len(one) == 2):
                refuse(f"`{one}` is not what a group takes", hint=hint)
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        number = {"type": "integer", "minimum": 1}
        pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
        one = pair if self.pairs else OneOf(table="grid_algorithms").schema()
        return {"type": "object", "additionalProperties": one}


class PlacementField(_Field):
    """A rule by name, or a list of NPUs."""

    def check(self, value: Any) -> str | list[int]:
        """Return it."""
        hint = "write `in_order`, `shuffled`, `scattered`, or list an NPU for each rank"
        if isinstance(value, str) and value in PLACEMENTS:
            return value
        if isinstance(value, (list, tuple)) and all(
            isinstance(npu, int) and not isinstance(npu, bool) and npu >= 0 for npu in value
        ):
            return list(value)
        return refuse("there is no such placement", hint=hint)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        number = {"type": "integer", "minimum": 0}
        rule = {"type": "string", "enum": list(PLACEMENTS)}
        return {"anyOf": [rule, {"type": "array", "items": number}]}


class Phases(_Field):
    """`all`, or a number of shift phases that are drawn: `16`, or `16 sampled`."""

    def check(self, value: Any) -> int | None:
        """Return the number; None for all."""
        hint = "write `all`, or a number such as `16`"
        if value is None or value == "all":
            return None
        if isinstance(value, str):
            number, _, word = value.partition(" ")
            if word != "sampled" or not number.isascii() or not number.isdecimal():
                refuse("it is neither `all` nor a number of phases", hint=hint)
            value = int(number)
        return Count(1, hint=hint).check(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}]}


class Rows(_Field):
    """Rows of time, source, destination and size."""

    _HINT = "write rows such as `[0 us, 0, 1, 1 MiB]`: time, source, destination, size"
    _COLUMNS: ClassVar[dict[str, _Field]] = {
        "time": Quantity("time"),
        "source": Count(0),
        "destination": Count(0),
        "size": Quantity("size", positive=True),
    }

    def check(self, value: Any) -> tuple[Message, ...]:
        """Return the rows."""
        if not isinstance(value, (list, tuple)):
            refuse("it is not a list", hint=self._HINT)
        return tuple(self._row(index, row) for index, row in enumerate(value))

    def _row(self, index: int, row: Any) -> Message:
        at = f"traffic.messages[{index}]"
        if not isinstance(row, (list, tuple)) or len(row) != len(self._COLUMNS):
            raise InputError("it has not four values", field=at, value=show(row), hint=self._HINT)
        values = []
        for value, (name, column) in zip(row, self._COLUMNS.items(), strict=True):
            try:
                values.append(column.check(value))
            except PydanticCustomError as error:
                told = error.context or {}
                raise InputError(
                    told["why"], field=f"{at}.{name}", value=show(value), hint=told["hint"]
                ) from None
        return tuple(values)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        text, npu = {"type": "string"}, {"type": "integer", "minimum": 0, "maximum": U32_MAX}
        row = {"type": "array", "prefixItems": [text, npu, npu, text], "minItems": 4, "maxItems": 4}
        return {"type": "array", "items": row}


class PacketSettings(_Field):
    """The network model `packets`' own keys; the Rust core has their schema."""

    def check(self, value: Any) -> dict[str, Any]:
        """Return them as they were written."""
        schema = _packets_schema()
        check_mapping(value, schema, path=("packets",), places=Places())
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema, without references."""
        schema = _packets_schema()
        texts = {key: _without_references(row) for key, row in schema["properties"].items()}
        return {"type": "object", "properties": texts, "additionalProperties": False}


def _without_references(row: Any) -> Any:
    """A schema in which every reference, of a quantity, is a text, however deep it lies."""
    if isinstance(row, list):
        return [_without_references(one) for one in row]
    if not isinstance(row, dict):
        return row
    plain = {key: _without_references(value) for key, value in row.items() if key != "$ref"}
    return {"type": "string", **plain} if "$ref" in row else plain


@cache
def _packets_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(_core.packets_schema())
    return schema
