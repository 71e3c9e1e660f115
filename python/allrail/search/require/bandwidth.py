"""The least bandwidth that reaches a target: of each dimension alone, and of all together.

Dimensions are scaled by powers of two around what they have, and between the last that misses and
the first from which all reach it by halving, to 1 %. More bandwidth should never be slower; a
greedy order of chunks may have it otherwise, and then that is said.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from allrail import _core
from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.results.table import Table
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.dimensions import aggregate, dimensions_of
from allrail.scenario.fields import parse_quantity
from allrail.search.require.candidate import Candidate
from allrail.search.require.target import Target, read_target
from allrail.simulation.kinds import needs
from allrail.simulation.many import of_core

_POWERS = range(-6, 7)
_CLOSE = 1.01
"""A factor is found to so much."""
_FASTEST = 10**15
_SLOWER = 1e-6
"""Of a step: as much is rounding."""


@dataclass(frozen=True, slots=True)
class Curve:
    """How the step depends on bandwidth.

    Attributes:
        name: `dim1` and so on, or `all`.
        factors: Of the bandwidth that there is.
        steps_s: Seconds of a step, of each.
    """

    name: str
    factors: tuple[float, ...]
    steps_s: tuple[float, ...]

    @property
    def anomalies(self) -> tuple[float, ...]:
        """Factors at which more bandwidth made a step longer than the point before."""
        pairs = zip(self.factors[1:], self.steps_s[1:], self.steps_s[:-1], strict=True)
        return tuple(factor for factor, now, before in pairs if now > before * (1 + _SLOWER))


@dataclass(frozen=True, slots=True)
class Least:
    """The least that reaches the target.

    Attributes:
        name: `dim1` and so on, or `all`.
        now_gbps: Gb/s of an NPU in a direction, as it is: of each dimension that is scaled.
        factor: Of that; None if no bandwidth of these dimensions alone reaches it.
        step_s: Of the step there.
        at_most: Whether the factor is the lowest that was tried: even less may do.
    """

    name: str
    now_gbps: tuple[float, ...]
    factor: float | None
    step_s: float
    at_most: bool = False

    @property
    def gbps(self) -> tuple[float, ...]:
        """What is needed, Gb/s."""
        return tuple(self.factor * one for one in self.now_gbps) if self.factor else ()


@dataclass(frozen=True, slots=True)
class Required(Table):
    """What a target takes: a row of each dimension alone, and of all together.

    Attributes:
        target: What is to be reached.
        step_s: As it is.
        ideal_s: Without time for bytes.
        least: Of each dimension alone, and of all together.
        curves: The same names, over bandwidth.
        calibrated: Whether the fabric's numbers were measured.
        fabrics: Those that were tried, the cheapest that reaches it first.
        notes: What is to be said of the layout that was taken.
        scenario: What was scaled.
    """

    kind: ClassVar[str] = "required"
    PLOTTED: ClassVar[tuple[str, str]] = ("scaled", "factor")

    target: Target
    step_s: float
    ideal_s: float
    least: tuple[Least, ...]
    curves: tuple[Curve, ...]
    calibrated: bool
    fabrics: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()
    scenario: Scenario | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a scaling: what there is and what is needed, Gb/s per NPU, and the step, s."""
        return [
            {
                "scaled": one.name,
                "now_gbps": list(one.now_gbps),
                "factor": one.factor,
                "needed_gbps": list(one.gbps),
                "step_s": one.step_s,
            }
            for one in self.least
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        tree = {
            "target": asdict(self.target),
            "step_s": self.step_s,
            "ideal_s": self.ideal_s,
            "least": tuple(asdict(one) for one in self.least),
            "curves": tuple(asdict(one) for one in self.curves),
            "calibrated": self.calibrated,
            "fabrics": [asdict(one) for one in self.fabrics],
        }
        return tree | ({"notes": list(self.notes)} if self.notes else {})


def _bounded(rate: float) -> int:
    """What a bandwidth may be, B/s: no more than a petabyte, at which bytes take no time."""
    return min(max(1, round(rate)), _FASTEST)


class _Steps:
    """Steps of a scenario whose dimensions are scaled."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._tree = json.loads(scenario.to_json())
        self.names = [f"dim{k + 1}" for k in range(len(self._tree["fabric"]["dimensions"]))]
        self.gbps = [8e-9 * aggregate(one) for one in self._tree["fabric"]["dimensions"]]

    def text(self, factors: Sequence[float], **more: Any) -> str:
        """The scenario with dimensions so many times as fast."""
        fabric = self._tree["fabric"]
        scaled = []
        for one, factor in zip(fabric["dimensions"], factors, strict=True):
            rate = parse_quantity("bandwidth", str(one["bandwidth"]))
            scaled.append({**one, "bandwidth": f"{_bounded(rate * factor)} B/s"})
        return json.dumps({**self._tree, "fabric": {**fabric, "dimensions": scaled}, **more})

    def run(self, texts: list[str]) -> list[dict[str, Any]]:
        """Simulate; the first mistake is raised."""
        found = []
        for text in _core.simulate_many(texts, None, None):
            tree = of_core(text, self._scenario)
            if isinstance(tree, InputError):
                raise tree
            found.append(tree)
        return found

    def seconds(self, some: list[Sequence[float]]) -> list[float]:
        """Steps of several scalings."""
        return [one["step_time_us"] / 1e6 for one in self.run([self.text(f) for f in some])]


def least_bandwidth(
    scenario: ScenarioLike,
    throughput: str,
    *,
    sets: Any = (),
    progress: Progress | None = None,
) -> Required:
    """Find the least bandwidth that reaches a throughput, in `dims`.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        throughput: What is to be reached: `target.py` lists the forms.
        sets: Overrides.
        progress: Told how far it is.

    Raises:
        InputError: Something in the scenario is wrong, or nothing reaches the target.
    """
    loaded = needs("workload", load_scenario(scenario, sets=sets))
    steps = _Steps(_on_dimensions(loaded))
    count = len(steps.names)
    whole = [1.0] * count
    now, ideal = steps.run([steps.text(whole), steps.text(whole, what_if="infinite_bandwidth")])
    target = read_target(throughput, ideal=ideal)
    scaled: list[tuple[str, tuple[int, ...]]] = [(name, (k,)) for k, name in enumerate(steps.names)]
    scaled.append(("all", tuple(range(count))))
    factors = tuple(2.0**power for power in _POWERS)
    curves = []
    for done, (name, which) in enumerate(scaled):
        if progress is not None:
            progress(done, 2 * len(scaled))
        seconds = steps.seconds([_scaled(count, which, factor) for factor in factors])
        curves.append(Curve(name, factors, tuple(seconds)))
    least = []
    for done, ((_, which), curve) in enumerate(zip(scaled, curves, strict=True)):
        if progress is not None:
            progress(len(scaled) + done, 2 * len(scaled))
        rates = tuple(steps.gbps[k] for k in which)
        least.append(_least(steps, which, curve, target, rates))
    now_s, ideal_s = now["step_time_us"] / 1e6, ideal["step_time_us"] / 1e6
    calibrated = loaded.fabric.calibrated
    return Required(
        target, now_s, ideal_s, tuple(least), tuple(curves), calibrated, scenario=loaded
    )


def _on_dimensions(scenario: Scenario) -> Scenario:
    """The scenario on its dimensions: cables belong to no one of them."""
    if scenario.network_model != "dims":
        raise InputError(
            "the bandwidth of dimensions is scaled in `dims`",
            field="network_model",
            value=scenario.network_model,
            hint="write `network_model: dims`, or leave it out",
        )
    dimensions = dimensions_of(scenario.fabric)
    return scenario.model_copy(update={"fabric": dimensions})


def _scaled(count: int, which: Sequence[int], factor: float) -> list[float]:
    return [factor if k in which else 1.0 for k in range(count)]


def _least(
    steps: _Steps, which: Sequence[int], curve: Curve, target: Target, rates: tuple[float, ...]
) -> Least:
    """Halves between the last factor that misses and those that all reach."""
    count = len(steps.names)
    reached = [target.reached_by(step) for step in curve.steps_s]
    at = len(reached)
    while at > 0 and reached[at - 1]:
        at -= 1
    if at == 0:
        return Least(curve.name, rates, curve.factors[0], curve.steps_s[0], at_most=True)
    if at == len(reached):
        # Much more than was tried, before it is given up.
        low, high = curve.factors[-1], curve.factors[-1] * 1024
        [found] = steps.seconds([_scaled(count, which, high)])
        if not target.reached_by(found):
            return Least(curve.name, rates, None, found)
    else:
        low, high, found = curve.factors[at - 1], curve.factors[at], curve.steps_s[at]
    while high / low > _CLOSE:
        middle = (low * high) ** 0.5
        [step] = steps.seconds([_scaled(count, which, middle)])
        if target.reached_by(step):
            high, found = middle, step
        else:
            low = middle
    return Least(curve.name, rates, high, found)
