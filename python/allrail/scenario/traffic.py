"""What is sent on a graph fabric: the key `traffic` and the world's key `packets`.

Which keys belong to which pattern, and what the built network refuses, is the Rust core's to check.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import Field

from allrail import _core
from allrail.errors import InputError, show
from allrail.scenario.fabric import Node
from allrail.scenario.fields import U32_MAX, Count, Flag, OneOf, Quantity, _Field, refuse
from allrail.scenario.places import Places

Message = tuple[str, int, int, str]
"""Time, source, destination, size."""


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


class Messages(_Field):
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
        from pydantic_core import PydanticCustomError

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


class Traffic(Node):
    """Who sends how much to whom."""

    pattern: Annotated[
        str,
        OneOf(
            "all_to_all",
            "uniform",
            "permutation",
            "incast",
            "all_reduce",
            "trace",
            what="a pattern",
        ),
    ] = Field(
        description="all_to_all: every NPU to every other, in shift phases; uniform: to all at "
        "once (`flows`) or to NPUs drawn one by one (`packets`); permutation: every NPU to one "
        "other, drawn; incast: many to one; all_reduce: by an algorithm; trace: messages with "
        "times."
    )
    size: Annotated[str, Quantity("size", positive=True)] | None = Field(
        default=None,
        description="From one NPU to another, over all planes, split evenly; all_reduce: each "
        "NPU's buffer. A trace has none.",
    )
    phases: Annotated[int | None, Phases()] = Field(
        default=None,
        description="all_to_all: `all`, or how many shift phases are drawn and simulated; the time "
        "is scaled.",
    )
    phase_barrier: Annotated[bool, Flag()] | None = Field(
        default=None,
        description="all_to_all: whether a phase begins when the one before is over everywhere. If "
        "left out: so in `flows`, not in `packets`.",
    )
    window: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="`all_to_all` without a barrier: how many phases an NPU has begun and not done "
        "(sent in and received in). `uniform` in `packets`: how many messages of an NPU may be "
        "leaving it at once. 8 if left out.",
    )
    paths: Annotated[str, OneOf("ideal", "minimal", "ecmp", "single", what="a choice of paths")] | (
        None
    ) = Field(
        default=None,
        description="In `flows`: best splitting (`ideal`; on a dragonfly over detours too), best "
        "splitting over minimal paths, equal splitting, one path. `ideal` if left out.",
    )
    count: Annotated[int, Count(1)] | None = Field(
        default=None,
        description="uniform, in `packets`: how many messages each NPU sends; 16 if left out.",
    )
    fan_in: Annotated[int, Count(1)] | None = Field(
        default=None, description="incast: how many NPUs send, drawn; all others if left out."
    )
    destination: Annotated[int, Count(0)] | None = Field(
        default=None, description="incast: to which NPU; 0 if left out."
    )
    algorithm: Annotated[str, OneOf(table="grid_algorithms")] | None = Field(
        default=None, description="all_reduce: by which algorithm."
    )
    shape: tuple[Annotated[int, Count(1)], Annotated[int, Count(1)]] | None = Field(
        default=None,
        description="all_reduce: rows and columns of the ranks; the fabric's own if left out.",
    )
    skip: Annotated[bool, Flag()] | None = Field(
        default=None,
        description="all_reduce: whether steps that repeat are skipped once they are steady; so if "
        "left out.",
    )
    messages: Annotated[tuple[Message, ...], Messages()] | None = Field(
        default=None,
        description="trace: rows of time, source, destination and size, in the order of time.",
    )
    file: str | None = Field(
        default=None,
        exclude=True,
        description="trace: a file with these rows instead, CSV with a header or YAML; its path "
        "starts at the scenario's folder.",
    )


class PacketSettings(_Field):
    """The world `packets`' own keys; the Rust core has their schema."""

    def check(self, value: Any) -> dict[str, Any]:
        """Return them as they were written."""
        from allrail.scenario.graph import check_mapping

        schema = _packets_schema()
        check_mapping(value, schema, path=("packets",), places=Places())
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema, without references."""
        schema = _packets_schema()
        texts = {
            key: {"type": "string", **{k: v for k, v in row.items() if k != "$ref"}}
            if "$ref" in row
            else row
            for key, row in schema["properties"].items()
        }
        return {"type": "object", "properties": texts, "additionalProperties": False}


@cache
def _packets_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(_core.packets_schema())
    return schema
