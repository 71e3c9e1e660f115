"""What a sweep writes beside its journal: table, pictures and report."""

from __future__ import annotations

from pathlib import Path

from allrail import _core
from allrail.base.files import staged_folder
from allrail.output.frames import write_frame
from allrail.output.report import style
from allrail.output.report.sweep import pictures
from allrail.output.report.sweep_page import page
from allrail.search.sweeps.run import NAME, REPORT, Swept


def write_sweep(swept: Swept, folder: Path) -> None:
    """Write `sweep.csv`, `sweep.parquet`, the pictures and `report.html`.

    Args:
        swept: What came of the sweep.
        folder: Where.

    Raises:
        InputError: The folder cannot be written, or a file of another program is in the way.
    """
    with staged_folder(folder, NAME) as staged:
        write_frame(swept.table, folder=staged, name=NAME)
        drawn = style.write(staged, pictures(swept))
        html = page(swept, pictures=drawn, version=_core.version())
        (staged / REPORT).write_text(html, encoding="utf-8")
