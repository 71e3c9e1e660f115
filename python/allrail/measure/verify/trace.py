"""A trace of PyTorch's profiler, of anyone's job, held against its simulation on a fabric.

Kernels take as long as they did, and wait for what they waited for; collectives take what the
fabric makes of them. What can be off is the fabric: by dimension, what it carries and what a step
of an algorithm takes beside its bytes. Both are read off the collectives that lie mostly on it:

    measured = latency · l + (predicted - latency) · x

`latency` is what the simulator says of a fabric that carries anything at once. Where it is less
than half of the prediction, a collective tells `x` (of bytes, half lie below), else `l` (half of
the calls). Of all ranks' traces the quickest rank says how long a collective took; in one trace for
all waiting for others is in it, and a note says so.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from allrail import _core
from allrail.base import leftovers
from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.formats.traces import import_timed
from allrail.measure.calibrate.predict import OPERATIONS
from allrail.measure.calibrate.predict import run as simulated
from allrail.measure.verify import refit
from allrail.measure.verify.collectives import Exchange
from allrail.measure.verify.fit import Carried, middle
from allrail.measure.verify.refit import Change
from allrail.measure.verify.verdict import Compared, Verdict
from allrail.results.result import Result
from allrail.scenario import load_any_fabric
from allrail.scenario.dimensions import dimensions_of, within
from allrail.simulation.api import simulate

_MOST = 8
"""Steps that are compared: the last of a trace."""
_CHUNKS = 16
_TIMES = 3
_AT_ONCE = {"bandwidth": "900 TB/s", "links": 1}

Kind = tuple[str, int, int]
"""Collectives that are alike: operation, bytes, how many ranks."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a trace: its number, what the trace measured, and the scenario that repeats it."""

    number: int | None
    timed: dict[str, Any]
    tree: dict[str, Any]

    @property
    def measured_ms(self) -> float:
        return float(self.timed["span_us"]) / 1e3


@dataclass(frozen=True, slots=True)
class _Said:
    """Collectives of a kind.

    Attributes:
        count: How many there are in a step.
        measured: Milliseconds, the median.
        predicted: The same.
        latency: The same on a fabric that carries anything at once.
        dimension: That of the fabric which is busy with them for longest.
    """

    count: int
    measured: float
    predicted: float
    latency: float
    dimension: int


def verify_trace(
    files: Sequence[Path],
    *,
    fabric: str,
    step: int | None = None,
    npus: int | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Compare a trace with the simulation of the same steps on a fabric.

    Args:
        files: Of one rank for all, or of every rank; or a folder of these.
        fabric: A preset, or a file; of a larger one the ranks are neighbours.
        step: Of the profiler, this one alone.
        npus: How many ranks the job had, where the trace does not say it.
        progress: Told how many steps are simulated.

    Raises:
        InputError: It is no trace that has times, there is no communication in it, or the fabric
            has fewer NPUs.
    """
    with leftovers.folder() as scratch:
        steps, notes = _steps(list(files), fabric, (step, npus), scratch)
        return _verdict(steps, notes, progress)


def _verdict(steps: Sequence[_Step], notes: Sequence[str], progress: Progress | None) -> Verdict:
    typical = sorted(steps, key=lambda one: one.measured_ms)[(len(steps) - 1) // 2]
    planned = simulate(typical.tree, timeline=True)
    found, changes = _fitted(typical, planned)
    every = refit.by_dimension(changes)
    each = []
    for place, one in enumerate(steps):
        if progress is not None:
            progress(place, len(steps))
        again = refit.step_ms(refit.changed(one.tree, every))
        each.append(Compared(one.number, one.measured_ms, refit.step_ms(one.tree), again))
    refitted = refit.changed(typical.tree, every)
    result = simulate(refitted, timeline=True)
    base, after = planned.step_time_us / 1e3, result.step_time_us / 1e3
    measured = typical.measured_ms
    assumptions = refit.assumptions(typical.tree, changes)
    left = max(abs(one.refitted_ms / one.measured_ms - 1) for one in each)
    parts = refit.parts_of(left=left, spread=refit.spread(refitted, found, after))
    return Verdict(
        ranks=planned.npus,
        steps=len(steps),
        rank=None,
        measured_ms=measured,
        planned_ms=base,
        refitted_ms=after,
        bar=sum(part for _, part in parts),
        exposed_ms=float(typical.timed["exposed_us"]) / 1e3,
        assumptions=tuple(assumptions),
        worst=refit.off_the_most(assumptions, planned=base, measured=measured),
        exchanges=tuple(_exchanges(typical, refitted, result)),
        dimensions=tuple(found),
        fabric=refit.fabric_file(refitted, found),
        each=tuple(each),
        notes=tuple(notes),
        bar_of=parts,
    )


def _fitted(step: _Step, planned: Result) -> tuple[list[Carried], list[Change]]:
    """What the dimensions carry, and all numbers as they were measured.

    Latencies hide behind bytes: how much depends on both, so the fit starts again from its own end.
    """
    tree, result = step.tree, planned
    changes: list[Change] = []
    large: set[Kind] | None = None
    for _ in range(_TIMES):
        kinds = _kinds(step, tree, result)
        if large is None:  # what tells what stays as it was planned
            large = {kind for kind, one in kinds.items() if one.latency < one.predicted / 2}
        found = _carried(tree, kinds, large)
        small = [one for kind, one in kinds.items() if kind not in large]
        latencies = {one.dimension: one for one in changes if one.key == "latency"}
        latencies |= {one.dimension: one for one in _latencies(tree, step.tree, small, found)}
        changes = [*refit.bandwidths(step.tree, found), *latencies.values()]
        tree = refit.changed(step.tree, refit.by_dimension(changes))
        result = simulate(tree, timeline=True)
    return found, changes


def _steps(
    files: list[Path], fabric: str, asked: tuple[int | None, int | None], scratch: Path
) -> tuple[list[_Step], list[str]]:
    """The steps of a trace, each imported on its own, or all of it where it has none."""
    step, npus = asked
    whole, timed = import_timed(files, folder=scratch / "all", step=step, npus=npus)
    numbers = [step] if step is not None else list(timed["steps"])[-_MOST:]
    notes = list(dict.fromkeys([*whole.warnings, *whole.notes]))
    if not timed["collectives"]:
        raise InputError(
            "there is no communication in it that is understood: nothing is predicted, and nothing"
            " can be off",
            source=str(files[0]),
            hint="profile a step of a job of several ranks, with `record_shapes=True`",
        )
    dimensions, taken = _dimensions(fabric, ranks=whole.npus or 1)
    notes += taken
    if timed["alike"]:
        notes.append(
            "one rank's trace: its waiting for others is in its collectives; traces of all ranks"
            " tell both apart"
        )
    if len(numbers) < 2:
        tree = _scenario(scratch / "all", dimensions)
        return [_Step(numbers[0] if numbers else None, timed, tree)], notes
    if len(timed["steps"]) > _MOST:
        notes.append(f"of {len(timed['steps'])} steps, the last {_MOST}")
    steps = []
    for number in numbers:
        folder = scratch / str(number)
        _, mine = import_timed(files, folder=folder, step=number, npus=npus)
        if mine["collectives"]:
            steps.append(_Step(number, mine, _scenario(folder, dimensions)))
    return steps, notes


def _dimensions(fabric: str, *, ranks: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Those of a fabric that the trace's ranks are on, and what was assumed for that."""
    loaded = dimensions_of(load_any_fabric(fabric))
    if loaded.npus < ranks:
        raise InputError(
            f"it has {loaded.npus:,} NPUs, and the trace is of {ranks:,} ranks",
            source="--fabric",
            value=fabric,
            hint="name the network of these ranks; `allrail calibrate live` makes one on them",
        )
    every = [one.model_dump(exclude_defaults=True) for one in loaded.dimensions]
    part = within(every, ranks)
    if loaded.npus == ranks:
        return part, []
    sizes = " x ".join(str(one["size"]) for one in part)
    return part, [f"taken as {sizes} neighbours of the {loaded.npus:,} NPUs of `{fabric}`"]


def _scenario(folder: Path, dimensions: list[dict[str, Any]]) -> dict[str, Any]:
    """As `allrail import` writes it, with the fabric in place."""
    return {
        "schema_version": 1,
        "fabric": {"name": "planned", "dimensions": dimensions},
        "workload": {"model": {"trace": str(folder / "trace")}},
        "schedule": {"policy": "baseline", "chunks": _CHUNKS},
    }


def _measured(step: _Step) -> dict[Kind, list[float]]:
    """Milliseconds of the collectives that carry anything, by kind."""
    found: dict[Kind, list[float]] = {}
    for one in step.timed["collectives"]:
        if one["bytes"]:
            kind = (one["operation"], one["bytes"], one["ranks"])
            found.setdefault(kind, []).append(one["us"] / 1e3)
    return found


def _predicted(tree: dict[str, Any], result: Result) -> dict[Kind, tuple[float, int]]:
    """The median of each kind, in milliseconds, and the dimension that is busy with it longest.

    A timeline ends with the last byte, and a collective a latency later: it takes as long as in the
    step, and at least as long as it takes alone.
    """
    spans: dict[tuple[int, str], tuple[Kind, float, float]] = {}
    busy: dict[Kind, dict[int, float]] = {}
    for one in result.timeline or ():
        if one.communication is None or one.operation is None or not one.group_size:
            continue
        kind = (one.operation, one.bytes or 0, one.group_size)
        key = (one.communication, one.actor)
        _, start, end = spans.get(key, (kind, one.start_us, one.end_us))
        spans[key] = (kind, min(start, one.start_us), max(end, one.end_us))
        dimension = int(one.track.removeprefix("dim")) - 1 if one.track[3:].isdigit() else 0
        times = busy.setdefault(kind, {})
        times[dimension] = times.get(dimension, 0.0) + one.end_us - one.start_us
    every: dict[Kind, list[float]] = {}
    for kind, start, end in spans.values():
        every.setdefault(kind, []).append((end - start) / 1e3)
    return {
        kind: (
            max(
                median(times),
                _alone(kind, [tree["fabric"]["dimensions"][at] for at in sorted(busy[kind])]),
            ),
            max(busy[kind], key=lambda at: busy[kind][at]),
        )
        for kind, times in every.items()
    }


def _alone(kind: Kind, dimensions: list[dict[str, Any]]) -> float:
    """Milliseconds of a collective over whole dimensions; 0 where its group is a part of one."""
    operation, size, ranks = kind
    if operation not in OPERATIONS or prod(int(one["size"]) for one in dimensions) != ranks:
        return 0.0
    return simulated(operation, dimensions, size, chunks=_CHUNKS) / 1e3


def _kinds(step: _Step, tree: dict[str, Any], planned: Result) -> dict[Kind, _Said]:
    dimensions = tree["fabric"]["dimensions"]
    at_once = refit.changed(tree, dict.fromkeys(range(len(dimensions)), _AT_ONCE))
    latency = _predicted(at_once, simulate(at_once, timeline=True))
    measured = _measured(step)
    return {
        kind: _Said(
            len(measured[kind]),
            median(measured[kind]),
            said,
            min(said, latency.get(kind, (0.0, 0))[0]),
            dimension,
        )
        for kind, (said, dimension) in _predicted(tree, planned).items()
        if kind in measured
    }


def _carried(
    tree: dict[str, Any], kinds: dict[Kind, _Said], large: Container[Kind]
) -> list[Carried]:
    found = []
    for at, dimension in enumerate(tree["fabric"]["dimensions"]):
        rate = _core.parse_quantity("bandwidth", str(dimension["bandwidth"]))
        planned = 8 * rate * int(dimension.get("links", 1)) / 1e9
        seen = []
        for kind, one in kinds.items():
            if one.dimension == at and kind in large:
                # Shorter than its latency alone: that is less than was planned.
                took = max(one.measured - one.latency, one.measured / 10)
                slower = took / max(one.predicted - one.latency, took / 10)
                seen.append((planned / slower, kind[1] * one.count))
        if seen:
            usual = middle(seen)
            error = middle([(abs(each / usual - 1), sent) for each, sent in seen])
            found.append(Carried(at, usual, error, sum(sent for _, sent in seen)))
    return found


def _latencies(
    tree: dict[str, Any],
    planned_tree: dict[str, Any],
    small: Sequence[_Said],
    found: Iterable[Carried],
) -> list[Change]:
    """What a step of an algorithm takes beside its bytes, where small collectives tell."""
    slower = {}
    for one in found:
        dimension = tree["fabric"]["dimensions"][one.dimension]
        rate = _core.parse_quantity("bandwidth", str(dimension["bandwidth"]))
        slower[one.dimension] = 8 * rate * int(dimension.get("links", 1)) / 1e9 / one.gbps
    changes = []
    for at, dimension in enumerate(tree["fabric"]["dimensions"]):
        mine = [one for one in small if one.dimension == at and one.latency > 0]
        before = str(planned_tree["fabric"]["dimensions"][at]["latency"])
        planned = _core.parse_quantity("time", str(dimension["latency"]))
        if not mine or not planned:
            continue
        longer = middle(
            [
                (
                    max(0.0, one.measured - slower.get(at, 1.0) * (one.predicted - one.latency))
                    / one.latency,
                    one.count,
                )
                for one in mine
            ]
        )
        after = f"{round(planned * longer / 1e6, 3):g} us"
        changes.append(Change(f"dimension {at}'s latency", at, "latency", before, after))
    return changes


def _exchanges(step: _Step, tree: dict[str, Any], result: Result) -> list[Exchange]:
    said = _predicted(tree, result)
    found = []
    for kind, times in _measured(step).items():
        operation, size, ranks = kind
        predicted = said[kind][0] if kind in said else None
        name = f"{len(times)} x {operation}, {ranks} ranks"
        found.append(Exchange(name, size, median(times), predicted))
    return sorted(found, key=lambda one: -one.measured_ms)
