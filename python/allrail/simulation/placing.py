"""Jobs on the boards of a fabric: `allrail.place`, which draws mixes of jobs or runs a queue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from allrail.base.arguments import Kind, PathLike, check, checked, is_usable_path
from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.results.answer import Told, renderers
from allrail.scenario.mixes import MixLike
from allrail.simulation import placement
from allrail.simulation.graphs import GraphLike
from allrail.simulation.placed import placed_jobs

_LONG = ("mixes", "map", "timeline", "ran")
"""What is in `result.json` and the tables only."""
_DEFAULTS = {"sort": False, "failed": 0, "backfill": False}
"""Of options that are given if they differ from it; that of the others is None."""


_MIX = Kind(
    lambda value: (
        is_usable_path(value)
        or (
            isinstance(value, (list, tuple))
            and all(isinstance(one, (list, tuple)) and len(one) == 2 for one in value)
        )
    ),
    "a preset's name, a path, or a list of pairs",
    '"alibaba-2020"',
)


class Placed(Told):
    """How much of a fabric mixes of jobs use, or a queue of jobs over time.

    The mapping has all: `mixes` one by one, `map` with the boards of the first, and of a queue its
    `timeline`, which `to_dict` leaves out.
    """

    __slots__ = ("fabric",)
    kind: ClassVar[str] = "placement"
    fabric: GraphLike

    @property
    def is_queue(self) -> bool:
        """Whether jobs arrive, wait and leave."""
        return "waiting_s" in self

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        tree = {key: value for key, value in self.items() if key not in _LONG}
        if not self.is_queue:
            tree["placed"] = [job.to_dict() for job in placed_jobs(self)]
        return tree


@checked
def place(
    fabric: GraphLike,
    *,
    mix: MixLike = "alibaba-2020",
    unit: str | None = None,
    count: int | None = None,
    sort: bool = False,
    transpose: bool = False,
    aspect: int | None = None,
    locality: bool = False,
    leaf_boards: int | None = None,
    failed: int = 0,
    memory: str | None = None,
    run: str | None = None,
    seed: int = 0,
    trace: PathLike | None = None,
    jobs: int | None = None,
    load: float | None = None,
    duration: str | None = None,
    backfill: bool = False,
    out: PathLike | None = None,
    progress: Progress | None = None,
) -> Placed:
    """Place jobs on the boards of a fabric, and say how much of it they use.

    Mixes of jobs are drawn that ask for as many boards as the fabric has. With `trace` or `jobs`,
    jobs arrive, wait first in, first out, run and leave instead.

    Args:
        fabric: A HammingMesh, a torus or a fat tree: a preset's name, a file, or a `GraphFabric`.
        mix: Sizes of jobs: a preset's name, a file, or pairs; a size may be a shape, `2x4`.
        unit: What a size counts, `boards` or `npus`; what the mix says, else boards, if None.
        count: Number of mixes; 1000, or 1 with `run`, if None.
        sort: Whether the largest job is placed first.
        transpose: Whether shapes with rows and columns exchanged are tried, too.
        aspect: Try longer shapes, too, up to this many times as long as wide.
        locality: Whether boards under the same leaf switches are preferred.
        leaf_boards: Boards under one leaf switch; the fabric's own if None.
        failed: Number of failed boards, drawn for each mix.
        memory: Of a board, such as `320 GiB`; with it, jobs move to make room for others.
        run: What all jobs of the first mix run at once, `all_reduce` or `all_to_all`; on a
            HammingMesh.
        seed: Random seed of mixes, failures and jobs that are drawn.
        trace: A CSV file of `arrive,duration,size` lines: run this queue instead.
        jobs: Run a queue of this number of jobs from the mix instead.
        load: Of jobs that are drawn, as a part of all boards; 0.9 if None.
        duration: Mean duration of jobs that are drawn; `3600 s` if None.
        backfill: Whether later jobs of a queue may fill gaps.
        out: Folder for result, tables, pictures and a report; of mixes also a scenario each job.
        progress: Called with what is done and the total.

    Returns:
        `utilisation` (0 to 1), `left_out`, `upper_level` and others, each with `mean`, `median`,
        `p1`, `p99`, `min`, `max` over the mixes; with `run` also `shares`. Of a queue `waiting_s`,
        `makespan_s` and `utilisation`.

    Raises:
        InputError: Something given is refused, or means nothing beside the rest.

    Example:
        `allrail.place("hx2mesh-1k", count=100, sort=True)["utilisation"]["mean"]`
    """
    check("mix", mix, kind=_MIX)
    both: dict[str, Any] = {"mix": mix, "unit": unit, "transpose": transpose, "aspect": aspect}
    both |= {"locality": locality, "seed": seed, "progress": progress}
    of_mixes = {"sort": sort, "failed": failed, "memory": memory, "leaf_boards": leaf_boards}
    of_mixes |= {"run": run, "count": count}
    drawn = {"jobs": jobs, "load": load, "duration": duration}
    placed = Placed(_told(fabric, both, of_mixes, trace, drawn, backfill=backfill))
    placed.fabric = fabric
    if out is not None:
        renderers().write(placed, Path(out))
    return placed


def _told(
    fabric: GraphLike,
    both: Mapping[str, Any],
    of_mixes: Mapping[str, Any],
    trace: PathLike | None,
    drawn: Mapping[str, Any],
    *,
    backfill: bool,
) -> dict[str, Any]:
    """Place mixes, or run a queue, with the options that are given; refuse those of the other."""
    if trace is None and drawn["jobs"] is None:
        why, hint = "it means nothing without a queue", "add `--trace` or `--jobs`"
        _refuse({"backfill": backfill, **drawn}, why, hint)
        return placement.place(fabric, **both, **of_mixes)
    why, hint = "it means nothing for a queue", "leave out `--trace` and `--jobs`"
    _refuse(of_mixes, why, hint)
    if trace is not None:
        why, hint = "it means nothing for jobs from a file", "leave it out, or `--trace`"
        _refuse(drawn, why, hint)
    given = {name: value for name, value in drawn.items() if value is not None}
    return placement.queue(fabric, trace=trace, backfill=backfill, **both, **given)


def _refuse(options: Mapping[str, object], why: str, hint: str) -> None:
    for name, value in options.items():
        if value != _DEFAULTS.get(name):
            raise InputError(why, hint=hint, field=name)
