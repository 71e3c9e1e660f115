"""The kinds of job that a scenario may have, and what is particular to each.

A kind is named by the key that holds the job: `collective`, `workload` or `traffic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from allrail.base.errors import InputError
from allrail.results.result import CollectivesResult, Result
from allrail.results.traffic_result import TrafficResult
from allrail.results.training_result import TrainingResult
from allrail.scenario import Scenario
from allrail.scenario.explain import at_place
from allrail.simulation.plugins import registered

Kind = Literal["collective", "workload", "traffic"]
RESULTS: Mapping[Kind, type[CollectivesResult | TrainingResult | TrafficResult]] = {
    "collective": CollectivesResult,
    "workload": TrainingResult,
    "traffic": TrafficResult,
}
NAMES: Mapping[Kind, str] = {
    "collective": "collectives",
    "workload": "a workload",
    "traffic": "traffic",
}
"""As sentences have them."""
HINTS: Mapping[Kind, str] = {
    "collective": "name them under `collective`",
    "workload": "say what is trained under `workload`",
    "traffic": "say what is sent under `traffic`",
}
"""How to have it."""
DEFAULT_POLICIES = ("baseline", "themis", "search")


def kind_of(scenario: Scenario) -> Kind:
    """Return the kind of a scenario's job.

    Args:
        scenario: Any.
    """
    if scenario.workload is not None:
        return "workload"
    return "collective" if scenario.traffic is None else "traffic"


def result_of(scenario: Scenario, tree: Mapping[str, Any]) -> Result:
    """Return what a simulation came to.

    Args:
        scenario: What was simulated.
        tree: Its JSON object.
    """
    return replace(RESULTS[kind_of(scenario)].from_dict(tree), scenario=scenario)


def needs(kind: Kind, scenario: Scenario) -> Scenario:
    """Return a scenario whose job is of a kind.

    Args:
        kind: The one that is needed.
        scenario: Any.

    Raises:
        InputError: It is of another.
    """
    has = kind_of(scenario)
    if has == kind:
        return scenario
    jobs = {
        "collective": ", ".join(one.kind for one in scenario.collective),
        "workload": "" if scenario.workload is None else scenario.workload.title,
        "traffic": "" if scenario.traffic is None else scenario.traffic.pattern,
    }
    verb = "are" if kind == "collective" else "is"
    raise at_place(
        InputError(
            f"the scenario has {NAMES[has]}, and {NAMES[kind]} {verb} needed here",
            hint=f"{HINTS[kind]}; `allrail simulate` takes what it has",
            field=has,
            value=jobs[has],
        ),
        scenario._places,
    )


def default_axes(kind: Kind) -> dict[str, Sequence[object]]:
    """Return what is compared where nothing is named.

    Args:
        kind: Of what is compared.

    Raises:
        InputError: Traffic has no schedulers that could be compared.
    """
    if kind == "traffic":
        raise InputError(
            "traffic has no schedulers to compare",
            hint='say what differs: `each={"traffic.paths": ["ideal", "ecmp"]}`',
            field="each",
        )
    chunk, tensor = registered("chunk scheduler"), registered("tensor scheduler")
    if kind == "collective":
        return {"schedule.policy": (*DEFAULT_POLICIES, *chunk)}
    axes: dict[str, Sequence[object]] = {}
    if chunk or not tensor:
        axes["schedule.policy"] = ("baseline", "themis", *chunk)
    if tensor:
        axes["schedule.tensor"] = ("fifo", "bytescheduler", *tensor)
    return axes
