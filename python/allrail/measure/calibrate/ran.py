"""What tables may have been made by, and what each of these predicts: a forward model for the fit.

The simulator under the default schedule, of its usual algorithms or of rings; or a library's own
algorithms (`library.py`), which only tables of several numbers of machines tell from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from allrail.measure.calibrate import library
from allrail.measure.calibrate.joint import Forward
from allrail.measure.calibrate.levels import Levels
from allrail.measure.calibrate.pipeline import COLLECTIVES as PIPELINED
from allrail.measure.calibrate.pipeline import Pipeline
from allrail.measure.calibrate.predict import OPERATIONS, Stages
from allrail.measure.calibrate.table import Table

DEFAULT = "the default schedule"
RINGS = "the default schedule with rings"
NCCL = "the faster of a ring and a tree over all ranks"
RING = "a ring over all ranks"
TREE = "a tree over all ranks"
TURNS = ("stages of rings in turn", "stages of halving in turn")
"""One dimension after the other, as with `schedule: {chunks: 1}`."""
STAGES = (DEFAULT, RINGS)
"""What the simulator runs: stages by dimension, of the usual algorithms or of rings."""


_ALGORITHMS = {
    NCCL: library.ALGORITHMS,
    RING: library.ALGORITHMS[:1],
    TREE: library.ALGORITHMS[1:],
    TURNS[0]: library.TURNS[:1],
    TURNS[1]: library.TURNS[1:],
}
"""What a library may have run, and its algorithms."""


def library_of(ran: str) -> tuple[str, ...]:
    """Return the algorithms that a name stands for.

    Args:
        ran: Of `Calibrated`.
    """
    return _ALGORITHMS.get(ran, library.ALGORITHMS)


AS_RINGS = {
    "fastest": {
        **{name: [{"from": "1 B", "algorithm": "ring"}] for name in OPERATIONS[:3]},
        **{
            name: [{"from": "1 B", "algorithm": algorithm}]
            for name, algorithm in (("all_to_all", "direct"), ("broadcast", "ring"))
        },
    }
}
"""Of a dimension whose steps are a ring's: scenarios that name no algorithm follow it."""


def forward_of(ran: str, between: int | None) -> Forward:
    """Return what predicts a row.

    Args:
        ran: What is taken to have run.
        between: The first dimension that joins machines; None for one machine.
    """
    if ran in STAGES:
        return _stages(AS_RINGS if ran == RINGS else {}, Stages)
    return partial(_forward, library_of(ran), between)


def near_of(ran: str, collective: str) -> Forward | None:
    """Return what predicts about the same much faster, to begin a fit with; None where nothing is.

    Args:
        ran: What is taken to have run.
        collective: As of `AROUND`.
    """
    if ran not in STAGES or collective not in PIPELINED:
        return None
    return _stages(AS_RINGS if ran == RINGS else {}, Pipeline)


def told_apart(levels: Levels) -> bool:
    """Return whether tables of several lengths of one dimension tell how time grows with it.

    Args:
        levels: Where tables lie.
    """
    counts = [{part[place] for part in levels.parts} - {1} for place in range(len(levels.sizes))]
    return any(len(one) > 1 for one in counts)


def may_have_run(tables: Sequence[Table], levels: Levels) -> list[str]:
    """Return what is tried: the default schedule; where tables can tell, a library's algorithms.

    Args:
        tables: Of one collective.
        levels: Where they lie.
    """
    collective = str(tables[0].collective)
    if collective not in OPERATIONS:
        return [f"a library's {collective}"]
    if collective == "all_to_all":
        return [DEFAULT]
    if len(levels.sizes) == 1:
        return [DEFAULT, RINGS] if told_apart(levels) else [DEFAULT]
    if not told_apart(levels):
        # Fits of one number of machines are all as good; the library's tells what its rates are.
        return [DEFAULT, NCCL if collective == "all_reduce" else RING]
    if collective != "all_reduce":
        return [DEFAULT, RINGS, RING, *TURNS]
    return [DEFAULT, RINGS, NCCL, RING, TREE, *TURNS]


def _stages(more: dict[str, Any], kind: type[Stages | Pipeline]) -> Forward:
    kept: dict[tuple[str, tuple[int, ...]], Stages | Pipeline] = {}

    def forward(
        table: Table,
        part: Sequence[int],
        rates: Sequence[float],
        latencies: Sequence[float],
        size: int,
    ) -> float:
        key = str(table.collective), tuple(part)
        if key not in kept:
            kept[key] = kind(*key, more)
        return kept[key].time_us(rates, latencies, size)

    return forward


def _forward(
    algorithms: tuple[str, ...],
    between: int | None,
    table: Table,
    part: Sequence[int],
    rates: Sequence[float],
    latencies: Sequence[float],
    size: int,
) -> float:
    name = str(table.collective)
    return library.time_us(
        name, part, rates, latencies, size, between=between, algorithms=algorithms
    )
