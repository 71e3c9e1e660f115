"""One scenario, simulated: the plan from the cache, the core, the result."""

from __future__ import annotations

import json
import time

from allrail import _core
from allrail.base.progress import Progress
from allrail.results.plans import Plan, is_cached, plan_for
from allrail.results.result import Result
from allrail.scenario import Scenario, load_scenario
from allrail.scenario.explain import from_core
from allrail.simulation.kinds import kind_of, needs, result_of
from allrail.simulation.many import most, of_fabric


def simulate_one(
    scenario: Scenario,
    *,
    plan: Plan | None = None,
    timeline: bool | int = False,
    cache: bool = True,
    progress: Progress | None = None,
) -> Result:
    """Simulate a scenario.

    Args:
        scenario: What to simulate.
        plan: Of collectives: run this plan instead of planning.
        timeline: Whether the result holds what happened when; a number: if so many slices at most.
        cache: Whether plans that are expensive to make are kept on disk.
        progress: Told how far it is.

    Returns:
        The result of its kind.

    Raises:
        InputError: Something in the scenario or the plan is wrong.
    """
    if plan is not None:
        needs("collective", scenario)
        if "order" not in scenario.schedule.model_fields_set:
            scenario = load_scenario(scenario, sets={"schedule.order": "planned"})
    kept = None
    planning_ms = 0.0
    plans = kind_of(scenario) == "collective"
    try:
        if plans and plan is None and cache and is_cached(scenario):
            started = time.perf_counter()
            kept = plan_for(scenario, progress=progress)
            planning_ms = (time.perf_counter() - started) * 1e3
        elif plan is not None:
            _check(plan, scenario)
        chosen = plan or kept
        text = chosen.text if chosen is not None else None
        tree = json.loads(
            _core.simulate(scenario.to_json(), text, bool(timeline), progress, most(timeline))
        )
    except _core.InputError as error:
        raise from_core(error, places=scenario._places) from None
    if kept is not None:
        tree["host"]["planning_ms"] = planning_ms
        tree["host"]["wall_ms"] += planning_ms
    if plans:
        tree["host"]["plan_cached"] = kept is not None and kept.cached
    return result_of(scenario, of_fabric(tree, scenario, progress))


def _check(plan: Plan, scenario: Scenario) -> None:
    try:
        _core.check_plan(plan.text, scenario.to_json())
    except _core.InputError as error:
        raise plan.explain(error) from None
