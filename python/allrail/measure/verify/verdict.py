"""Predicted beside measured, and which assumption was off: what `verify` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from allrail.base.arguments import PathLike
from allrail.base.files import write_yaml
from allrail.base.foreign import printable
from allrail.base.units import show_count, show_number
from allrail.measure.verify.collectives import Exchange
from allrail.measure.verify.fit import Carried
from allrail.results.table import Table

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Assumption:
    """The step with something as it was measured.

    Attributes:
        what: In words.
        planned: The value of the job file.
        measured: The value of the run.
        step_ms: Predicted with it.
    """

    what: str
    planned: str
    measured: str
    step_ms: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One step.

    Attributes:
        number: As the profiler counts it; None where it counts none.
        measured_ms: How long it took.
        planned_ms: Predicted with the fabric that was given.
        refitted_ms: Predicted with all numbers as they were measured.
    """

    number: int | None
    measured_ms: float
    planned_ms: float
    refitted_ms: float


@dataclass(frozen=True, slots=True)
class Verdict(Table):
    """Predicted beside measured: a row an exchange.

    Attributes:
        ranks: How many there were.
        steps: How many were seen whole.
        rank: Whose compute times were simulated; None where every rank computes as it did.
        measured_ms: The median step.
        planned_ms: Predicted before the run: with the fabric of the job file, or that was given.
        refitted_ms: Predicted with all numbers as they were measured.
        bar: How far such a prediction may be off, over it: what of this run it left unexplained,
            what the rates' errors make of the step, how far its halves were apart, and 2 %.
        exposed_ms: Measured: how long that rank waited in a step.
        assumptions: The step with each number as it was measured, and with all.
        worst: Which number was off the most; None where none is to blame.
        exchanges: Of every tensor, or every kind of collective, with the refitted fabric.
        dimensions: As they were measured.
        fabric: The refreshed calibration, as a fabric file has it.
        each: The steps one by one, where these differ: of a trace.
        notes: What was assumed of a trace, and what makes it less than it seems.
        bar_of: The parts of `bar`, in words.
        run: The name of what was recorded.
    """

    kind: ClassVar[str] = "verdict"
    PLOTTED: ClassVar[tuple[str, str]] = ("name", "measured_ms")

    ranks: int
    steps: int
    rank: int | None
    measured_ms: float
    planned_ms: float
    refitted_ms: float
    bar: float
    exposed_ms: float
    assumptions: tuple[Assumption, ...]
    worst: str | None
    exchanges: tuple[Exchange, ...]
    dimensions: tuple[Carried, ...]
    fabric: Mapping[str, Any]
    each: tuple[Compared, ...] = ()
    notes: tuple[str, ...] = ()
    bar_of: tuple[tuple[str, float], ...] = ()
    run: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row an exchange: bytes, and its time measured and predicted, ms."""
        return [asdict(one) for one in self.exchanges]

    @property
    def difference(self) -> float:
        """Predicted before the run over measured, less one."""
        return self.planned_ms / self.measured_ms - 1

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        tree = asdict(self) | {"difference": self.difference}
        tree.pop("run")
        return tree

    def write(self, path: PathLike) -> None:
        """Write the fabric as measured (`.yaml`), the exchanges as a table, or a folder.

        Args:
            path: `NAME.yaml`; `.csv`, `.parquet` or `.json`; else a folder for a report.

        Raises:
            InputError: It cannot be written.
        """
        path = Path(path)
        if path.suffix in (".yaml", ".yml"):
            write_yaml(path, self.fabric)
        else:
            Table.write(self, path)

    def __str__(self) -> str:
        """Return the tables."""
        return printable("\n".join(_lines(self)), lines=True)


def _lines(verdict: Verdict) -> list[str]:
    def against(step: float) -> str:
        return f"{100 * (step / verdict.measured_ms - 1):+6.1f} %"

    share = 100 * verdict.exposed_ms / verdict.measured_ms
    whose = "every rank computing as it did"
    if verdict.rank is not None:
        whose = f"computing as on rank {verdict.rank}"
    lines = [
        f"{show_count(verdict.ranks, 'rank')}, {show_count(verdict.steps, 'step')}; {whose}",
        f"measured                {verdict.measured_ms:10.3f} ms  ({share:.0f} % exposed)",
        f"predicted, as planned   {verdict.planned_ms:10.3f} ms  {against(verdict.planned_ms)}",
        f"predicted, as measured  {verdict.refitted_ms:10.3f} ms  {against(verdict.refitted_ms)}",
    ]
    if verdict.assumptions:
        lines += ["", "with one number as it was measured:"]
        lines.append(f"  {'':<28} {'planned':>12} {'measured':>14} {'step, ms':>12}")
        lines += [
            f"  {one.what:<28} {one.planned:>12} {one.measured:>14} {one.step_ms:>12.3f}"
            f"  {against(one.step_ms)}"
            for one in verdict.assumptions
        ]
    if verdict.worst is not None:
        lines.append(f"off the most: {verdict.worst}")
    if len(verdict.each) > 1:
        lines += ["", "step by step, predicted as planned and as measured:"]
        lines.append(f"  {'step':<28} {'measured, ms':>12} {'planned':>14} {'as measured':>12}")
        lines += [
            f"  {one.number if one.number is not None else '-':<28} {one.measured_ms:>12.3f}"
            f" {one.planned_ms:>14.3f} {one.refitted_ms:>12.3f}"
            for one in verdict.each
        ]
    told = [one for one in verdict.exchanges if one.predicted_ms is not None]
    if told:
        of = "collective" if verdict.rank is None else "tensor"
        lines += ["", "exchanges, from the first byte to the last, predicted as measured:"]
        lines.append(f"  {of:<28} {'bytes':>12} {'measured, ms':>13} {'predicted':>10}")
        lines += [
            f"  {one.name[:28]:<28} {one.bytes:>12,} {one.measured_ms:>13.3f}"
            f" {one.predicted_ms or 0:>10.3f}"
            for one in told[:_SHOWN]
        ]
    for one in verdict.dimensions:
        scattered = "" if one.trusted else ": too much to be used"
        lines.append(
            f"dimension {one.dimension}: {show_number(one.gbps, 3)} Gb/s, half of its"
            f" {one.bytes / 1e6:,.1f} MB within {100 * one.error:.1f} %{scattered}"
        )
    lines += [f"# {note}" for note in verdict.notes]
    parts = ", ".join(f"{100 * part:.1f} % {what}" for what, part in verdict.bar_of)
    error = f"error: predictions as measured are off by at most about {100 * verdict.bar:.1f} %"
    error += f" ({parts})" if parts else ""
    if any(not one.trusted for one in verdict.dimensions):
        error += "; of the network nothing is known where rates scatter too much"
    return [*lines, f"# {error}"]
