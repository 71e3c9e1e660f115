"""A table of measured training runs: one CSV line a run, its cells as text and as numbers.

Columns that hold results or comments are kept apart from those that a prediction may see:
`Run.cells` has configuration alone, so that no prediction can depend on what was measured.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from allrail.base.errors import InputError, did_you_mean
from allrail.scenario.text import read_bytes

RESULTS = (
    "tokens_per_s_per_gpu",
    "tflops_per_gpu",
    "mfu_pct",
    "hfu_pct",
    "step_s",
    "memory_gb",
    "memory_gib",
)
"""Columns of what was measured."""

COMMENTS = (
    "id",
    "top30",
    "tier",
    "source",
    "measured_columns",
    "sure",
    "check",
    "note",
    "platform_columns",
)
"""Columns of remarks; so is every `calc_...`."""

NEEDED = ("model", "gpu", "gpus", "sequence_length")
"""Columns that a table must have."""


@dataclass(frozen=True)
class Run:
    """A line of the table.

    Attributes:
        line: Where it stands, from 1.
        cells: Its configuration by column.
        results: What was measured, by column, and the kind of its TFLOP/s.
        comments: The rest.
    """

    line: int
    cells: dict[str, str]
    results: dict[str, str]
    comments: dict[str, str]

    @property
    def id(self) -> str:
        """Its name: the column `id`, or its line."""
        return self.comments.get("id") or f"line {self.line}"

    def text(self, column: str) -> str:
        """Return a cell in lower case, empty where there is none."""
        return self.cells.get(column, "").strip().lower()

    def number(self, column: str) -> float | None:
        """Return the number that a cell begins with; None where it has none."""
        return number(self.cells.get(column, ""))

    def count(self, column: str) -> int | None:
        """Return a cell as a whole number of at least 1; None where it has none."""
        found = self.number(column)
        return None if found is None or found < 1 else round(found)

    def measured(self, column: str) -> float | None:
        """Return a measured number; None where there is none."""
        return number(self.results.get(column, ""))

    @property
    def is_torch(self) -> bool:
        """Whether it is made of PyTorch's own parts: FSDP2, as torchtitan has it."""
        return any("fsdp2" in self.text(name) for name in ("sharding", "flags"))

    @property
    def stated_memory(self) -> float | None:
        """Bytes of memory that it states (`memory_gb`, `memory_gib`); None where it states none."""
        units = (("memory_gb", 1e9), ("memory_gib", 2.0**30))
        found = ((self.measured(column), unit) for column, unit in units)
        return next((stated * unit for stated, unit in found if stated), None)

    @cached_property
    def key(self) -> tuple[tuple[str, str], ...]:
        """What makes two lines one configuration."""
        return tuple(sorted((name, text) for name, text in self.cells.items() if text))


def number(text: str) -> float | None:
    """Return the number that a text begins with, such as `1,024` or `3.2 (stated)`."""
    found = re.match(r"\s*[-+]?\d[\d,_]*(\.\d+)?(e[-+]?\d+)?", text, re.IGNORECASE)
    return float(re.sub(r"[,_\s]", "", found.group())) if found else None


def read_table(path: Path) -> list[Run]:
    """Read a table.

    Args:
        path: A CSV file with a header.

    Raises:
        InputError: It cannot be read, has no lines, or lacks a column.
    """
    text = read_bytes(path, wanted="a CSV file")
    if not text.strip():
        raise InputError("it is empty", source=str(path), hint="a header, then a run a line")
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        header = [name.strip() for name in reader.fieldnames or ()]
        lines = [
            {(name or "").strip(): text or "" for name, text in line.items() if name}
            for line in reader
        ]
    except csv.Error as error:
        raise InputError(str(error), source=str(path), hint="give a CSV file in UTF-8") from None
    for column in NEEDED:
        if column not in header:
            raise InputError(
                "the table lacks a column",
                source=str(path),
                field=column,
                hint=did_you_mean(column, header, others="it has"),
            )
    if not lines:
        raise InputError("the table has no lines", source=str(path), hint="a run a line")
    return [_run(line, at) for at, line in enumerate(lines, start=2)]


def _run(line: dict[str, str], at: int) -> Run:
    results, comments, cells = {}, {}, {}
    for name, text in line.items():
        if name in RESULTS or name == "tflops_kind":
            results[name] = text
        elif name in COMMENTS or name.startswith("calc_"):
            comments[name] = text
        else:
            cells[name] = text
    return Run(line=at, cells=cells, results=results, comments=comments)
