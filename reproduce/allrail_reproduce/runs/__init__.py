"""Published training runs beside their predictions: `allrail reproduce runs`.

- `table`: a CSV line a run. `machine`, `model`, `software`, `layout`: what its cells mean.
- `predict`: its scenario and what comes out. `units`: what was measured, in one unit.
- `summary`: errors by source, the order of layouts, memory. `memory`: runs whose memory is stated.

Nothing is fitted to a run: devices are those of `workload.compute.device`, links reach what NCCL's
tests show of them (`machine`). One rate was chosen with runs in view: that of an H100 of 500 W.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allrail.base.progress import Progress
from allrail.base.units import show_count
from allrail_reproduce.published import COMPUTED, chosen, number
from allrail_reproduce.rows import Reproduction, Row
from allrail_reproduce.runs import summary
from allrail_reproduce.runs.machine import device_of
from allrail_reproduce.runs.predict import Outcome, predict
from allrail_reproduce.runs.summary import Group
from allrail_reproduce.runs.table import Run, read_table
from allrail_reproduce.runs.units import Measured

__all__ = ["Outcome", "Run", "Runs", "predict", "read_table", "run"]

EXAMPLE = Path(__file__).with_name("example.csv")
"""A few runs with their sources: what there is without a table."""

WITHIN = 0.2
"""How far a prediction may be off to count as met: chosen, as the summary's first limit is."""
CHOSEN = {
    "h100_96gb_500w": chosen(
        "how much slower an H100 of 500 W is, of three published figures", by="torchtitan's runs"
    )
}
"""What of a device was chosen with these runs in view."""
NEAR = 0.1
"""How far memory may be off."""

HEADER = (
    "run",
    "measured",
    "predicted",
    "unit",
    "difference",
    "memory_GB",
    "stated_GB",
    "memory_off",
    "notes",
)


WIDTHS = (9, 9, 16, 10)
"""Of the columns after the first, as numbers and units need them."""


@dataclass(frozen=True)
class Runs:
    """Runs beside their predictions.

    Attributes:
        rows: Each run.
        groups: What each source shows, and all of them.
        pairs: Pairs of layouts in the measured order, and of how many.
        too_large: Runs that are predicted not to fit their memory.
        memory: How far memory is off where the table states it (`memory_gb`, `memory_gib`), in
            parts.
    """

    rows: list[Outcome]
    groups: list[Group]
    pairs: tuple[int, int]
    too_large: list[Outcome]
    memory: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """It as plain values."""
        return {
            "rows": [one.to_dict() for one in self.rows],
            "groups": [
                {
                    "source": one.name,
                    "rows": one.rows,
                    "refused": one.refused,
                    "mean": one.mean,
                    "median": one.median,
                    "within_20": one.within[0],
                    "within_30": one.within[1],
                }
                for one in self.groups
            ],
            "pairs_in_order": self.pairs[0],
            "pairs": self.pairs[1],
            "do_not_fit": [one.run.id for one in self.too_large],
            "memory_errors": self.memory,
        }

    @property
    def table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """The header and the rows as text."""
        return HEADER, [_cells(one) for one in self.rows]

    def reproduction(self) -> Reproduction:
        """It as rows that are judged: a run is met within `WITHIN`, a refused one is out."""
        return Reproduction(
            "Training runs",
            [_judged(one, one.measured) for one in self.rows if one.measured is not None],
            self.told,
        )

    @property
    def told(self) -> list[str]:
        """The summary in lines."""
        lines = [
            f"{one.name}: {show_count(one.rows, 'run')}, mean error {_percent(one.mean)}, median "
            f"{_percent(one.median)}, {one.within[0]:.0%} within 20 %, {one.within[1]:.0%} within "
            f"30 %, {one.refused} refused"
            for one in self.groups
        ]
        right, total = self.pairs
        if total:
            lines.append(f"layouts in the measured order: {right} of {show_count(total, 'pair')}")
        names = ", ".join(one.run.id for one in self.too_large) or "none"
        lines.append(f"ran, and are predicted not to fit: {names}")
        if self.memory:
            off = statistics.fmean(abs(one) for one in self.memory)
            near = sum(abs(one) <= NEAR for one in self.memory)
            lines.append(
                f"memory, where it is stated: {show_count(len(self.memory), 'run')}, mean error"
                f" {off:.1%}, {near} within 10 %"
            )
        return lines


def run(
    path: Path | None = None,
    *,
    progress: Progress | None = None,
    row: Callable[[list[str]], None] | None = None,
) -> Runs:
    """Predict every run of a table.

    Args:
        path: A CSV file; the packaged example if None.
        progress: Told how many runs are done.
        row: Given the cells of each run, in the order of the table, as soon as it and those before
            it are there.

    Raises:
        InputError: The table cannot be read.
    """
    runs = read_table(path or EXAMPLE)
    found: dict[int, Outcome] = {}
    told = 0
    # Simulations hold no lock of Python's.
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        waiting = {pool.submit(predict, one): at for at, one in enumerate(runs)}
        for done in as_completed(waiting):
            found[waiting[done]] = done.result()
            while row is not None and told in found:
                row(_cells(found[told]))
                told += 1
            if progress is not None:
                progress(len(found), len(runs))
    finally:
        pool.shutdown(cancel_futures=True)
    rows = [found[at] for at in range(len(runs))]
    return Runs(
        rows,
        summary.groups(rows),
        summary.ordered(rows),
        summary.do_not_fit(rows),
        summary.memory_errors(rows),
    )


def _cells(one: Outcome) -> list[str]:
    measured, predicted = one.measured, one.predicted
    notes = [one.refused] if one.refused else []
    if predicted is not None:
        notes += predicted.assumed
        if predicted.band is not None:
            low, high = predicted.band
            notes.append(f"{_figure(low)} to {_figure(high)} from full recomputation to none")
    off = one.memory_ratio
    unit = measured.unit if measured is not None else (predicted.unit if predicted else "-")
    return [
        one.run.id,
        "-" if measured is None else _figure(measured.value),
        "-" if predicted is None else _figure(predicted.value),
        unit,
        "-" if one.ratio is None else f"{100 * (one.ratio - 1):+.1f}%",
        "-" if predicted is None or predicted.memory is None else f"{predicted.memory / 1e9:.0f}",
        "-" if one.run.stated_memory is None else f"{one.run.stated_memory / 1e9:.0f}",
        "-"
        if off is None
        else f"{100 * (off - 1):+.1f}%{'' if abs(off - 1) <= NEAR else ' (out)'}",
        "; ".join(notes) or "-",
    ]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _judged(one: Outcome, measured: Measured) -> Row:
    source = one.run.comments.get("source", "")
    return Row(
        one.run.id,
        None if one.predicted is None else one.predicted.value,
        number(measured.value, f"file `{source}`"),
        measured.unit,
        within=WITHIN,
        how="; ".join(() if one.predicted is None else one.predicted.assumed),
        why=one.refused or "",
        made=CHOSEN.get(device_of(one.run) or "", COMPUTED),
        refused=one.predicted is None,
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
