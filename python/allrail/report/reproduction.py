"""The page of a reproduction: published numbers beside ours, reasons, pictures, in one file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from allrail.report.page import embed

if TYPE_CHECKING:
    from allrail.reproduce.rows import Reproduction


TEXTS = ("case", "published", "unit", "verdict", "provenance", "source", "how")
"""Columns that are no numbers."""


def page(reproduction: Reproduction, *, drawn: Mapping[str, str], version: str) -> str:
    """The report as HTML.

    Args:
        reproduction: What was computed.
        drawn: Its pictures as SVG, by name.
        version: Of allrail.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    wrong = [row.case for row in reproduction.misses]
    header, rows = reproduction.table
    text = environment.get_template("reproduction.html.j2").render(
        title=reproduction.title,
        badge=("good", "all within tolerance") if not wrong else ("care", f"{len(wrong)} outside"),
        headline=reproduction.summary[0].capitalize() + ".",
        free=reproduction.free,
        provenances=reproduction.provenances,
        wrong=wrong,
        header=[name.replace("_", " ") for name in header],
        rows=rows,
        texts=[i for i, name in enumerate(header) if name in TEXTS],
        reasons=reproduction.reasons,
        notes=reproduction.notes,
        pictures=[
            {
                "title": picture.title,
                "caption": picture.caption,
                "svg": embed(drawn[picture.name], name=picture.name, label=picture.title),
            }
            for picture in reproduction.pictures
        ],
        tables=[detail.name for detail in reproduction.details],
        version=version,
    )
    return re.sub(r"[ \t]+\n", "\n", text)
