"""Variants of a scenario side by side, as `allrail.compare` returns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, overload

from allrail.base.axes import SHORT
from allrail.measure.calibrate.nccl.beside import Nccl
from allrail.results.table import Table
from allrail.simulation.kinds import Kind
from allrail.simulation.many import FailedRow
from allrail.simulation.variants import Row

NCCL = "nccl"
"""The policy whose row is NCCL's own time, which nothing here schedules."""


@dataclass(frozen=True, slots=True)
class Comparison(Table):
    """Variants of a scenario, each with its result; it goes by `Row`s.

    Attributes:
        job: The kind of their jobs.
        compared: The variants that were simulated.
        failed: Those that cannot be.
        beside: NCCL's own times, each with a row of the same collective.
    """

    kind: ClassVar[str] = "comparison"
    PLOTTED: ClassVar[tuple[str, str]] = ("label", "time_us")
    job: Kind
    compared: tuple[Row, ...]
    failed: list[FailedRow] = field(default_factory=list)
    beside: tuple[tuple[Row, Nccl], ...] = ()

    def __len__(self) -> int:
        return len(self.compared)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.compared)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        return self.compared[at]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a variant, µs: what differs, its time, and how fast it is beside its rival."""
        rows = []
        for one in self.compared:
            told = one.result.to_dict()
            known = {name: told[name] for name in _WORTH if told.get(name) is not None}
            time = {"time_us": one.result.time_us, "speedup": one.speedup}
            rows.append({"label": one.label, **one.sets, **time, **known})
        rows += [
            {
                "label": tree["label"],
                **tree["sets"],
                "time_us": one.time_us,
                "speedup": tree["speedup"],
            }
            for (_, one), tree in zip(self.beside, self._nccl_trees(), strict=True)
        ]
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        rows = [
            {
                "label": one.label,
                "sets": one.sets,
                "speedup": one.speedup,
                "result": one.result.to_dict(),
            }
            for one in self.compared
        ]
        failed = [
            {
                "label": one.label,
                "sets": one.sets,
                "error": {"message": one.error.message, "hint": one.error.hint},
            }
            for one in self.failed
        ]
        return {"rows": [*rows, *self._nccl_trees(), *failed]}

    def _nccl_trees(self) -> list[dict[str, Any]]:
        return [
            {
                "label": " ".join(map(str, (*apart_from_schedule(row).values(), NCCL))),
                "sets": {**apart_from_schedule(row), SHORT["policy"]: NCCL},
                "speedup": self.speedup_of(row, one),
                "nccl": asdict(one),
            }
            for row, one in self.beside
        ]

    def speedup_of(self, row: Row, one: Nccl) -> float:
        """Return how many times as fast as the first row NCCL is.

        Args:
            row: Of the same collective.
            one: What NCCL takes for it.
        """
        first = self.compared[0].result
        return float(first.time_us / one.time_us * (row.result.work / first.work))

    @property
    def left_out(self) -> list[int | None]:
        """How many slices the timelines have that were too long."""
        return [getattr(one.result, "timeline_left_out", None) for one in self.compared]

    @property
    def exit_status(self) -> int:
        """1 where a variant could not be simulated, else 0."""
        return 1 if self.failed else 0


_WORTH = (
    "utilisation",
    "share_of_injection",
    "compute_us",
    "exposed_communication_us",
    "waiting_us",
)


def apart_from_schedule(row: Row) -> dict[str, object]:
    """Return what differs in a row but its schedule.

    Args:
        row: Of a comparison.
    """
    return {path: value for path, value in row.sets.items() if not path.startswith("schedule")}
