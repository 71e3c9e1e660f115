"""One axis of a study: the values of a field, of fields that change together, or a range.

A value has two faces: what `--set` would take, and what stands in the table, in typed columns. Text
with a unit becomes a number: bandwidths `_gbps`, sizes `_bytes`, times `_us`, as in the results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import BaseModel, Field

from allrail import _core
from allrail.base.errors import InputError, show
from allrail.base.units import plain_number
from allrail.scenario import GraphFabric, Scenario
from allrail.scenario.fields import Count, OneOf, QuantityKind, parse_quantity
from allrail.scenario.former import hint_for_key, models_in
from allrail.scenario.keys.parallelism import Parallelism
from allrail.scenario.models import load_model, model_names
from allrail.scenario.node import Node
from allrail.scenario.places import Place, parse_path
from allrail.scenario.presets import preset_names, read_fabric
from allrail.scenario.programs import with_programs
from allrail.simulation.variants import show_value

_KINDS: dict[QuantityKind, tuple[str, float]] = {
    "bandwidth": ("_gbps", 8e-9),  # the core counts bytes per second
    "size": ("_bytes", 1),
    "time": ("_us", 1e-6),  # and picoseconds
}
"""What a column of quantities is called, and what the core's number is multiplied by."""


class Range(Node):
    """All numbers between two, both included; quantities have their units."""

    start: Any = Field(alias="from", description="The least.")
    end: Any = Field(alias="to", description="The largest.")
    count: Annotated[int, Count(0, 2**63)] | None = Field(
        default=None, description="How many, where every combination is simulated."
    )
    scale: Annotated[str, OneOf("linear", "log", what="a scale")] = Field(
        default="linear", description="`log`: by equal factors, not equal steps."
    )


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an axis.

    Attributes:
        sets: By path, as `--set` takes them.
        cells: By field: what was written.
    """

    sets: dict[str, Any]
    cells: dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        name: As it stands in the study.
        fields: What it changes: the columns' names before their units.
        values: Its values; none of a range.
        range: Where there are no values.
    """

    name: str
    fields: tuple[str, ...]
    values: tuple[Value, ...] = ()
    range: _Numbers | None = None

    @property
    def steps(self) -> int | None:
        """How many values there are; None of a range that does not say."""
        return len(self.values) if self.range is None else self.range.count

    def at(self, index: int) -> Value:
        """Return a value.

        Args:
            index: Which, from 0.
        """
        if self.range is None:
            return self.values[index]
        return self._number(self.range.at(index))

    def drawn(self, share: float) -> Value:
        """Return the value at a share of the whole axis.

        Args:
            share: From 0 to below 1.
        """
        if self.range is None:
            return self.values[int(share * len(self.values))]
        return self._number(self.range.drawn(share))

    def _number(self, value: object) -> Value:
        return Value({self.name: value}, {self.name: value})

    def told(self) -> list[Any]:
        """Return what tells it from other axes, as plain values."""
        if self.range is not None:
            return [self.name, [self.range.low, self.range.high, self.range.unit, *self.range.rest]]
        return [self.name, [[value.sets, value.cells] for value in self.values]]


@dataclass(frozen=True)
class _Numbers:
    """A range's numbers: `unit` is what stands behind each, `low` and `high` count in it."""

    low: float
    high: float
    unit: str
    count: int | None
    logarithmic: bool

    @property
    def rest(self) -> tuple[int | None, bool]:
        return self.count, self.logarithmic

    @cached_property
    def whole(self) -> bool:
        return not self.unit and isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, index: int) -> object:
        share = index / ((self.count or 2) - 1) if self.count != 1 else 0.0
        value = self._between(self.low, self.high, share)
        return self._written(round(value) if self.whole else value)

    def drawn(self, share: float) -> object:
        if self.whole:  # each whole number has the part of the axis around it
            low = self.low - (0.5 if not self.logarithmic or self.low > 1 else 0.4)
            number = round(self._between(low, self.high + 0.5, share))
            return self._written(min(max(number, int(self.low)), int(self.high)))
        return self._written(self._between(self.low, self.high, share))

    def _between(self, low: float, high: float, share: float) -> float:
        if self.logarithmic:
            return low * math.pow(high / low, share)
        return low + (high - low) * share

    def _written(self, value: float) -> object:
        if self.whole:
            return int(value)
        return f"{value:.6g} {self.unit}" if self.unit else float(f"{value:.9g}")


def axis_of(
    key: str,
    given: Sequence[Any] | Range,
    *,
    base: Scenario,
    folder: FilePath,
    place: Place,
) -> Axis:
    """Make an axis of what a study's file says.

    Args:
        key: A path, or any word for fields that change together.
        given: Its values, or a range.
        base: The scenario that is changed.
        folder: Where files that values name are.
        place: Where it stands.

    Raises:
        InputError: There is no such field, or values do not go together.
    """
    path = parse_path(key)
    top = path is not None and path[0] in Scenario.model_fields
    if isinstance(given, Range):
        name = _field(key, base=base, place=place)
        return Axis(name, (name,), range=_numbers(given, key, place))
    if not top and given and all(isinstance(value, Mapping) for value in given):
        return _coupled(key, given, base=base, folder=folder, place=place)
    name = _field(key, base=base, place=place)
    values = tuple(
        Value(_sets({name: one}, base, folder), _cells(name, one, given)) for one in given
    )
    fields = dict.fromkeys(field for value in values for field in value.cells)
    return Axis(name, tuple(fields), values)


def _coupled(
    key: str, given: Sequence[Any], *, base: Scenario, folder: FilePath, place: Place
) -> Axis:
    first = list(given[0])
    values = []
    for number, one in enumerate(given):
        if set(one) != set(first):
            odd = sorted(set(one) ^ set(first), key=str)
            raise InputError(
                f"its entry {number} has other fields than the first: "
                + ", ".join(f"`{field}`" for field in odd),
                hint="fields that change together stand in every entry",
                source=place.source,
                line=place.line,
                field=key,
            )
        named = {_field(str(field), base=base, place=place): one[field] for field in first}
        sets = _sets(named, base, folder)
        values.append(Value(sets, {field: _plainly(value) for field, value in named.items()}))
    if not first:
        raise InputError(
            "its entries are empty",
            hint="for example `[{tp: 8, pp: 4}, {tp: 4, pp: 8}]`",
            source=place.source,
            line=place.line,
            field=key,
        )
    return Axis(key, tuple(values[0].cells), tuple(values))


def _cells(name: str, value: Any, all_values: Sequence[Any]) -> dict[str, Any]:
    """A value in the table: the keys of mappings are columns of their own."""
    if all(isinstance(one, Mapping) for one in all_values):
        keys = dict.fromkeys(str(key) for one in all_values for key in one)
        return {f"{name}.{key}": _plainly(value.get(key)) for key in keys}
    return {name: _plainly(value)}


def _plainly(value: Any) -> Any:
    return show_value(value) if isinstance(value, (Mapping, list, tuple)) else value


def _sets(named: Mapping[str, Any], base: Scenario, folder: FilePath) -> dict[str, Any]:
    """Values by path, with what the files hold that they name: workers elsewhere have none."""
    programs = base.schedule.programs or {}
    read: dict[str, Any] = {}
    for field, value in named.items():
        first, _, rest = field.partition(".")
        key, _, operation = rest.partition(".")
        if first == "schedule" and key in ("algorithms", "algorithms_by_operation"):
            said = {key: {operation: value} if operation else value, "programs": programs}
            read |= with_programs(said, folder=folder)["programs"]
    values = {field: _resolved(field, value, folder) for field, value in named.items()}
    return ({"schedule.programs": read} if read != programs else {}) | values


def _resolved(name: str, value: Any, folder: FilePath) -> Any:
    """A file that a value names, as its content."""
    if not isinstance(value, str):
        return value
    if name == "fabric" and value not in preset_names():
        return {"name": FilePath(value).stem, **read_fabric(value, folder=folder)[0]}
    if name == "workload.model" and value not in model_names():
        return load_model(value, folder=folder)
    return value


def in_folder(tree: Mapping[str, Any], folder: FilePath) -> dict[str, Any]:
    """Return a scenario written in place, whose files are looked for where its study is.

    Args:
        tree: The scenario.
        folder: Of the study.
    """

    def found(name: Any) -> Any:
        known = isinstance(name, str) and (folder / name).exists()
        return str((folder / name).absolute()) if known else name

    moved = {**tree, "fabric": found(tree.get("fabric"))}
    if tree.get("fabric") in preset_names() or "fabric" not in tree:
        moved = dict(tree)
    work = tree.get("workload")
    if isinstance(work, Mapping) and work.get("model") not in model_names():
        moved["workload"] = {**work, "model": found(work.get("model"))}
    return moved


def _numbers(given: Range, key: str, place: Place) -> _Numbers:
    def refused(why: str, hint: str) -> InputError:
        value = f"{show(given.start)} to {show(given.end)}"
        return InputError(
            why, hint=hint, source=place.source, line=place.line, field=key, value=value
        )

    low, high, unit = given.start, given.end, ""
    if isinstance(low, str) and isinstance(high, str):
        kind = quantity([low, high])
        if kind is None:
            raise refused(
                "they are no quantities of one kind", "for example `{from: 50 Gb/s, to: 800 Gb/s}`"
            )
        unit = low.strip().lstrip("+-0123456789.eE").strip() if low else ""
        one = parse_quantity(kind, f"1 {unit}")
        low, high = parse_quantity(kind, low) / one, parse_quantity(kind, high) / one
    for end in (low, high):
        if isinstance(end, bool) or not isinstance(end, (int, float)) or not math.isfinite(end):
            raise refused("it is no range of numbers", "for example `{from: 1, to: 64}`")
    if low > high:
        raise refused("it ends before it begins", "swap `from` and `to`")
    logarithmic = given.scale == "log"
    if logarithmic and low <= 0:
        raise refused("a log scale begins above zero", "leave `scale: log` out, or begin above")
    return _Numbers(low, high, unit, given.count, logarithmic)


def quantity(values: Sequence[Any]) -> QuantityKind | None:
    """Return what all values measure; None if they are no quantities of one kind.

    Args:
        values: As they were written; None among them is passed over.
    """
    texts = [value for value in values if value is not None]
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    for kind in _KINDS:
        try:
            for text in texts:
                parse_quantity(kind, text)
        except _core.InputError:
            continue
        return kind
    return None


def column(field: str, values: Sequence[Any]) -> tuple[str, str, list[Any]]:
    """Return a column's name, its type in polars, and its cells.

    Args:
        field: What was changed.
        values: What was written, a point each.
    """
    known = [value for value in values if value is not None]
    kind = quantity(list(dict.fromkeys(known)) if _hashable(known) else known)
    if kind is not None:
        ending, factor = _KINDS[kind]
        cells = [None if one is None else parse_quantity(kind, one) * factor for one in values]
        if kind == "size":
            return field + ending, "Int64", cells
        return (
            field + ending,
            "Float64",
            [one if one is None else float(f"{one:.12g}") for one in cells],
        )
    if known and all(isinstance(value, bool) for value in known):
        return field, "Boolean", list(values)
    if known and all(type(value) is int for value in known):
        return field, "Int64", list(values)
    if known and all(type(value) in (int, float) for value in known):
        return field, "Float64", list(values)
    return field, "String", [None if one is None else show(one) for one in values]


def _hashable(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (str, int, float, bool)) for value in values)


def _field(text: str, *, base: Scenario, place: Place) -> str:
    """Return the path of a field; the degrees of a layout may be written without theirs.

    Raises:
        InputError: A scenario has no such field.
    """
    if text in Parallelism.model_fields and text not in Scenario.model_fields:
        return f"workload.parallelism.{text}"
    path = parse_path(text)

    def refused(hint: str) -> InputError:
        return InputError(
            "a scenario has no such field",
            hint=hint,
            source=place.source,
            line=place.line,
            field="axes",
            value=text,
        )

    if path is None:
        raise refused("for example `schedule.chunks` or `fabric.dimensions[0].bandwidth`")
    models: list[type[BaseModel]] = [Scenario]
    for depth, step in enumerate(path):
        if isinstance(step, int):
            continue
        if depth == 1 and path[0] == "fabric":
            models = [type(base.fabric)]
        known = {name: field for model in models for name, field in model.model_fields.items()}
        if not known or (depth >= 1 and GraphFabric in models):
            return text  # what stands here is the core's to know
        if step not in known:
            raise refused(hint_for_key(step, None, model=models[0], top=Scenario))
        models = list(models_in(known[step].annotation))
    return text


def written(value: Any) -> str:
    """Return a value as one word for a table.

    Args:
        value: A cell.
    """
    if isinstance(value, float):
        return plain_number(value, 6)
    return json.dumps(value) if isinstance(value, bool) else show_value(value)
