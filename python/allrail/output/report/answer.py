"""Folders of commands that answer in one plain tree, such as `expect` and `plan --model`.

`result.json` has the tree under the kind's name, a table of its rows lies beside it as CSV and
Parquet, and the page is made of that tree alone: so `allrail report` makes the same one again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.base.files import staged_folder
from allrail.output.frames import write_frame
from allrail.output.report import (
    bandwidth,
    calibration_page,
    expected_page,
    layouts_page,
    tuning_page,
    verdict_page,
)
from allrail.output.report.document import Page
from allrail.output.report.rendering import render
from allrail.output.write import MADE_BY, OUTPUT, REPORT_FILE, RESULT_FILE, check_folder, write_json

Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """What an answer of a kind becomes.

    Attributes:
        page: The report.
        rows: Its table.
        table: The table's name.
    """

    page: Callable[[Told], Page]
    rows: Callable[[Told], Sequence[Mapping[str, Any]]]
    table: str


KINDS = {
    "calibration": Kind(calibration_page.page, bandwidth.rows, "sizes"),
    "expected": Kind(expected_page.page, bandwidth.rows, "sizes"),
    "layouts": Kind(layouts_page.page, layouts_page.rows, "layouts"),
    "tuning": Kind(tuning_page.page, tuning_page.rows, "trials"),
    "verdict": Kind(verdict_page.page, verdict_page.rows, "exchanges"),
}
"""By the key of `result.json`."""


def html(kind: str, told: Told) -> str:
    """The report as HTML.

    Args:
        kind: One of `KINDS`.
        told: What the verb answers.
    """
    return render(KINDS[kind].page(told), version=_core.version())


def write(folder: Path, kind: str, told: Told) -> None:
    """Write `result.json`, a table and `report.html`.

    Args:
        folder: Where; an earlier run's files are replaced.
        kind: One of `KINDS`.
        told: What the verb answers, as plain values.

    Raises:
        InputError: The folder cannot be written, or a file of another program is in the way.
    """
    import polars as pl

    check_folder(folder)
    # As whoever reads the file sees it.
    told = json.loads(json.dumps(told))
    made = KINDS[kind]
    with staged_folder(folder, OUTPUT) as staged:
        frame = pl.DataFrame(made.rows(told), infer_schema_length=None)
        write_frame(frame, folder=staged, name=made.table)
        (staged / REPORT_FILE).write_text(html(kind, told), encoding="utf-8")
        tree = {"schema_version": 1, "made_by": MADE_BY, "versions": {"allrail": _core.version()}}
        write_json(staged / RESULT_FILE, {**tree, kind: told})
