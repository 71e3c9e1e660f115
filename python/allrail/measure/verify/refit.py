"""A scenario with one number or another as it was measured, and the step that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from allrail import _core
from allrail.measure.verify.fit import Carried
from allrail.measure.verify.verdict import Assumption
from allrail.simulation.api import simulate

UNSEEN = 0.02
"""What one run cannot show of the next: chosen, after two series of runs on a shared machine."""
_OFF = 0.05
"""A prediction that is as near needs no explanation."""


class Change(NamedTuple):
    """A number of a fabric as it was measured.

    Attributes:
        what: In words.
        dimension: Its number.
        key: Of the dimension.
        before: The value as planned.
        after: The value as measured.
    """

    what: str
    dimension: int
    key: str
    before: str
    after: str


def bandwidths(tree: dict[str, Any], found: Sequence[Carried]) -> list[Change]:
    """Return the bandwidths that were measured and can be told.

    Args:
        tree: The scenario as planned.
        found: The dimensions as they were measured.
    """
    changes = []
    for one in filter(lambda one: one.trusted, found):
        dimension = tree["fabric"]["dimensions"][one.dimension]
        value = gigabits(one.gbps / int(dimension.get("links", 1)))
        what = f"dimension {one.dimension}'s bandwidth"
        planned = _core.parse_quantity("bandwidth", str(dimension["bandwidth"]))
        before = gigabits(8e-9 * planned)
        changes.append(Change(what, one.dimension, "bandwidth", before, value))
    return changes


def gigabits(gbps: float) -> str:
    """Return a rate as files have it: four digits, and no exponent.

    Args:
        gbps: Gb/s.
    """
    return f"{gbps:.4g} Gb/s" if gbps < 9999 else f"{gbps:.0f} Gb/s"


def assumptions(tree: dict[str, Any], changes: Sequence[Change]) -> list[Assumption]:
    """Return the step with each number alone as it was measured.

    Args:
        tree: The scenario as planned.
        changes: The numbers.
    """
    return [
        Assumption(
            one.what,
            one.before,
            one.after,
            step_ms(changed(tree, {one.dimension: {one.key: one.after}})),
        )
        for one in changes
    ]


def off_the_most(told: Sequence[Assumption], *, planned: float, measured: float) -> str | None:
    """Return which number alone brings the prediction nearest to what was measured.

    Args:
        told: The step with each of them.
        planned: Milliseconds predicted with none of them.
        measured: Milliseconds.
    """
    near = min(told, key=lambda one: abs(one.step_ms - measured), default=None)
    if near is None or abs(planned / measured - 1) <= _OFF:
        return None
    helps = abs(near.step_ms - measured) < 0.9 * abs(planned - measured)
    return near.what if helps else None


def changed(tree: dict[str, Any], changes: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a scenario with other numbers of its fabric.

    Args:
        tree: The scenario.
        changes: By dimension, the keys and their values.
    """
    fabric = tree["fabric"]
    dimensions = [{**one, **changes.get(at, {})} for at, one in enumerate(fabric["dimensions"])]
    return {**tree, "fabric": {**fabric, "dimensions": dimensions}}


def by_dimension(changes: Sequence[Change]) -> dict[int, dict[str, str]]:
    """Return changes as `changed` takes them.

    Args:
        changes: All of them.
    """
    found: dict[int, dict[str, str]] = {}
    for one in changes:
        found.setdefault(one.dimension, {})[one.key] = one.after
    return found


def slowed(tree: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return a scenario that computes longer.

    Args:
        tree: The scenario.
        factor: By how much.
    """
    workload = tree["workload"]
    compute = {**workload.get("compute", {}), "scale": factor}
    return {**tree, "workload": {**workload, "compute": compute}}


def step_ms(tree: dict[str, Any]) -> float:
    """Return how long a step is predicted to take.

    Args:
        tree: The scenario.
    """
    return float(simulate(tree).step_time_us) / 1e3


def spread(tree: dict[str, Any], found: Sequence[Carried], step: float) -> float:
    """Return how much longer a step takes with every dimension slower by its error, over it.

    Args:
        tree: The scenario with all numbers as they were measured.
        found: The dimensions.
        step: Milliseconds predicted with them.
    """
    slower = {
        one.dimension: {
            "bandwidth": gigabits(one.gbps / (1 + one.error)),
            "links": 1,
        }
        for one in found
        if one.trusted
    }
    return step_ms(changed(tree, slower)) / step - 1


def parts_of(
    *, left: float, spread: float, apart: float | None = None
) -> tuple[tuple[str, float], ...]:
    """Return what a prediction with the numbers of a run may be off by, as parts of it.

    Args:
        left: What this run left unexplained.
        spread: What the errors of its rates make of the step.
        apart: How far its two halves lie from each other; None where that is not told.
    """
    parts = [("that this run leaves unexplained", left), ("for the errors of its rates", spread)]
    if apart is not None:
        parts.append(("by which its halves differ", apart))
    return (*parts, ("for what one run cannot show of the next", UNSEEN))


def fabric_file(tree: dict[str, Any], found: Sequence[Carried]) -> dict[str, Any]:
    """Return the refreshed calibration, as a fabric file has it.

    Args:
        tree: The scenario with all numbers as they were measured.
        found: The dimensions.
    """
    told = [
        f"dimension {one.dimension}: within {100 * one.error:.0f} %"
        if one.trusted
        else f"dimension {one.dimension}: as planned, its rates scatter too much"
        for one in found
    ]
    about = f"Measured on a run, of half of all bytes. {'; '.join(told)}."
    measured = bool(found) and all(one.trusted for one in found)
    error = max((one.error for one in found), default=0.0) + UNSEEN
    return {
        "schema_version": 1,
        "name": "measured",
        "about": about,
        "calibrated": measured,
        **({"error": round(error, 4)} if measured else {}),
        "dimensions": tree["fabric"]["dimensions"],
    }
