"""Which fabrics of a list reach a target, and what they cost.

Prices are those of `allrail cost`: of topologies, whose switches and cables are known. Fabrics that
are written by their dimensions have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.scenario import GraphFabric, ScenarioLike, load_any_fabric, load_scenario
from allrail.search.require.candidate import Candidate
from allrail.search.require.target import Target
from allrail.simulation.graphs import cost
from allrail.simulation.one import simulate_one


def cheapest(
    scenario: ScenarioLike,
    target: Target,
    fabrics: Sequence[str],
    *,
    sets: Any = (),
    prices: Path | None = None,
) -> list[Candidate]:
    """Simulate a job on fabrics: those that reach the target first, the cheapest of them first.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        target: What is to be reached.
        fabrics: Presets or files.
        sets: Overrides.
        prices: A file of prices; the paper's if None.

    Raises:
        InputError: A fabric or the scenario cannot be read.
    """
    base = load_scenario(scenario, sets=sets)
    found = [_candidate(base, target, fabric, prices) for fabric in fabrics]
    return sorted(found, key=_order)


def _candidate(base: Any, target: Target, fabric: str, prices: Path | None) -> Candidate:
    loaded = load_any_fabric(fabric)
    usd = None
    if isinstance(loaded, GraphFabric):
        usd = float(cost([loaded], prices=prices)["fabrics"][0]["cost_usd"])
    try:
        result = simulate_one(load_scenario(base, sets={"fabric": fabric}))
    except InputError as error:
        return Candidate(fabric, cost_usd=usd, why_not=error.why)
    step_s = result.step_time_us / 1e6
    busiest = max(result.dimensions, key=lambda one: one.busy_fraction)
    binding = f"{busiest.name} busy {100 * busiest.busy_fraction:.0f} %"
    return Candidate(fabric, step_s, target.reached_by(step_s), usd, binding)


def _order(one: Candidate) -> tuple[Any, ...]:
    usd = float("inf") if one.cost_usd is None else one.cost_usd
    step_s = float("inf") if one.step_s is None else one.step_s
    return (not one.reaches, usd if one.reaches else step_s, step_s, one.fabric)
