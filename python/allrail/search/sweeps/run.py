"""`sweep`: read a study, simulate what is left of it, write table and pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from allrail.base.arguments import PathLike, checked
from allrail.base.errors import InputError
from allrail.base.files import check_target
from allrail.base.progress import Progress
from allrail.base.stdin import STDIN
from allrail.results.answer import renderers
from allrail.results.table import Table
from allrail.scenario import Scenario
from allrail.search.sweeps.journal import Journal
from allrail.search.sweeps.pool import pooled
from allrail.search.sweeps.ray import clustered
from allrail.search.sweeps.study import Study, check_show, load_study
from allrail.search.sweeps.table import ERROR, fields, frame, numbers
from allrail.search.sweeps.tasks import Tasks, UnderWay, carry_out
from allrail.simulation.plugins import only_here

if TYPE_CHECKING:
    import polars as pl

NAME = "sweep"
REPORT = "report.html"
FILES = (*(f"{NAME}.{ending}" for ending in ("csv", "parquet", "svg", "png")), REPORT)
"""What every sweep writes, beside its journal."""


@dataclass(frozen=True, slots=True)
class Swept(Table):
    """What came of a sweep: a row a point.

    Attributes:
        study: What was asked.
        table: A row a point.
        known: How many points had been simulated before.
        shown: The result in the pictures.
        folder: Where table and pictures are.
    """

    kind: ClassVar[str] = "sweep"
    study: Study
    table: pl.DataFrame
    known: int
    shown: str
    folder: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a point: what was changed, what came out, and an `error` where it is wrong."""
        return self.table.to_dicts()

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a table of polars."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        return {"known": self.known, "failed": self.failed, "rows": self.rows}

    @property
    def exit_status(self) -> int:
        """1 where a point is wrong, else 0."""
        return 1 if self.failed else 0

    @property
    def fields(self) -> list[str]:
        """What was changed."""
        return fields(self.study)

    @property
    def failed(self) -> int:
        """How many points have an error instead of a result."""
        return len(self.table) - int(self.table[ERROR].null_count())


@checked
def sweep(
    study: str | os.PathLike[str] | Mapping[str, Any],
    out: PathLike | None = None,
    *,
    workers: int | None = None,
    ray: str | None = None,
    progress: Progress | None = None,
) -> Swept:
    """Simulate all points of a study; one that was interrupted goes on where it stopped.

    Args:
        study: A file, or a mapping of the same shape.
        out: The folder for `sweep.jsonl` (results as they come), `sweep.parquet`, `sweep.csv` and
            pictures, and `report.html`; the name of the study's file if None.
        workers: Processes on this machine; as many as there are cores if None.
        ray: The address of a Ray cluster that works instead.
        progress: Told how many points are done; one under way counts by how far it is.

    Returns:
        The points, a row each, in their order.

    Raises:
        InputError: The study is refused, the folder has the results of another, or the cluster is
            not there. A point that is wrong is a row with an `error`.

    Example:
        `allrail.sweep("study.yaml").to_polars().sort("time_us")`
    """
    read = load_study(study)
    shown = check_show(read, numbers(read))
    folder = Path(_named(study) if out is None else out)
    for name in FILES:
        check_target(folder / name, option="--out")
    total = len(read.points)
    with Journal(folder, read) as journal:
        known = len(journal.outcomes)
        left = [index for index in range(total) if index not in journal.outcomes]
        tasks = Tasks(left, read.points.sets)

        def tell() -> None:
            if progress is not None:
                done = len(journal.outcomes) - known + under_way.points
                progress(min(done, len(left)), len(left))

        under_way = UnderWay(tell)
        tell()
        if left:
            results = _results(
                read, tasks, workers=workers, ray=ray, left=len(left), under_way=under_way
            )
            for lines in results:
                journal.add(lines)
                tell()
        table = frame(read, journal.outcomes)
        chosen = shown or ("step_time_us" if "step_time_us" in table.columns else "time_us")
        swept = Swept(read, table, known, chosen, folder)
        renderers().write(swept, folder)
    return swept


def _named(study: str | os.PathLike[str] | Mapping[str, Any]) -> str:
    """The folder of a study that names none."""
    if isinstance(study, Mapping) or Path(study) == STDIN:
        return "study"
    return Path(study).stem


def _results(
    study: Study,
    tasks: Tasks,
    *,
    workers: int | None,
    ray: str | None,
    left: int,
    under_way: UnderWay,
) -> Any:
    alone = sorted(_policies(study) & set(only_here()))
    if ray is not None:
        if alone:
            raise InputError(
                f"`{alone[0]}` is known to this process alone",
                hint="put it into a file and `allrail.load_plugin(FILE)` before the sweep",
                source="--ray",
            )
        return clustered(study.base, tasks, address=ray)

    if workers is not None and workers < 1:
        raise InputError(
            "it is below 1",
            hint="for example `--workers 4`",
            source="--workers",
            value=str(workers),
        )
    if alone:
        return _here(study.base, tasks, under_way)
    count = workers or len(os.sched_getaffinity(0))
    return pooled(study.base, tasks, workers=min(count, left), under_way=under_way)


def _policies(study: Study) -> set[str]:
    """The chunk and tensor schedulers that points of a study name."""
    keys = ("schedule.policy", "schedule.tensor", "schedule.tensor.policy")
    values = (value for axis in study.axes for value in axis.values)
    named = [value.sets.get(key) for value in values for key in keys]
    base = study.base.schedule
    named += [base.policy, base.tensor]
    found = (one.get("policy") if isinstance(one, Mapping) else one for one in named)
    return {name for name in found if isinstance(name, str)}


def _here(base: Scenario, tasks: Tasks, under_way: UnderWay) -> Iterator[tuple[str, ...]]:
    """In this process: a function of it cannot be sent to another."""
    while (piece := tasks.next()) is not None:
        done = carry_out(base, piece, under_way.tell)
        under_way.points = 0.0
        yield tasks.done(piece, done)
