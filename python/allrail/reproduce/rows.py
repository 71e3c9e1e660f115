"""A published number beside ours: the difference, the tolerance, and whether it is met."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        how: What it was computed with: world, paths, phases, sizes; may be empty.
        why: Where the difference comes from; may be empty.
    """

    case: str
    ours: float
    published: float | None
    unit: str
    kind: Kind = "report"
    tolerance: float = 0.0
    digits: int = 2
    how: str = ""
    why: str = ""

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


Cells = tuple[str | float | None, ...]
"""A row of a table; None where there is nothing."""


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
    rows: list[Cells]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that is drawn when it is written.

    Attributes:
        name: Of its file.
        title: What it shows.
        caption: How to read it.
        draw: Draws it.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What reproducing a publication gives.

    Attributes:
        title: The publication.
        rows: Its numbers.
        notes: What a reader should know about them.
        details: What the numbers were computed from.
        pictures: Of them; drawn when they are written.
    """

    title: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no row is out of tolerance."""
        return all(row.ok is not False for row in self.rows)

    @property
    def table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """The header and the rows as text; with `how` if a row says it."""
        if not any(row.how for row in self.rows):
            return HEADER, [row.cells() for row in self.rows]
        return (*HEADER, "how"), [[*row.cells(), row.how or "-"] for row in self.rows]

    @property
    def reasons(self) -> list[str]:
        """Where differences come from, each reason once, with the rows that it is of."""
        cases: dict[str, list[str]] = {}
        for row in self.rows:
            if row.why:
                cases.setdefault(row.why, []).append(row.case)
        return [f"{'; '.join(names)}: {why}" for why, names in cases.items()]

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
                    "how": row.how,
                    "why": row.why,
                }
                for row in self.rows
            ],
            "notes": self.notes,
        }

    def write(self, folder: Path) -> None:
        """Write `reproduction.json`, tables as CSV and Parquet, pictures, and `report.html`.

        Args:
            folder: Where; it and its parents are made.

        Raises:
            InputError: It cannot be written.
        """
        import polars as pl

        from allrail import _core
        from allrail.files import staged_folder
        from allrail.report import style
        from allrail.report.reproduction import page
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
                "how": pl.String,
                "why": pl.String,
            },
        )
        with staged_folder(folder) as staged:
            write_frame(numbers, folder=staged, name="reproduction")
            for detail in self.details:
                frame = pl.DataFrame(
                    detail.rows,
                    schema=list(detail.header),
                    orient="row",
                    infer_schema_length=None,
                )
                write_frame(frame, folder=staged, name=detail.name)
            drawn: dict[str, str] = {}
            for picture in self.pictures:
                figure = picture.draw()
                drawn[picture.name] = style.svg(figure, name=picture.name)
                (staged / f"{picture.name}.svg").write_text(drawn[picture.name], encoding="utf-8")
                (staged / f"{picture.name}.png").write_bytes(style.png(figure, name=picture.name))
            html = page(self, drawn=drawn, version=_core.version())
            (staged / "report.html").write_text(html, encoding="utf-8")
            document = {"versions": {"allrail": _core.version()}, **tree}
            text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
            (staged / "reproduction.json").write_text(text, encoding="utf-8")
