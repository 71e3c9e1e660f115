"""Algorithms as people write them: per dimension, by collective, or left to be chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from allrail.base.errors import InputError, show
from allrail.scenario.choices import OPERATIONS
from allrail.scenario.fields import OneOf, Quantity, _Field, names, parse_quantity, refuse

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

AUTO = "auto"
"""The algorithm that is chosen."""


def _made() -> list[str]:
    """Return the names of those that are made for a network."""
    return names("made_algorithms")


class _WithPrograms(_Field):
    """What may name programs of the same schedule, which stand before it."""

    def check(self, value: Any, programs: Collection[str] = ()) -> Any:
        """Return the value to keep, or `refuse` it."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        del source, handler
        return core_schema.with_info_plain_validator_function(
            lambda value, info: self.check(value, info.data.get("programs") or ())
        )


class PerDimension(_WithPrograms):
    """An algorithm for each dimension, some or all of which may be chosen."""

    def __init__(self, field: str) -> None:
        self.field = field

    def check(self, value: Any, programs: Collection[str] = ()) -> str | tuple[str, ...]:
        """Return the word, or the list; names may be those of programs, too."""
        if isinstance(value, str) and value == AUTO:
            return AUTO
        if not isinstance(value, (list, tuple)):
            refuse("it is not a list", hint=f"one algorithm per dimension, or `{AUTO}`")
        return tuple(self._one(*each, programs) for each in enumerate(value))

    def _one(self, place: int, name: Any, programs: Collection[str]) -> str:
        if isinstance(name, str) and name in (AUTO, *_made(), *programs):
            return name
        try:
            return OneOf(table="algorithms").check(name)
        except PydanticCustomError as error:
            told = error.context or {}
            raise InputError(
                told["why"],
                field=f"{self.field}[{place}]",
                value=show(name),
                hint=f"{told['hint']}; `{AUTO}` is whatever is the fastest"
                + "".join(
                    f"; `{made}` is made for a network that is no product" for made in _made()
                )
                + "".join(f"; `{program}` is a program of this schedule" for program in programs),
            ) from None

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        known = [*OneOf(table="algorithms").schema()["enum"], *_made(), AUTO]
        # Others are programs: files, or names of `schedule.programs`.
        each = {"type": "string", "anyOf": [{"enum": known}, {"pattern": "."}]}
        return {"anyOf": [{"const": AUTO}, {"type": "array", "items": each}]}


class ByOperation(_WithPrograms):
    """Operation to algorithms, one per dimension."""

    def check(self, value: Any, programs: Collection[str] = ()) -> dict[str, str | tuple[str, ...]]:
        """Return the mapping."""
        if not isinstance(value, Mapping):
            hint = "for example `{all_gather: [direct, ring]}`, one algorithm per dimension"
            refuse("it is not a mapping of operations to algorithms", hint=hint)
        operation, path = (
            OneOf(*OPERATIONS, what="a collective"),
            "schedule.algorithms_by_operation",
        )
        return {
            operation.check(key): PerDimension(f"{path}.{key}").check(said, programs)
            for key, said in value.items()
        }

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        properties = dict.fromkeys(OPERATIONS, PerDimension("").schema())
        return {"type": "object", "properties": properties, "additionalProperties": False}


class FastestBySize(_Field):
    """Operation to the sizes from which on an algorithm is the fastest, rising."""

    _EXAMPLE = "`{all_reduce: [{from: 1 B, algorithm: direct}, {from: 4 MiB, algorithm: ring}]}`"

    def check(self, value: Any) -> dict[str, tuple[dict[str, str], ...]]:
        """Return the mapping."""
        if not isinstance(value, Mapping):
            refuse(
                "it is not a mapping of operations to sizes", hint=f"for example {self._EXAMPLE}"
            )
        operation = OneOf(*OPERATIONS, what="a collective")
        return {operation.check(key): self._points(said) for key, said in value.items()}

    def _points(self, said: Any) -> tuple[dict[str, str], ...]:
        hint = f"each has `from` and `algorithm`, and begins above the one before: {self._EXAMPLE}"
        if not isinstance(said, (list, tuple)) or not said:
            refuse("it is not a list of sizes", hint=hint)
        size, algorithm = Quantity("size"), OneOf(table="algorithms")
        points: list[dict[str, str]] = []
        for one in said:
            if not isinstance(one, Mapping) or set(one) != {"from", "algorithm"}:
                refuse(f"`{show(one)}` is no size with an algorithm", hint=hint)
            points.append(
                {"from": size.check(one["from"]), "algorithm": algorithm.check(one["algorithm"])}
            )
        starts = [parse_quantity("size", one["from"]) for one in points]
        if any(one >= following for one, following in pairwise(starts)):
            refuse("its sizes do not rise", hint=hint)
        return tuple(points)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        point = {
            "type": "object",
            "properties": {"from": Quantity("size").schema()}
            | {"algorithm": OneOf(table="algorithms").schema()},
            "required": ["from", "algorithm"],
            "additionalProperties": False,
        }
        points = {"type": "array", "items": point, "minItems": 1}
        properties = dict.fromkeys(OPERATIONS, points)
        return {"type": "object", "properties": properties, "additionalProperties": False}


class OneByOperation(_Field):
    """Operation to one algorithm."""

    _HINT = "for example `{all_reduce: direct}`"

    def check(self, value: Any) -> dict[str, str]:
        """Return the mapping."""
        if not isinstance(value, Mapping):
            refuse("it is not a mapping of operations to an algorithm", hint=self._HINT)
        operation, algorithm = OneOf(*OPERATIONS, what="a collective"), OneOf(table="algorithms")
        return {operation.check(key): algorithm.check(one) for key, one in value.items()}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        properties = dict.fromkeys(OPERATIONS, OneOf(table="algorithms").schema())
        return {"type": "object", "properties": properties, "additionalProperties": False}
