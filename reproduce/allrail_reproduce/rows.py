"""A published number beside ours: the difference, the tolerance, and whether it is met.

All verbs of `reproduce` give a `Reproduction`; it ends with how many numbers were aimed at, which
parameters were free, and what was missed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail import _core
from allrail.base.files import staged_folder
from allrail.base.units import show_count
from allrail.output.frames import write_frame
from allrail.output.report import style
from allrail_reproduce.page import page
from allrail_reproduce.published import COMPUTED, Made, Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[float, int], None]
"""Called now and then with how much is done and how much there is."""

HEADER = ("case", "published", "ours", "unit", "difference", "tolerance", "verdict", "provenance")

NOT_PUBLISHED = "not published"


@dataclass(frozen=True, slots=True)
class Row:
    """One number.

    Attributes:
        case: What it is the number of.
        ours: What we compute; None where an input is missing, which `why` names, and where the case
            is refused.
        published: What the source prints; None where it prints nothing.
        unit: Of both.
        within: How far ours may be outside of what is published: a fraction of its nearer end, or
            in `unit` if `absolute`. Every published number is judged.
        absolute: Whether `within` is in `unit`.
        digits: How many digits after the point are printed.
        how: What it was computed with: network model, paths, phases, sizes; may be empty.
        why: Where the difference comes from; may be empty.
        made: Whether it was computed, fitted or chosen.
        refused: Whether allrail refuses the case, for the reason in `why`: it counts as missed.
    """

    case: str
    ours: float | None
    published: Published | None
    unit: str
    within: float = 0.05
    absolute: bool = False
    digits: int = 2
    how: str = ""
    why: str = ""
    made: Made = COMPUTED
    refused: bool = False

    def __post_init__(self) -> None:
        """Refuse a published number that is not computed and does not say why, and no numbers."""
        if self.ours is None and not (self.published and self.why):
            raise ValueError(f"`{self.case}`: name the input that is missing")
        if self.ours is not None and (self.refused or not math.isfinite(self.ours)):
            raise ValueError(f"`{self.case}`: {self.ours} is no result: leave it out, and say why")

    @property
    def difference(self) -> float | None:
        """Ours minus a published number, or how far ours is outside of a range; None without.

        A fraction of the published number, or of the range's nearer end, unless `absolute`.
        """
        if self.published is None or self.ours is None:
            return None
        one = self.published.number
        difference = self.published.beyond(self.ours) if one is None else self.ours - one
        if self.absolute or difference == 0:
            return difference
        near = self.ours - self.published.beyond(self.ours)
        return difference / abs(near) if near else math.inf

    @property
    def ok(self) -> bool | None:
        """Whether it is within tolerance.

        None without a published number, where ours was fitted to that very number, and where ours
        cannot be computed. A case that is refused is not.
        """
        if self.refused:
            return False
        difference = self.difference
        if difference is None or self.made.itself:
            return None
        return abs(difference) <= self.within

    @property
    def verdict(self) -> str:
        """`ok`, `OUT`, `fitted` to this very number, `missing` an input, `refused`, or `-`."""
        if self.published is None:
            return "-"
        if self.refused:
            return "refused"
        if self.ours is None:
            return "missing"
        if self.made.itself:
            return "fitted"
        return "ok" if self.ok else "OUT"

    def cells(self) -> list[str]:
        """The row as text, one cell per entry of `HEADER`, no spaces inside numbers."""
        difference = self.difference
        shown = tolerance = "-"
        if difference is not None and self.absolute:
            shown, tolerance = f"{difference:+.{self.digits}f}", f"{self.within:g}"
        elif difference is not None:
            shown, tolerance = f"{100 * difference:+.3f}%", f"{100 * self.within:g}%"
        return [
            self.case,
            NOT_PUBLISHED if self.published is None else self.published.text,
            "-" if self.ours is None else f"{self.ours:.{self.digits}f}",
            self.unit,
            shown,
            tolerance,
            self.verdict,
            self.made.word,
        ]

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values."""
        published = self.published
        return {
            "case": self.case,
            "published_low": None if published is None else published.low,
            "published_high": None if published is None else published.high,
            "source": None if published is None else published.source,
            "ours": self.ours,
            "unit": self.unit,
            "difference": self.difference,
            "tolerance": self.within,
            "absolute": self.absolute,
            "ok": self.ok,
            "refused": self.refused,
            "provenance": self.made.word,
            "parameters": ", ".join(self.made.parameters),
            "to": self.made.to,
            "how": self.how,
            "why": self.why,
        }


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
        return not self.misses

    @property
    def targets(self) -> list[Row]:
        """The rows with a published number that ours was not fitted to."""
        return [row for row in self.rows if row.ok is not None]

    @property
    def misses(self) -> list[Row]:
        """The targets that are out of tolerance."""
        return [row for row in self.rows if row.ok is False]

    @property
    def free(self) -> list[str]:
        """Every parameter that was fitted or chosen, once, with what to or by what."""
        made = (row.made for row in self.rows)
        told = (f"{name} ({one.word})" for one in made for name in one.parameters)
        return list(dict.fromkeys(told))

    @property
    def summary(self) -> list[str]:
        """How it ends: targets, free parameters, misses."""
        targets, misses, free = self.targets, self.misses, self.free
        alone = sum(row.published is None for row in self.rows)
        missing = sum(row.verdict == "missing" for row in self.rows)
        itself = len(self.rows) - len(targets) - alone - missing
        refused = sum(row.refused for row in self.rows)
        told = f"targets: {show_count(len(targets), 'row')} beside a published number, "
        told += f"{len(targets) - len(misses)} met"
        if refused:
            told += f", {refused} refused"
        if itself:
            told += f"; {show_count(itself, 'more is', 'more are')} what was fitted, and"
            told += f" {'shows' if itself == 1 else 'show'} nothing"
        if missing:
            told += f"; {show_count(missing, 'more needs', 'more need')} an input that no source"
            told += " prints"
        if alone:
            told += f"; {show_count(alone, 'row is', 'rows are')} not published"
        parameters = f"{len(free)}: {'; '.join(free)}" if free else "none"
        missed = f"{len(misses)}: {'; '.join(row.case for row in misses)}" if misses else "none"
        return [told, f"free parameters: {parameters}", f"misses: {missed}"]

    @property
    def table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """The header and the rows as text, with sources; with `how` if a row says it."""
        header: tuple[str, ...] = (*HEADER, "source")
        rows = [
            [*row.cells(), "-" if row.published is None else row.published.source]
            for row in self.rows
        ]
        if any(row.how for row in self.rows):
            header = (*header, "how")
            rows = [[*cells, row.how or "-"] for cells, row in zip(rows, self.rows, strict=True)]
        return header, rows

    @property
    def reasons(self) -> list[str]:
        """Where differences come from, each reason once, with the rows that it is of."""
        return _by_text((row.why, row.case) for row in self.rows)

    @property
    def provenances(self) -> list[str]:
        """What was fitted or chosen, and to what, each once, with the rows that it is of."""
        free = (row for row in self.rows if row.made.word != "computed")
        return _by_text((row.made.text, row.case) for row in free)

    def to_dict(self) -> dict[str, Any]:
        """It as plain values."""
        return {
            "title": self.title,
            "ok": self.ok,
            "rows": [row.to_dict() for row in self.rows],
            "targets": len(self.targets),
            "free_parameters": self.free,
            "misses": [row.case for row in self.misses],
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

        tree = self.to_dict()
        numbers = pl.DataFrame(
            tree["rows"],
            schema={
                "case": pl.String,
                "published_low": pl.Float64,
                "published_high": pl.Float64,
                "source": pl.String,
                "ours": pl.Float64,
                "unit": pl.String,
                "difference": pl.Float64,
                "tolerance": pl.Float64,
                "absolute": pl.Boolean,
                "ok": pl.Boolean,
                "refused": pl.Boolean,
                "provenance": pl.String,
                "parameters": pl.String,
                "to": pl.String,
                "how": pl.String,
                "why": pl.String,
            },
        )
        with staged_folder(folder, "reproduction") as staged:
            write_frame(numbers, folder=staged, name="reproduction")
            for detail in self.details:
                frame = pl.DataFrame(
                    detail.rows,
                    schema=list(detail.header),
                    orient="row",
                    infer_schema_length=None,
                )
                write_frame(frame, folder=staged, name=detail.name)
            drawn = style.write(staged, {one.name: one.draw() for one in self.pictures})
            html = page(self, drawn=drawn, version=_core.version())
            (staged / "report.html").write_text(html, encoding="utf-8")
            document = {"versions": {"allrail": _core.version()}, **tree}
            text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
            (staged / "reproduction.json").write_text(text, encoding="utf-8")


def _by_text(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Texts, each once, behind the names that it is of."""
    names: dict[str, list[str]] = {}
    for text, name in pairs:
        if text:
            names.setdefault(text, []).append(name)
    return [f"{'; '.join(those)}: {text}" for text, those in names.items()]
