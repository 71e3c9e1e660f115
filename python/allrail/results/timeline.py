"""What happened when, row by row: kept as columns, whose rows are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from allrail.base.units import show_count

Row = TypeVar("Row")


class Timeline(Sequence[Row]):
    """The slices of a training step, or the stages of collectives.

    A timeline has hundreds of thousands of rows, and most results are never asked for one.

    Args:
        make: Makes a row from its JSON object.
        told: The columns as the core says them, or the JSON objects of all rows. A column is a list
            of a value for each row, or `{"names": [...], "rows": [...]}`: which name each row has.
    """

    __slots__ = ("_made", "_make", "_told")

    def __init__(
        self,
        make: Callable[[Mapping[str, Any]], Row],
        told: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    ) -> None:
        self._make = make
        self._told = told
        self._made: tuple[Row, ...] | None = None

    def objects(self) -> list[dict[str, Any]]:
        """Return the rows as the JSON objects of `--json`, without keys that have no value."""
        if not isinstance(self._told, Mapping):
            return [dict(row) for row in self._told]
        columns = [_values(column) for column in self._told.values()]
        keys = tuple(self._told)
        return [
            {key: value for key, value in zip(keys, row, strict=True) if value is not None}
            for row in zip(*columns, strict=True)
        ]

    def __len__(self) -> int:
        if not isinstance(self._told, Mapping):
            return len(self._told)
        column = next(iter(self._told.values()))
        return len(column["rows"] if isinstance(column, Mapping) else column)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return self._rows()[place]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Timeline, tuple)):
            return self._rows() == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows())

    def __repr__(self) -> str:
        return f"<Timeline of {show_count(len(self), 'row')}>"

    def _rows(self) -> tuple[Row, ...]:
        if self._made is None:
            self._made = tuple(map(self._make, self.objects()))
        return self._made


def _values(column: Any) -> Iterable[Any]:
    if not isinstance(column, Mapping):
        values: Sequence[Any] = column
        return values
    names = column["names"]
    return [None if place is None else names[place] for place in column["rows"]]
