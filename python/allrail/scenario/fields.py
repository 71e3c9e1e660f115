"""The kinds of value that a scenario's fields take, each with its own message when refused.

They are annotations: `Annotated[int, Count(1)]`. What a name may be comes from the Rust core's own
tables, so that a new policy or algorithm needs no line here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from allrail import _core
from allrail.base.errors import did_you_mean, show

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

QuantityKind = Literal["time", "size", "bandwidth"]
Table = Literal[
    "algorithms",
    "made_algorithms",
    "policies",
    "orders",
    "network_models",
    "grid_algorithms",
    "tensor_policies",
    "coordinations",
    "compressions",
    "packets",
    "devices",
]

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

_EXAMPLES: dict[QuantityKind, list[str]] = {
    "time": ["700 ns", "1.7 us"],
    "size": ["1 GiB", "100 MB"],
    "bandwidth": ["400 Gb/s", "50 GB/s", "50 GiB/s"],
}
_SINGULAR: dict[Table, str] = {
    "algorithms": "an algorithm",
    "made_algorithms": "an algorithm that is made for a network",
    "policies": "a policy",
    "orders": "an order",
    "network_models": "a network model",
    "grid_algorithms": "an all-reduce on a grid",
    "tensor_policies": "a tensor scheduler",
    "coordinations": "a coordination",
    "compressions": "a compression",
    "packets": "a kind of packet",
    "devices": "a preset of a device",
}

_MORE: dict[Table, str] = dict.fromkeys(
    ("policies", "tensor_policies"), "`--plugin FILE` adds one of your own"
)
"""How there come to be other names."""


def refuse(why: str, *, hint: str = "") -> NoReturn:
    """Refuse the value that is being validated.

    Args:
        why: What is wrong with it, as half a sentence.
        hint: What to write instead.
    """
    raise PydanticCustomError("refused", "{why}", {"why": why, "hint": hint})


@cache
def table(name: Table) -> tuple[dict[str, Any], ...]:
    """Return one of the core's tables: each row has `name` and `about`.

    Args:
        name: Which table.
    """
    return tuple(json.loads(getattr(_core, name)()))


def names(of: Table) -> list[str]:
    """Return the names in one of the core's tables, in its order.

    Args:
        of: Which table.
    """
    return [row["name"] for row in table(of)]


def more_of(of: Table | None) -> str:
    """Return how there come to be other names than those of a table; empty if they do not.

    Args:
        of: Which table.
    """
    return _MORE.get(of, "") if of else ""


def renamed(of: Table, value: Any) -> str:
    """Return the hint for a name that was renamed; empty if it was not.

    Args:
        of: The table that the name of today is in.
        value: What the user wrote.
    """
    now = (row["name"] for row in table(of) if value is not None and row.get("formerly") == value)
    return next((f"it was renamed: write `{name}`" for name in now), "")


@lru_cache(maxsize=4096)
def parse_quantity(kind: QuantityKind, text: str) -> int:
    """Read a quantity: picoseconds, bytes, or bytes per second.

    Args:
        kind: What it measures.
        text: The number and its unit.

    Raises:
        _core.InputError: It is not such a quantity.
    """
    return _core.parse_quantity(kind, text)


class _Field:
    """An annotation whose `check` replaces pydantic's own validation."""

    def check(self, value: Any) -> Any:
        """Return the value to keep, or `refuse` it."""
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        del schema, handler
        return self.schema()


class Quantity(_Field):
    """A number with a unit, kept as text; only the Rust core reads it."""

    def __init__(self, kind: QuantityKind, *, positive: bool = False) -> None:
        self.kind: QuantityKind = kind
        self.positive = positive

    def check(self, value: Any) -> str:
        """Return the text."""
        example = _EXAMPLES[self.kind][0]
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            refuse(f"a {self.kind} is a number with a unit", hint=f"write it as `{example}`")
        text = value if isinstance(value, str) else show(value)
        try:
            amount = parse_quantity(self.kind, text)
        except _core.InputError as error:
            told = json.loads(error.args[0])
            refuse(told["why"], hint=told["hint"])
        if self.positive and amount == 0:
            refuse("it is zero", hint=f"for example `{example}`")
        return text

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "string", "examples": _EXAMPLES[self.kind]}


class Count(_Field):
    """A whole number in a range."""

    def __init__(self, low: int, high: int = U32_MAX, *, hint: str = "") -> None:
        self.low = low
        self.high = high
        self.hint = hint or f"for example `{max(low, 1)}`"

    def check(self, value: Any) -> int:
        """Return the number."""
        if isinstance(value, bool) or not isinstance(value, int):
            refuse("it is not a whole number", hint=self.hint)
        if value < self.low:
            refuse(f"it is below {self.low}", hint=self.hint)
        if value > self.high:
            refuse(f"it is above {self.high}", hint=self.hint)
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


class Amount(_Field):
    """A whole number of 1 or more, also written short: `15e12`, `300 G`, `300B`; kept whole."""

    _PREFIXES: ClassVar[dict[str, int]] = {"K": 3, "M": 6, "G": 9, "B": 9, "T": 12}
    _SHORT = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,2})?)\s*([KMGBT]?)", re.ASCII)
    _HINT = "for example `1500000`, `15e12` or `300 G` (K, M, G or B, T: powers of 1000)"

    def check(self, value: Any) -> int:
        """Return the number."""
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            refuse("it is not a whole number", hint=self._HINT)
        if isinstance(value, str):
            short = self._SHORT.fullmatch(value.replace("_", ""))
            if short is None:
                refuse("it is not a whole number", hint=self._HINT)
            value = Decimal(short[1]).scaleb(self._PREFIXES.get(short[2], 0))
        if not math.isfinite(value) or value != int(value):
            refuse("it is not a whole number", hint=self._HINT)
        return Count(1, U64_MAX, hint=self._HINT).check(int(value))

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        number = {"type": "number", "minimum": 1}
        return {"anyOf": [number, {"type": "string", "examples": ["300 G", "15 T"]}]}


class CountOrWord(_Field):
    """A whole number, or one word in its place."""

    def __init__(self, low: int, word: str) -> None:
        self.word = word
        self.count = Count(low, hint=f"a number, for example `{low}`, or `{word}`")

    def check(self, value: Any) -> int | str:
        """Return it."""
        return self.word if value == self.word else self.count.check(value)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"anyOf": [self.count.schema(), {"const": self.word}]}


class Flag(_Field):
    """`true` or `false`, nothing that merely looks like it."""

    def check(self, value: Any) -> bool:
        """Return it."""
        if not isinstance(value, bool):
            refuse("it is neither `true` nor `false`", hint="write `true` or `false`")
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "boolean"}


class Text(_Field):
    """Text for people."""

    def check(self, value: Any) -> str:
        """Return it."""
        if not isinstance(value, str):
            refuse("it is not text", hint="put it in quotes")
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "string"}


class OneOf(_Field):
    """One of a few names: a fixed set, or those of one of the core's tables."""

    def __init__(self, *fixed: str, table: Table | None = None, what: str = "") -> None:
        self.table: Table | None = table
        self.what = _SINGULAR[table] if table else what
        self.more = more_of(table)
        self.known: Callable[[], list[str]] = (
            (lambda: names(table)) if table else (lambda: list(fixed))
        )

    def check(self, value: Any) -> str:
        """Return the name."""
        known = self.known()
        if not isinstance(value, str) or value not in known:
            if self.table and (hint := renamed(self.table, value)):
                refuse(f"it is not {self.what}", hint=hint)
            hint = did_you_mean(show(value), known)
            refuse(f"it is not {self.what}", hint=f"{hint}; {self.more}" if self.more else hint)
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "string", "enum": self.known()}


class Number(_Field):
    """A number in a range."""

    def __init__(
        self,
        *,
        above: float = -math.inf,
        low: float = -math.inf,
        high: float = math.inf,
        example: str,
    ) -> None:
        self.above = above
        self.low = low
        self.high = high
        self.hint = f"for example `{example}`"

    def check(self, value: Any) -> float:
        """Return the number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            refuse("it is not a number", hint=self.hint)
        if not math.isfinite(value):
            refuse("it is not finite", hint=self.hint)
        if value <= self.above:
            refuse(f"it is not above {self.above:g}", hint=self.hint)
        if value < self.low:
            refuse(f"it is below {self.low:g}", hint=self.hint)
        if value > self.high:
            refuse(f"it is above {self.high:g}", hint=self.hint)
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        bounds = {"exclusiveMinimum": self.above, "minimum": self.low, "maximum": self.high}
        return {"type": "number", **{k: one for k, one in bounds.items() if math.isfinite(one)}}


class Rate(_Field):
    """Operations per second as text; only the Rust core reads it."""

    def check(self, value: Any) -> str:
        """Return the text."""
        hint = "for example `312 TFLOP/s`"
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            refuse("it is not a rate", hint=hint)
        if not isinstance(value, str):
            refuse("it has no unit", hint=hint)
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "string", "examples": ["312 TFLOP/s"]}
