"""The verbs: `simulate`, `simulate_many`, `plan`.

    result = allrail.simulate("scenario.yaml", sets={"schedule.policy": "themis"})
    result.time_us, result.utilisation

They take scenarios of every kind: collectives, training steps, traffic. Every predicted number
comes from the network model that the scenario names (`result.network_model`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from allrail import _core
from allrail.base import late
from allrail.base.arguments import Names, PathLike, checked, several
from allrail.base.errors import AllrailWarning, InputError, show
from allrail.base.progress import Progress
from allrail.formats.astra_options import OPTIONS as ASTRA_OPTIONS
from allrail.formats.astra_options import given_of, refuse
from allrail.results.answer import MAX_SLICES
from allrail.results.plans import Plan, plan_for
from allrail.results.result import Result
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.explain import from_core
from allrail.scenario.overrides import Sets
from allrail.simulation.assumptions import what_if as assumed
from allrail.simulation.kinds import kind_of, needs
from allrail.simulation.many import run_many
from allrail.simulation.one import simulate_one

if TYPE_CHECKING:
    from allrail.formats.astra_sim import AstraCase
    from allrail.results.training_result import TrainingResult


@checked
def simulate(
    scenario: ScenarioLike | None = None,
    *,
    sets: Sets = (),
    network_model: str | None = None,
    plan: Plan | str | os.PathLike[str] | None = None,
    timeline: bool | int = False,
    cache: bool = True,
    what_if: Names = (),
    astra_sim: bool = False,
    network: PathLike | None = None,
    system: PathLike | None = None,
    workload: PathLike | None = None,
    comm_group: PathLike | None = None,
    remote_memory: PathLike | None = None,
    comm_scale: float | None = None,
    compute_scale: float | None = None,
    num_passes: int | None = None,
    write_scenario: PathLike | None = None,
    out: PathLike | None = None,
    progress: Progress | None = None,
) -> Result:
    """Simulate a scenario: collectives, training steps or traffic.

    Args:
        scenario: A file, a mapping or a `Scenario`.
        sets: Overrides, such as `{"schedule.policy": "themis"}` or `["schedule.chunks=8"]`.
        network_model: Network model, such as `links`; the scenario's own if None.
        plan: Of collectives: run this plan, or the one in this file, instead of planning; in its
            own order unless the scenario names one.
        timeline: Whether the result holds what happened when, of collectives every stage's times;
            a number: if there are so many slices at most. Traffic has none.
        cache: Whether plans that are expensive to make are kept on disk.
        what_if: Of a workload, assumptions under which the step is simulated, too:
            `infinite_bandwidth`, `ideal_schedule`, `dim1_x2`, `no_straggler` or `all`.
        astra_sim: Whether a case of ASTRA-sim's files is simulated instead of a scenario.
        network: ASTRA-sim's network (.json, .yml).
        system: ASTRA-sim's system (.txt, .json).
        workload: ASTRA-sim's workload (.txt), or its trace: the path without `.<rank>.et`.
        comm_group: Process groups of ASTRA-sim's trace.
        remote_memory: ASTRA-sim's remote memory, which is not modelled.
        comm_scale: Multiplies ASTRA-sim's sizes.
        compute_scale: Multiplies ASTRA-sim's compute times.
        num_passes: How often ASTRA-sim's workload is repeated.
        write_scenario: File that takes the case as a scenario.
        out: Folder for result, tables, pictures, trace and report.
        progress: Called with what is done and the total, in long runs.

    Returns:
        A `CollectivesResult`, `TrainingResult` or `TrafficResult`; times are µs.

    Raises:
        InputError: Something in the scenario or the plan is wrong.

    Warns:
        AllrailWarning: ASTRA-sim's files ask for what is not modelled.

    Example:
        `allrail.simulate("scenario.yaml", sets={"schedule.policy": "themis"}).time_us`
    """
    given = locals()
    files = given_of(**{name: given[name] for name in ASTRA_OPTIONS})
    case = _case(files, scenario, network_model) if astra_sim else None
    if case is None:
        refuse(files | given_of(write_scenario=write_scenario), verb="allrail simulate")
    else:
        scenario, network_model = case.scenario, None
    loaded = _loaded(scenario, sets, network_model)
    names = _what_ifs(loaded, what_if, plan)
    timeline = timeline or (MAX_SLICES if out is not None else False)
    plan = Plan.load(plan) if isinstance(plan, (str, os.PathLike)) else plan
    result = simulate_one(loaded, plan=plan, timeline=timeline, cache=cache, progress=progress)
    if names:
        result = _assumed(cast("TrainingResult", result), names, progress)
    if case is not None:
        result = late.call("result of a case of ASTRA-sim", result, case, write_scenario)
    if out is not None:
        result.write(out)
    return result


def _loaded(scenario: ScenarioLike | None, sets: Sets, network_model: str | None) -> Scenario:
    if scenario is None:
        raise InputError(
            "the scenario's file is missing",
            hint="for example `allrail simulate FILE`; `-` is stdin",
            source="allrail simulate",
        )
    if network_model is None:
        return load_scenario(scenario, sets=sets)
    if isinstance(sets, Mapping):
        return load_scenario(scenario, sets={**sets, "network_model": network_model})
    return load_scenario(scenario, sets=[*sets, f"network_model={network_model}"])


def _case(
    given: dict[str, Any], scenario: ScenarioLike | None, network_model: str | None
) -> AstraCase:
    if scenario is not None:
        raise InputError(
            "either a scenario or `--astra-sim`, not both",
            hint="leave the file out",
            source="allrail simulate",
            value=show(scenario) if isinstance(scenario, str) else str(scenario)[:80],
        )
    case: AstraCase = late.call(
        "case of ASTRA-sim", given, network_model, verb="allrail simulate --astra-sim"
    )
    if case.warning:
        warnings.warn(case.warning, AllrailWarning, stacklevel=4)
    return case


def _assumed(
    result: TrainingResult, names: Iterable[str], progress: Progress | None
) -> TrainingResult:
    rows = tuple(assumed(result.scenario, names, result=result, progress=progress))
    raw = {**result.raw, "what_ifs": [row.to_dict() for row in rows]}
    return replace(result, what_ifs=rows, raw=raw)


def _what_ifs(scenario: Scenario, what_if: Names, plan: Any) -> Sequence[str]:
    """The assumptions by name; refuses those, and a plan, that the scenario's job cannot have."""
    kind = kind_of(scenario)
    if plan is not None and kind != "collective":
        if kind == "workload":
            why = "a workload plans every collective of the step itself"
        else:
            why = "traffic has no plan"
        raise InputError(
            why,
            hint="leave it out, or simulate a `collective`",
            source="--plan",
            value=plan.source if isinstance(plan, Plan) else str(plan),
        )
    names = several(what_if)
    if names and kind != "workload":
        raise InputError(
            "only a `workload` has what-ifs",
            hint="leave it out, or simulate a `workload`",
            source="--what-if",
            value=names[0],
        )
    return names


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
