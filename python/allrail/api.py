"""The verbs: `simulate`, `simulate_many`, `plan`, `compare`, `advise`.

    result = allrail.simulate("scenario.yaml", sets={"schedule.policy": "themis"})
    result.time_us, result.utilisation

Every predicted number comes from the world that the scenario names (`result.world`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from allrail import _core
from allrail.arguments import checked
from allrail.compared import speedup
from allrail.errors import InputError
from allrail.many import FailedRow, Progress, most, of_fabric, run_many
from allrail.plans import Plan, is_cached, plan_for
from allrail.plugins import registered
from allrail.result import Result
from allrail.scenario import (
    Fabric,
    GraphFabric,
    Scenario,
    ScenarioLike,
    load_any_fabric,
    load_scenario,
)
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.explain import at_place, from_core
from allrail.scenario.overrides import Sets


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
    """Simulate a scenario.

    Args:
        scenario: A file, a mapping or a `Scenario`.
        sets: Overrides, such as `{"schedule.policy": "themis"}` or `["schedule.chunks=8"]`.
        plan: Run this plan, or the one in this file, instead of planning; in its own order unless
            the scenario names one.
        timeline: Whether the result holds every stage's times; a number: if so many at most.
        cache: Whether plans that are expensive to make are kept on disk.
        progress: Told how far it is, in long runs.

    Returns:
        The result; its times are µs.

    Raises:
        InputError: Something in the scenario or the plan is wrong.
    """
    loaded = _of_collectives(load_scenario(scenario, sets=sets))
    given = Plan.load(plan) if isinstance(plan, (str, os.PathLike)) else plan
    if given is not None and "order" not in loaded.schedule.model_fields_set:
        loaded = load_scenario(loaded, sets={"schedule.order": "planned"})
    kept = None
    planning_ms = 0.0
    try:
        if given is None and cache and is_cached(loaded):
            started = time.perf_counter()
            kept = plan_for(loaded)
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
    tree["host"]["plan_cached"] = kept is not None and kept.cached
    return Result.from_dict(of_fabric(tree, loaded))


@checked
def simulate_many(
    scenarios: Iterable[ScenarioLike],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Simulate many scenarios at once, on all cores.

    Args:
        scenarios: Files, mappings or `Scenario`s.
        threads: How many cores to use; all if None.
        progress: Told how many are done.

    Returns:
        The results in the same order, without timelines; they do not depend on `threads`.

    Raises:
        InputError: Something is wrong in one of them; its `index` says in which.
    """
    trees = run_many(
        scenarios,
        check=_of_collectives,
        threads=threads,
        progress=progress,
    )
    return [Result.from_dict(tree) for tree in trees]


@checked
def plan(
    scenario: ScenarioLike,
    *,
    sets: Sets = (),
    cache: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """Plan a scenario without simulating it.

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
    loaded = _of_collectives(load_scenario(scenario, sets=sets))
    try:
        return plan_for(loaded, cache=cache, progress=progress)
    except _core.InputError as error:
        raise from_core(error, places=loaded._places) from None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison.

    Attributes:
        label: What differs from the other rows, such as `themis`.
        sets: The overrides that made it.
        scenario: What was simulated.
        result: What came out.
        speedup: Its bytes of collectives a second over those of the first row.
    """

    label: str
    sets: dict[str, object]
    scenario: Scenario
    result: Result
    speedup: float


DEFAULT_POLICIES = ("baseline", "themis", "search")


@checked
def compare(
    scenario: ScenarioLike,
    *,
    each: Mapping[str, Sequence[object]] | None = None,
    sets: Sets = (),
    timeline: bool | int = False,
    cache: bool = True,
    progress: Progress | None = None,
    failed: list[FailedRow] | None = None,
) -> list[Row]:
    """Simulate variants of a scenario side by side.

    Args:
        scenario: A file, a mapping or a `Scenario`.
        each: Values to go through by path, such as `{"fabric": ["today", "dgx2"]}`; several paths
            give every combination. The three policies, and those that were registered, if left
            out.
        sets: Overrides for all of them.
        timeline: Whether the results hold every stage's times; a number: if so many at most each.
        cache: Whether plans that are expensive to make are kept on disk.
        progress: Told how many are done.
        failed: Takes the variants that are wrong, and the others run; if left out, the first of
            them is raised.

    Returns:
        One row a variant; speed-ups are against the first.

    Raises:
        InputError: Something in one of them is wrong.
    """
    axes = each or {"schedule.policy": (*DEFAULT_POLICIES, *registered("chunk scheduler"))}
    variants = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    base = _of_collectives(load_scenario(scenario, sets=sets))
    rows: list[Row] = []
    for done, variant in enumerate(variants):
        if progress is not None:
            progress(done, len(variants))
        label = " ".join(str(value) for value in variant.values())
        try:
            loaded = load_scenario(base, sets=variant)
            result = simulate(loaded, timeline=timeline, cache=cache)
        except InputError as error:
            if failed is None:
                raise
            failed.append(FailedRow(label, variant, error))
            continue
        first = rows[0].result if rows else result
        rows.append(Row(label, variant, loaded, result, speedup(result, first)))
    if progress is not None:
        progress(len(variants), len(variants))
    return rows


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


def _of_collectives(scenario: Scenario) -> Scenario:
    """Return a scenario that has collectives; refuse one that has traffic or a workload."""
    if scenario.workload is not None:
        raise at_place(
            InputError(
                "it has a workload, whose collectives are planned as the step goes",
                hint="`allrail simulate` and `allrail.simulate_training` take it",
                field="workload",
                value=scenario.workload.title,
            ),
            scenario._places,
        )
    if scenario.traffic is not None:
        raise at_place(
            InputError(
                "it has traffic, which is neither planned nor a collective",
                hint="`allrail simulate` and `allrail.simulate_traffic` take it",
                field="traffic",
                value=scenario.traffic.pattern,
            ),
            scenario._places,
        )
    return scenario


def _check(plan: Plan, scenario: Scenario) -> None:
    try:
        _core.check_plan(plan.text, scenario.to_json())
    except _core.InputError as error:
        raise plan.explain(error) from None
