"""The kinds of job that a scenario may have, and what is particular to each.

A kind is named by the key that holds the job: `collective`, `workload` or `traffic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from allrail.base import late
from allrail.base.errors import InputError
from allrail.scenario import Scenario
from allrail.scenario.explain import at_place

if TYPE_CHECKING:
    from allrail.results.result import Result

Kind = Literal["collective", "workload", "traffic"]


class _Job(NamedTuple):
    """What is particular to a kind of job: how sentences speak of it."""

    name: str
    needed: str
    hint: str
    shown: Callable[[Any], str]


_JOBS: Mapping[Kind, _Job] = {
    "collective": _Job(
        "collectives",
        "collectives are needed here",
        "name them under `collective`",
        lambda several: ", ".join(one.kind for one in several),
    ),
    "workload": _Job(
        "a workload",
        "a workload is needed here",
        "say what is trained under `workload`",
        lambda workload: workload.title,
    ),
    "traffic": _Job(
        "traffic",
        "traffic is needed here",
        "say what is sent under `traffic`",
        lambda traffic: traffic.pattern,
    ),
}
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
    made = late.found(f"result of {kind_of(scenario)}")
    return replace(made.from_dict(tree), scenario=scenario)  # type: ignore[no-any-return]


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
    raise at_place(
        InputError(
            f"the scenario has {_JOBS[has].name}, and {_JOBS[kind].needed}",
            hint=f"{_JOBS[kind].hint}; `allrail simulate` takes what it has",
            field=has,
            value=_JOBS[has].shown(getattr(scenario, has)),
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
    chunk, tensor = (
        late.call("registered schedulers", kind) for kind in ("chunk scheduler", "tensor scheduler")
    )
    if kind == "collective":
        return {"schedule.policy": (*DEFAULT_POLICIES, *chunk)}
    axes: dict[str, Sequence[object]] = {}
    if chunk or not tensor:
        axes["schedule.policy"] = ("baseline", "themis", *chunk)
    if tensor:
        axes["schedule.tensor"] = ("fifo", "bytescheduler", *tensor)
    return axes
