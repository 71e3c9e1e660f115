"""A training step as a fabric's tables were measured: with the library's collectives.

    r = Σ n·t_library(part, S) / Σ n·t_simulated(part, S)

over the step's collectives, each alone: n of S bytes on a part of the fabric's dimensions. The step
is then simulated on a network whose every transfer takes r times as long. One factor stands for all
collectives, so that a step whose exposed ones differ from its hidden ones in r is off by that.
Messages between two ranks have no table: they take r times as long, too.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allrail.base.errors import InputError
from allrail.measure.calibrate.predict import OPERATIONS, predict_us, tree_of
from allrail.results.training_parts import Slice
from allrail.scenario import Fabric, Scenario
from allrail.search.layouts.mapping import parts_of
from allrail.simulation.api import simulate

_SLICES = 200_000
"""Of a timeline: in longer ones nobody looks."""
_KINDS = 64
"""The kinds of collectives that send the most; others count as these."""
_BESIDE = ("tensor", "coordination", "collective_order")
"""Keys of a schedule that decide nothing of a collective that runs alone."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A step with the library's collectives.

    Attributes:
        step_us: Its time, µs.
        longer: How many times as long its collectives take as they were simulated.
        error: What nine of ten measured rows are within.
    """

    step_us: float
    longer: float
    error: float


def measured_step(scenario: Scenario) -> Measured | None:
    """Return a step as a fabric's tables were measured.

    Args:
        scenario: With a workload.

    Returns:
        None where the fabric comes from no table, or the step has no collective of one.
    """
    fabric = scenario.fabric
    if not isinstance(fabric, Fabric) or fabric.library is None or scenario.workload is None:
        return None
    one = simulate(scenario, sets={"workload.iterations": 1}, timeline=_SLICES)
    kinds = _kinds(scenario, fabric, one.timeline or ())
    library = simulated = 0.0
    for (operation, size, part), count in kinds:
        alone = _alone_us(scenario, fabric, operation, size, part)
        if alone is None:
            continue
        library += count * predict_us(tree_of(fabric), operation, part, size)
        simulated += count * alone
    if not simulated:
        return None
    longer = library / simulated
    slower = scenario.model_copy(update={"fabric": fabric.slower(longer)})
    return Measured(simulate(slower).step_time_us, longer, fabric.library.error)


_Kind = tuple[str, int, tuple[int, ...]]


def _kinds(
    scenario: Scenario, fabric: Fabric, timeline: Sequence[Slice]
) -> list[tuple[_Kind, int]]:
    """The collectives of a step by what they are, those that send the most first, and how many."""
    names = [f"dim{place}" for place in range(1, len(fabric.dimensions) + 1)]
    calls: dict[int, tuple[str, int, int, set[int]]] = {}
    for one in timeline:
        if one.communication is None or one.operation not in OPERATIONS or not one.bytes:
            continue
        call = calls.setdefault(
            one.communication, (one.operation, one.bytes, one.group_size or 1, set())
        )
        call[3].update(_places(one.track, names))
    kinds: Counter[_Kind] = Counter()
    sizes = tuple(one.size for one in fabric.dimensions)
    shapes = _shapes(scenario, sizes)
    for operation, size, ranks, on in calls.values():
        part = _part(sizes, ranks, on, shapes)
        if part is not None:
            kinds[operation, size, part] += 1
    most = sorted(kinds.items(), key=lambda one: (-one[1] * one[0][1], one[0]))
    return most[:_KINDS]


def _places(track: str, names: Sequence[str]) -> Iterator[int]:
    """Dimensions of a track: one, or several with a plus between."""
    for name in track.split("+"):
        if name in names:
            yield names.index(name)


def _shapes(scenario: Scenario, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """How many places of each dimension the axes of a layout take."""
    tree = json.loads(scenario.to_json())["workload"].get("parallelism")
    if tree is None:
        return []
    axes = ("tp", "cp", "ep", "pp", "dp")
    degrees = {axis: int(tree.get(axis) or 1) for axis in axes}
    if not tree.get("dp"):
        degrees["dp"] = max(1, math.prod(sizes) // math.prod(degrees.values()))
    return parts_of(degrees, sizes)


def _part(
    sizes: Sequence[int], ranks: int, on: set[int], shapes: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """How many of a group's ranks differ on each dimension; None if that cannot be."""
    for shape in shapes:
        if math.prod(shape) == ranks and {k for k, one in enumerate(shape) if one > 1} == on:
            return shape
    part, left = [1] * len(sizes), ranks
    for place in sorted(on):
        part[place] = math.gcd(sizes[place], left)
        left //= part[place]
    return tuple(part) if left == 1 and math.prod(part) > 1 else None


def _alone_us(
    scenario: Scenario, fabric: Fabric, operation: str, size: int, part: Sequence[int]
) -> float | None:
    """A collective alone, as the scenario schedules it, µs; None where it is refused alone."""
    on = [place for place, one in enumerate(part) if one > 1]
    dimensions = []
    for place in on:
        told = fabric.dimensions[place].model_dump(exclude_defaults=True)
        dimensions.append({**told, "size": part[place]})
    schedule = _schedule(scenario, on)
    try:
        result = simulate(
            {
                "schema_version": 1,
                "fabric": {"dimensions": dimensions},
                "collective": {"kind": operation, "size": f"{size} B"},
                "schedule": schedule,
                "compat": {"cut": scenario.compat.cut},
            }
        )
    except InputError:
        return None
    return float(result.time_us)


def _schedule(scenario: Scenario, on: Sequence[int]) -> Mapping[str, Any]:
    """The scenario's schedule of a collective on some of the dimensions."""
    told = json.loads(scenario.to_json())["schedule"]
    schedule = {key: value for key, value in told.items() if key not in _BESIDE and value}
    named = schedule.get("algorithms")
    if isinstance(named, list):
        schedule["algorithms"] = [named[place] for place in on]
    return schedule
