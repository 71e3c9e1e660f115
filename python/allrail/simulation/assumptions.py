"""What a training step would take under one assumption that is not so: `what_if`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from allrail.base.arguments import check, checked
from allrail.base.errors import InputError, did_you_mean
from allrail.base.progress import Progress
from allrail.results.result import Result
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.model import GRAPH_MODELS
from allrail.scenario.overrides import Sets
from allrail.simulation.kinds import needs
from allrail.simulation.many import run_many
from allrail.simulation.one import simulate_one


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The step under one assumption that is not so.

    Attributes:
        name: The assumption, such as `infinite_bandwidth`.
        result: What came out.
        speedup: The step as it is over this one.
    """

    name: str
    result: Any
    speedup: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as an entry of `what_ifs` in `--json`."""
        one = self.result
        return {
            "name": self.name,
            "step_time_us": one.step_time_us,
            "compute_us": one.compute_us,
            "exposed_communication_us": one.exposed_communication_us,
            "waiting_us": one.waiting_us,
            "speedup": self.speedup,
        }


def what_if_names(scenario: Scenario) -> list[str]:
    """Return the assumptions that can be made of a scenario.

    A topology's cables belong to no one dimension, so in its network models none can be doubled;
    nor are the dimensions of written steps the topology's, so there is no ideal schedule of them.

    Args:
        scenario: One with `workload`.
    """
    cables = scenario.network_model in GRAPH_MODELS
    written = scenario.workload is not None and "steps" in scenario.workload.model
    ideal = [] if cables and written else ["ideal_schedule"]
    count = 0 if cables else len(dimensions_of(scenario.fabric, counted=True).dimensions)
    doubled = [f"dim{number}_x2" for number in range(1, count + 1)]
    return ["infinite_bandwidth", *ideal, *doubled, "no_straggler"]


@checked
def what_if(
    scenario: ScenarioLike,
    names: Iterable[str] = ("all",),
    *,
    sets: Sets = (),
    result: Result | None = None,
    progress: Progress | None = None,
) -> list[WhatIf]:
    """Simulate a scenario under assumptions that are not so: what is there to gain, and where.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        names: `infinite_bandwidth`, `ideal_schedule`, `dim2_x2` (twice the bandwidth of a
            dimension), `no_straggler`, or `all` of them.
        sets: Overrides.
        result: Of the scenario as it is, if it is at hand.
        progress: Told how many are done.

    Raises:
        InputError: There is no such assumption, or something in the scenario is wrong.
    """
    loaded = needs("workload", load_scenario(scenario, sets=sets))
    known = what_if_names(loaded)
    chosen: dict[str, None] = {}
    asked = list(names)
    check("names", asked)
    for name in asked:
        if name != "all" and name not in known:
            raise InputError(
                "there is no such assumption",
                hint=did_you_mean(name, [*known, "all"], others="the assumptions are"),
                source="--what-if",
                value=name,
            )
        chosen |= dict.fromkeys(known if name == "all" else [name])
    base = result or simulate_one(loaded)
    variants = [load_scenario(loaded, sets={"what_if": name}) for name in chosen]
    results = cast("list[Result]", run_many(variants, threads=None, progress=progress))
    return [
        WhatIf(name, one, base.step_time_us / one.step_time_us)
        for name, one in zip(chosen, results, strict=True)
    ]
