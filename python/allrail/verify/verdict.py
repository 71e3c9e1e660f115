"""What the simulator says of a recorded run, and which assumption was off.

Compute times are the run's own, of the rank that computes longest; what can be off is the fabric,
and that in each step another rank is the last. So the step is simulated as planned, with one number
at a time as it was measured, and with all of them. The number that brings the prediction nearest to
the measured step is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from allrail.errors import InputError
from allrail.runtime.predict import scenario
from allrail.runtime.record import Record
from allrail.runtime.steps import Step, middle_half, steps_of
from allrail.training import simulate_training
from allrail.verify.collectives import Exchange, exchanges
from allrail.verify.fit import Carried, carried

_OFF = 0.05
"""A prediction that is as near needs no explanation."""
_UNSEEN = 0.02
"""What one run cannot show of the next: chosen, after two series of runs on a shared machine."""
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
class Verdict:
    """Predicted beside measured.

    Attributes:
        ranks: How many there were.
        steps: How many were seen whole.
        rank: Whose compute times were simulated.
        measured_ms: The median step.
        planned_ms: Predicted before the run: with the fabric of the job file.
        refitted_ms: Predicted with all numbers as they were measured.
        bar: How far such a prediction may be off, over it: what of this run it left unexplained,
            what the rates' errors make of the step, how far its halves were apart, and 2 %.
        exposed_ms: Measured: how long that rank waited in a step.
        assumptions: The step with each number as it was measured, and with all.
        worst: Which number was off the most; None where none is to blame.
        exchanges: Of every tensor, with the refitted fabric.
        dimensions: As they were measured.
        fabric: The refreshed calibration, as a fabric file has it.
    """

    ranks: int
    steps: int
    rank: int
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

    @property
    def difference(self) -> float:
        """Predicted before the run over measured, less one."""
        return self.planned_ms / self.measured_ms - 1

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, under the same names."""
        return asdict(self) | {"difference": self.difference}

    def __str__(self) -> str:
        """Return the tables."""
        return "\n".join(_lines(self))


def verify(records: Sequence[Record]) -> Verdict:
    """Compare a run with the simulation of the same job.

    Args:
        records: Of all ranks; of several models the first one's.

    Raises:
        InputError: There is no step to compare, or nothing to predict it with.
    """
    records = [one for one in records if one["model"] == records[0]["model"]] if records else []
    seen = [(one, steps_of(one)) for one in records]
    seen = [(one, steps) for one, steps in seen if steps]
    if not seen:
        raise InputError(
            "no step was seen whole",
            hint="record three steps or more: `allrail run --trace DIR torchrun ... train.py`",
        )
    record, steps = max(seen, key=lambda one: _computed(one[1]))
    settings = record["settings"] or {}
    if not settings.get("dimensions"):
        raise InputError(
            f"the transport `{record['transport']}` tells of no fabric",
            hint="what c10d carried has a trace of its own: `allrail import`",
        )
    planned = scenario(record, steps)
    found = carried(records)
    base = _step(planned)
    changes = _changes(planned, found)
    assumptions = [
        Assumption(what, before, after, _step(_changed(planned, {at: {key: after}})))
        for what, at, key, before, after in changes
    ]
    mine, slowest = (
        _typical(step.computed for step in steps),
        _of_the_slowest([each for _, each in seen]),
    )
    uneven = slowest / mine
    assumptions.append(
        Assumption(
            "computing, of the last rank",
            f"{mine / 1e6:.3f} ms",
            f"{slowest / 1e6:.3f} ms",
            _step(_slowed(planned, uneven)),
        )
    )
    refitted = _slowed(_changed(planned, _by_dimension(changes)), uneven)
    result = simulate_training(refitted, timeline=True)
    times = [(step.end - step.start) / 1e6 for _, each in seen for step in each]
    measured = median(times)
    apart = median(_drift(each) for _, each in seen)
    after = result.step_time_us / 1e3
    near = min(assumptions, key=lambda one: abs(one.step_ms - measured), default=None)
    helps = near is not None and abs(near.step_ms - measured) < 0.9 * abs(base - measured)
    off = abs(base / measured - 1) > _OFF
    return Verdict(
        ranks=record["ranks"],
        steps=len(steps),
        rank=record["rank"],
        measured_ms=measured,
        planned_ms=base,
        refitted_ms=after,
        bar=abs(after / measured - 1) + _spread(refitted, found, after) + apart + _UNSEEN,
        exposed_ms=median(step.waited / 1e6 for step in steps),
        assumptions=tuple(assumptions),
        worst=near.what if near is not None and helps and off else None,
        exchanges=tuple(exchanges(records, result)),
        dimensions=tuple(found),
        fabric={"schema_version": 1, "name": "measured", **_fabric(refitted, found)},
    )


def _spread(tree: dict[str, Any], found: Sequence[Carried], step: float) -> float:
    """How much longer a step takes with every dimension slower by its error."""
    slower = {
        one.dimension: {
            "bandwidth": f"{one.gbps / (1 + one.error):.6g} Gb/s",
            "links": 1,
        }
        for one in found
        if one.trusted
    }
    return _step(_changed(tree, slower)) / step - 1


def _drift(steps: Sequence[Step]) -> float:
    """How far the means of a run's two halves, each of even steps, lie from that of both."""
    half = len(steps) // 4 * 2
    if not half:
        return 0.0
    means = [fmean(one.end - one.start for one in part) for part in (steps[:half], steps[-half:])]
    return abs(means[0] - means[1]) / sum(means)


def _computed(steps: Sequence[Step]) -> float:
    return median(step.computed for step in steps)


def _typical(times: Iterable[int]) -> float:
    """As predictions take it."""
    return fmean(middle_half(times, key=float))


def _of_the_slowest(ranks: Sequence[Sequence[Step]]) -> float:
    """What the rank that is last in a step computes there, in a typical step."""
    count = min(map(len, ranks))
    together = zip(*(steps[-count:] for steps in ranks), strict=True)
    return _typical(max(step.computed for step in one) for one in together)


def _slowed(tree: dict[str, Any], factor: float) -> dict[str, Any]:
    workload = tree["workload"]
    compute = {**workload.get("compute", {}), "scale": factor}
    return {**tree, "workload": {**workload, "compute": compute}}


def _step(tree: dict[str, Any]) -> float:
    return simulate_training(tree).step_time_us / 1e3


_Change = tuple[str, int, str, str, str]
"""What in words, the dimension's number, its key, the value before and after."""


def _changes(planned: dict[str, Any], found: Sequence[Carried]) -> list[_Change]:
    changes = []
    for one in filter(lambda one: one.trusted, found):
        dimension = planned["fabric"]["dimensions"][one.dimension]
        links = int(dimension.get("links", 1))
        value = f"{one.gbps / links:.4g} Gb/s"
        what = f"dimension {one.dimension}'s bandwidth"
        before = str(dimension["bandwidth"])
        changes.append((what, one.dimension, "bandwidth", before, value))
    return changes


def _by_dimension(changes: Sequence[_Change]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for _, at, key, _, after in changes:
        found.setdefault(at, {})[key] = after
    return found


def _changed(planned: dict[str, Any], changes: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    fabric = planned["fabric"]
    dimensions = [{**one, **changes.get(at, {})} for at, one in enumerate(fabric["dimensions"])]
    return {**planned, "fabric": {**fabric, "dimensions": dimensions}}


def _fabric(tree: dict[str, Any], found: Sequence[Carried]) -> dict[str, Any]:
    told = [
        f"dimension {one.dimension}: within {100 * one.error:.0f} %"
        if one.trusted
        else f"dimension {one.dimension}: as planned, its rates scatter too much"
        for one in found
    ]
    about = f"Measured on a run, of half of all bytes. {'; '.join(told)}."
    measured = bool(found) and all(one.trusted for one in found)
    error = max((one.error for one in found), default=0.0) + _UNSEEN
    return {
        "about": about,
        "calibrated": measured,
        **({"error": round(error, 4)} if measured else {}),
        "dimensions": tree["fabric"]["dimensions"],
    }


def _lines(verdict: Verdict) -> list[str]:
    def against(step: float) -> str:
        return f"{100 * (step / verdict.measured_ms - 1):+6.1f} %"

    share = 100 * verdict.exposed_ms / verdict.measured_ms
    lines = [
        f"{verdict.ranks} ranks, {verdict.steps} steps; computing as on rank {verdict.rank}",
        f"measured                {verdict.measured_ms:10.3f} ms  ({share:.0f} % exposed)",
        f"predicted, as planned   {verdict.planned_ms:10.3f} ms  {against(verdict.planned_ms)}",
        f"predicted, as measured  {verdict.refitted_ms:10.3f} ms  {against(verdict.refitted_ms)}",
        f"such a prediction is off by at most about {100 * verdict.bar:.1f} %",
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
    told = [one for one in verdict.exchanges if one.predicted_ms is not None]
    if told:
        lines += ["", "exchanges, from the first byte to the last, predicted as measured:"]
        lines.append(f"  {'tensor':<28} {'bytes':>12} {'measured, ms':>13} {'predicted':>10}")
        lines += [
            f"  {one.name[:28]:<28} {one.bytes:>12,} {one.measured_ms:>13.3f}"
            f" {one.predicted_ms or 0:>10.3f}"
            for one in told[:_SHOWN]
        ]
    for one in verdict.dimensions:
        scattered = "" if one.trusted else ": too much to be used"
        lines.append(
            f"dimension {one.dimension}: {one.gbps:.3g} Gb/s, half of its"
            f" {one.bytes / 1e6:,.1f} MB within {100 * one.error:.1f} %{scattered}"
        )
    return lines
