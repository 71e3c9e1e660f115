"""The page of a reproduction: published numbers beside ours, reasons, pictures, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from allrail.output.report.document import Page, Picture, Section, Table, Words
from allrail.output.report.rendering import render

if TYPE_CHECKING:
    from allrail_reproduce.rows import Reproduction


TEXTS = ("case", "published", "unit", "verdict", "provenance", "source", "how")
"""Columns that are no numbers."""


def page(reproduction: Reproduction, *, drawn: Mapping[str, str], version: str) -> str:
    """The report as HTML.

    Args:
        reproduction: What was computed.
        drawn: Its pictures as SVG, by name.
        version: Of allrail.
    """
    wrong = [row.case for row in reproduction.misses]
    header, rows = reproduction.table
    said = [f"Outside: {'; '.join(wrong)}."] if wrong else []
    if reproduction.free:
        said.append(f"Free parameters: {'; '.join(reproduction.free)}.")
    numbers = Table(
        "numbers",
        [name.replace("_", " ") for name in header],
        rows,
        [i for i, name in enumerate(header) if name in TEXTS],
    )
    pictures = [
        Picture(one.name, one.title, one.caption, drawn[one.name]) for one in reproduction.pictures
    ]
    tables = ", ".join(["reproduction", *(detail.name for detail in reproduction.details)])
    return render(
        Page(
            title=reproduction.title,
            subtitle="Published numbers beside ours",
            badges=[
                ("care", f"{len(wrong)} outside") if wrong else ("good", "all within tolerance"),
                ("care", "uncalibrated"),
            ],
            headline=reproduction.summary[0].capitalize() + ".",
            summary=said,
            sections=[
                Section("results", "Numbers", [numbers]),
                Section("pictures", "Pictures", pictures),
                Section("free", "What was fitted or chosen", _words(reproduction.provenances)),
                Section("reasons", "Where differences come from", _words(reproduction.reasons)),
                Section("notes", "Notes", _words(reproduction.notes)),
            ],
            beside=f"The tables beside this file, as CSV and Parquet: {tables}.",
        ),
        version=version,
    )


def _words(texts: list[str]) -> list[Words]:
    return [Words(texts)] if texts else []
