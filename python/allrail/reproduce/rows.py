"""A published number beside ours: the difference, the tolerance, and whether it is met."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Progress = Callable[[int, int], None]
"""Called now and then with how much is done and how much there is."""

Kind = Literal["relative", "absolute", "at_least", "at_most", "report"]

HEADER = ("case", "published", "ours", "unit", "difference", "tolerance", "verdict")


@dataclass(frozen=True, slots=True)
class Row:
    """One number.

    Attributes:
        case: What it is the number of.
        ours: What we compute.
        published: What it is compared with; None where there is nothing but a note.
        unit: Of both.
        kind: `relative` and `absolute` differences within `tolerance`; `at_least` and `at_most`
            are one-sided, up to `tolerance`; `report` is printed and never fails.
        tolerance: A fraction if `relative`, else in `unit`.
        digits: How many digits after the point are printed.
    """

    case: str
    ours: float
    published: float | None
    unit: str
    kind: Kind = "report"
    tolerance: float = 0.0
    digits: int = 2

    @property
    def difference(self) -> float | None:
        """Ours minus the published number; divided by it if `relative`."""
        if self.published is None:
            return None
        difference = self.ours - self.published
        return difference / self.published if self.kind == "relative" else difference

    @property
    def ok(self) -> bool | None:
        """Whether it is within tolerance; None if it is only reported."""
        difference = self.difference
        if self.kind == "report" or difference is None:
            return None
        if self.kind == "at_least":
            return difference >= -self.tolerance
        if self.kind == "at_most":
            return difference <= self.tolerance
        return abs(difference) <= self.tolerance

    def cells(self) -> list[str]:
        """The row as text, one cell per entry of `HEADER`, no spaces inside numbers."""
        difference, sign = self.difference, {"at_least": ">=", "at_most": "<="}.get(self.kind, "")
        published = "-" if self.published is None else sign + f"{self.published:.{self.digits}f}"
        if difference is None:
            shown = "-"
        elif self.kind == "relative":
            shown = f"{100 * difference:+.3f}%"
        else:
            shown = f"{difference:+.{self.digits}f}"
        tolerance = "-"
        if self.kind == "relative":
            tolerance = f"{100 * self.tolerance:g}%"
        elif self.kind != "report":
            tolerance = f"{self.tolerance:g}"
        verdict = {None: "reported", True: "ok", False: "OUT"}[self.ok]
        ours = f"{self.ours:.{self.digits}f}"
        return [self.case, published, ours, self.unit, shown, tolerance, verdict]


@dataclass(frozen=True, slots=True)
class Detail:
    """A further table, such as one row a platform and size.

    Attributes:
        name: Of its file.
        header: Of its columns.
        rows: As many values each.
    """

    name: str
    header: tuple[str, ...]
    rows: list[tuple[str | float, ...]]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What reproducing a publication gives.

    Attributes:
        title: The publication.
        rows: Its numbers.
        notes: What a reader should know about them.
        details: What the numbers were computed from.
    """

    title: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no row is out of tolerance."""
        return all(row.ok is not False for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """It as plain values."""
        return {
            "title": self.title,
            "ok": self.ok,
            "rows": [
                {
                    "case": row.case,
                    "published": row.published,
                    "ours": row.ours,
                    "unit": row.unit,
                    "difference": row.difference,
                    "kind": row.kind,
                    "tolerance": row.tolerance,
                    "ok": row.ok,
                }
                for row in self.rows
            ],
            "notes": self.notes,
        }

    def write(self, folder: Path) -> None:
        """Write `reproduction.json`, and the tables as CSV and Parquet.

        Args:
            folder: Where; it and its parents are made.

        Raises:
            InputError: It cannot be written.
        """
        import polars as pl

        from allrail import _core
        from allrail.files import staged_folder
        from allrail.results.frames import write_frame

        tree = self.to_dict()
        numbers = pl.DataFrame(
            tree["rows"],
            schema={
                "case": pl.String,
                "published": pl.Float64,
                "ours": pl.Float64,
                "unit": pl.String,
                "difference": pl.Float64,
                "kind": pl.String,
                "tolerance": pl.Float64,
                "ok": pl.Boolean,
            },
        )
        with staged_folder(folder) as staged:
            write_frame(numbers, folder=staged, name="reproduction")
            for detail in self.details:
                frame = pl.DataFrame(detail.rows, schema=list(detail.header), orient="row")
                write_frame(frame, folder=staged, name=detail.name)
            document = {"versions": {"allrail": _core.version()}, **tree}
            text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
            (staged / "reproduction.json").write_text(text, encoding="utf-8")
