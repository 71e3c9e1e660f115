"""Answers that are rows: for polars, for a notebook, for a paper."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from allrail.base.errors import InputError
from allrail.base.files import write_bytes, write_text
from allrail.results.answer import Answer, Told

if TYPE_CHECKING:
    import polars as pl

Row = Mapping[str, Any]


class Table(Answer):
    """An answer that is rows: it has a length, goes by rows, and is data for polars and files."""

    __slots__ = ()
    PLOTTED: ClassVar[tuple[str, str]] = ("", "")
    """The columns of its picture: what stands below the axis, and what is drawn."""

    @property
    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """The rows as data, in order; units stand in the names of columns."""

    def flat_rows(self) -> list[dict[str, Any]]:
        """Return rows whose cells are numbers and texts; parts stand as `cables_aoc`."""
        return [dict(_flat(row)) for row in self.rows]

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a table of polars."""
        import polars as pl

        return pl.DataFrame(self.flat_rows(), infer_schema_length=None)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as `.csv` or `.parquet`, or the answer as `.json`.

        Args:
            path: The file.

        Raises:
            InputError: Its ending is another, or it cannot be written.
        """
        path = Path(path)
        if path.suffix == ".json":
            write_text(path, self.to_json() + "\n")
        elif path.suffix in (".csv", ".parquet"):
            write_bytes(path, _file_of(self.to_polars(), path.suffix))
        else:
            raise InputError(
                "a table is written as CSV, Parquet or JSON",
                field="path",
                value=str(path),
                hint="such as `table.csv`",
            )


class ToldTable(Told, Table):
    """An answer that is the object of `--json`, with rows under one of its keys."""

    ROWS: ClassVar[str] = "rows"

    @property
    def rows(self) -> Sequence[Row]:
        """The rows as data, in order."""
        rows: Sequence[Row] = self[self.ROWS]
        return rows


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}_")
        elif value is None or isinstance(value, (str, bool, int, float)):
            yield name, value
        elif isinstance(value, (list, tuple)) and all(
            isinstance(one, (str, int, float)) for one in value
        ):
            yield name, ",".join(map(str, value))


def _file_of(frame: pl.DataFrame, suffix: str) -> bytes:
    import io

    out = io.BytesIO()
    if suffix == ".csv":
        frame.write_csv(out)
    else:
        frame.write_parquet(out)
    return out.getvalue()
