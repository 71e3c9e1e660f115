"""Answers that are rows: for polars, for a notebook, for a paper."""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from allrail.base.files import write_bytes, write_text
from allrail.results.answer import Answer, Told, renderers
from allrail.results.frame import flat

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes

Row = Mapping[str, Any]


class Table(Answer):
    """An answer that is rows: it has a length, goes by rows, and is data for polars and files."""

    __slots__ = ()
    kind: ClassVar[str] = "table"
    """What `write` and a notebook show it as."""
    PLOTTED: ClassVar[tuple[str, str]] = ("", "")
    """The columns of its picture: what stands below the axis, and what is drawn."""

    @property
    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """The rows as data, in order; units stand in the names of columns."""

    def flat_rows(self) -> list[dict[str, Any]]:
        """Return rows whose cells are numbers and texts; parts stand as `cables_aoc`."""
        return [dict(flat(row)) for row in self.rows]

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a table of polars."""
        import polars as pl

        return pl.DataFrame(self.flat_rows(), infer_schema_length=None)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as `.csv` or `.parquet`, the answer as `.json`, or a folder with a report.

        Args:
            path: The file; without one of these endings, the folder.

        Raises:
            InputError: It cannot be written, or the answer has no report.
        """
        path = Path(path)
        if path.suffix == ".json":
            write_text(path, self.to_json() + "\n")
        elif path.suffix in (".csv", ".parquet"):
            write_bytes(path, _file_of(self.to_polars(), path.suffix))
        else:
            renderers().write(self, path)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw its main column: bars by name, a line over numbers.

        Args:
            ax: Axes of matplotlib to draw on; of a figure as wide as a column of a paper if None.

        Returns:
            The axes; `axes.figure.savefig("figure.pdf")` writes them.

        Raises:
            InputError: There is nothing to draw, or matplotlib is not installed.
        """
        return renderers().plot(self, ax)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str:
        return renderers().html(self)  # type: ignore[no-any-return]


class ToldTable(Told, Table):
    """An answer that is the object of `--json`, with rows under one of its keys."""

    ROWS: ClassVar[str] = "rows"

    @property
    def rows(self) -> Sequence[Row]:
        """The rows as data, in order."""
        rows: Sequence[Row] = self[self.ROWS]
        return rows


def _file_of(frame: pl.DataFrame, suffix: str) -> bytes:
    out = io.BytesIO()
    if suffix == ".csv":
        frame.write_csv(out)
    else:
        frame.write_parquet(out)
    return out.getvalue()
