"""The verbs: `simulate`, `simulate_many`, `plan`, `advise`.

    result = allrail.simulate("scenario.yaml", sets={"schedule.policy": "themis"})
    result.time_us, result.utilisation

They take scenarios of every kind: collectives, training steps, traffic. Every predicted number
comes from the network model that the scenario names (`result.world`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from typing import Any, cast

from allrail import _core
from allrail.base.arguments import checked
from allrail.results.plans import Plan, is_cached, plan_for
from allrail.results.result import Result
from allrail.scenario import (
    Fabric,
    GraphFabric,
    Scenario,
    ScenarioLike,
    load_any_fabric,
    load_scenario,
)
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.explain import from_core
from allrail.scenario.overrides import Sets
from allrail.simulation.kinds import kind_of, needs, result_of
from allrail.simulation.many import Progress, most, of_fabric, run_many


@checked
def simulate(
    scenario: ScenarioLike,
    *,
    sets: Sets = (),
    plan: Plan | str | os.PathLike[str] | None = None,
    timeline: bool | int = False,
    cache: bool = True,
    progress: Progress | None = None,
) -> Result:
    """Simulate a scenario: collectives, training steps or traffic.

    Args:
        scenario: A file, a mapping or a `Scenario`.
        sets: Overrides, such as `{"schedule.policy": "themis"}` or `["schedule.chunks=8"]`.
        plan: Of collectives: run this plan, or the one in this file, instead of planning; in its
            own order unless the scenario names one.
        timeline: Whether the result holds what happened when, of collectives every stage's times;
            a number: if there are so many slices at most. Traffic has none.
        cache: Whether plans that are expensive to make are kept on disk.
        progress: Told how far it is, in long runs.

    Returns:
        A `CollectivesResult`, `TrainingResult` or `TrafficResult`; times are µs.

    Raises:
        InputError: Something in the scenario or the plan is wrong.
    """
    loaded = load_scenario(scenario, sets=sets)
    given = Plan.load(plan) if isinstance(plan, (str, os.PathLike)) else plan
    if given is not None:
        needs("collective", loaded)
        if "order" not in loaded.schedule.model_fields_set:
            loaded = load_scenario(loaded, sets={"schedule.order": "planned"})
    kept = None
    planning_ms = 0.0
    plans = kind_of(loaded) == "collective"
    try:
        if plans and given is None and cache and is_cached(loaded):
            started = time.perf_counter()
            kept = plan_for(loaded, progress=progress)
            planning_ms = (time.perf_counter() - started) * 1e3
        elif given is not None:
            _check(given, loaded)
        chosen = given or kept
        text = chosen.text if chosen is not None else None
        tree = json.loads(
            _core.simulate(loaded.to_json(), text, bool(timeline), progress, most(timeline))
        )
    except _core.InputError as error:
        raise from_core(error, places=loaded._places) from None
    if kept is not None:
        tree["host"]["planning_ms"] = planning_ms
        tree["host"]["wall_ms"] += planning_ms
    if plans:
        tree["host"]["plan_cached"] = kept is not None and kept.cached
    return result_of(loaded, of_fabric(tree, loaded, progress))


@checked
def simulate_many(
    scenarios: Iterable[ScenarioLike],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Simulate many scenarios, of one kind or several, at once on all cores.

    Args:
        scenarios: Files, mappings or `Scenario`s.
        threads: How many cores to use; all if None.
        progress: Told how many are done.

    Returns:
        The results in the same order, without timelines; they do not depend on `threads`.

    Raises:
        InputError: Something is wrong in one of them; its `index` says in which.
    """
    # Without `keep_errors` the first mistake is raised.
    return cast("list[Result]", run_many(scenarios, threads=threads, progress=progress))


@checked
def plan(
    scenario: ScenarioLike,
    *,
    sets: Sets = (),
    cache: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """Plan a scenario of collectives without simulating it.

    Args:
        scenario: A file, a mapping or a `Scenario`.
        sets: Overrides.
        cache: Whether plans that are expensive to make are kept on disk.
        progress: Told how far it is, in long searches.

    Returns:
        The plan, one `CollectivePlan` per collective.

    Raises:
        InputError: Something in the scenario is wrong.
    """
    loaded = needs("collective", load_scenario(scenario, sets=sets))
    try:
        return plan_for(loaded, cache=cache, progress=progress)
    except _core.InputError as error:
        raise from_core(error, places=loaded._places) from None


@checked
def advise(fabric: str | Fabric | GraphFabric | os.PathLike[str]) -> dict[str, Any]:
    """Say which dimensions of a fabric have too much or too little bandwidth (Themis, §6.3).

    Args:
        fabric: A preset's name, a file, a `Fabric` or a `GraphFabric` that has dimensions.

    Returns:
        `pairs`, `baseline`, `reachable` and `best_split`; bandwidths are Gb/s per NPU.

    Raises:
        InputError: It is not a fabric, or not one of dimensions.
    """
    named = (
        fabric if isinstance(fabric, (Fabric, GraphFabric)) else load_any_fabric(os.fspath(fabric))
    )
    loaded = dimensions_of(named)
    try:
        advice: dict[str, Any] = json.loads(_core.advise(loaded.model_dump_json()))
    except _core.InputError as error:
        from allrail.scenario.places import Place, Places

        raise from_core(error, places=Places({(): Place(loaded.name)})) from None
    return advice


def _check(plan: Plan, scenario: Scenario) -> None:
    try:
        _core.check_plan(plan.text, scenario.to_json())
    except _core.InputError as error:
        raise plan.explain(error) from None
