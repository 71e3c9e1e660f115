"""How a training step's communication becomes messages, and where its ranks are: two keys.

`messages` and `placement` are read by the worlds of messages alone: `links`, `flows`, `packets`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from allrail.scenario.fabric import Node
from allrail.scenario.fields import Flag, OneOf, Quantity, Text, _Field, refuse, table

GRID = tuple(row["name"] for row in table("grid_algorithms") if row["by_npus"])
PLACEMENTS = ("in_order", "shuffled", "scattered")


class ByGroup(_Field):
    """Group names to texts, or to pairs of numbers."""

    def __init__(self, *, pairs: bool) -> None:
        self.pairs = pairs

    def check(self, value: Any) -> dict[str, Any]:
        """Return the mapping."""
        hint = "for example `{data: [16, 16]}`" if self.pairs else "for example `{data: rings}`"
        if not isinstance(value, dict):
            refuse("it is not a mapping of groups", hint=hint)
        for one in value.values():
            pair = isinstance(one, (list, tuple)) and len(one) == 2
            if not (pair if self.pairs else one in GRID):
                refuse(f"`{one}` is not what a group takes", hint=hint)
        return dict(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        number = {"type": "integer", "minimum": 1}
        pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
        one = pair if self.pairs else {"type": "string", "enum": list(GRID)}
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


class Algorithms(Node):
    """What collectives are made of on graph fabrics."""

    all_reduce: Annotated[str, OneOf(*GRID, what="an algorithm")] = Field(
        default="ring", description="Of all-reduces, over a group's ranks in a grid."
    )
    all_to_all: Annotated[str, OneOf("direct", "pairwise", what="an all-to-all")] = Field(
        default="direct",
        description="`direct`: to everyone at once; `pairwise`: to one after the other, each when "
        "the last one's message has come.",
    )
    groups: Annotated[dict[str, str], ByGroup(pairs=False)] = Field(
        default={}, description="Groups whose all-reduces take another algorithm, by name."
    )
    shapes: Annotated[dict[str, Any], ByGroup(pairs=True)] = Field(
        default={},
        description="Rows and columns of a group's ranks, by name; its first part along rows, or "
        "as square as it goes, if left out.",
    )


class Messages(Node):
    """How communication becomes messages."""

    paths: Annotated[str, Text()] | None = Field(
        default=None,
        description="`flows`: over which paths a message is split: `ecmp` (if left out), `single`, "
        "`minimal`, `ideal`.",
    )
    overhead: Annotated[str, Quantity("time")] = Field(
        default="0 ns",
        description="What every message waits for at its ends: processors, network interfaces.",
    )
    steady: Annotated[bool, Flag()] = Field(
        default=False,
        description="`flows`: alike steps of an algorithm are one message each; exact while "
        "nothing disturbs them.",
    )
    algorithms: Algorithms | None = Field(
        default=None,
        description="What collectives are made of on graph fabrics, instead of the chunks of a plan "
        "on the topology's dimensions.",
    )
