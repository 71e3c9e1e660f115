"""Many scenarios at once: read them all, hand them to the core, say in which one a mistake is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.results.accuracy import known_of
from allrail.results.result import Result
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.explain import from_core
from allrail.scenario.fabric import Fabric
from allrail.simulation.kinds import result_of


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A variant of a comparison that cannot be simulated.

    Attributes:
        label: What differs from the other rows.
        sets: The overrides that made it.
        error: What is wrong with it.
    """

    label: str
    sets: dict[str, object]
    error: InputError


def most(timeline: bool | int) -> int | None:  # noqa: FBT001
    """Return how many slices a timeline may have: as many as there are, unless a number is given.

    Args:
        timeline: Whether it is asked for, or up to how many slices.
    """
    return None if isinstance(timeline, bool) else timeline


def of_fabric(
    tree: dict[str, Any], scenario: Scenario, progress: Progress | None = None
) -> dict[str, Any]:
    """Return a result with what no core knows: whether its fabric was measured, and how well.

    Args:
        tree: The core's result.
        scenario: What was simulated.
        progress: Told how far others are that say how well.
    """
    beside = [one.to_json() for one in _beside(scenario)]
    return _told(tree, scenario, _core.simulate_many(beside, None, progress) if beside else [])


def _beside(scenario: Scenario) -> list[Scenario]:
    """The same on the fabric as slow and as fast as its error lets it be."""
    fabric = scenario.fabric
    if not isinstance(fabric, Fabric) or fabric.error is None:
        return []
    return [
        scenario.model_copy(update={"fabric": fabric.slower(factor)})
        for factor in (1 + fabric.error, 1 / (1 + fabric.error))
    ]


def _told(tree: dict[str, Any], scenario: Scenario, beside: Sequence[str]) -> dict[str, Any]:
    told = {**tree, "calibrated": scenario.fabric.calibrated}
    others = [json.loads(text) for text in beside]
    if others and not any("error" in one for one in others):
        time = "step_time_us" if "step_time_us" in tree else "time_us"
        # A greedy schedule may be faster on a slower fabric, so the three are put in order.
        times = [one[time] for one in (tree, *others)]
        told |= {"error_low_us": min(times), "error_high_us": max(times)}
    if "step_time_us" in told:
        known = known_of(
            scenario,
            step=told["step_time_us"],
            exposed=told["exposed_communication_us"],
            low=told.get("error_low_us"),
            high=told.get("error_high_us"),
        )
        told["known_error"] = known.tree()
    return told


def run_many(
    scenarios: Iterable[ScenarioLike],
    *,
    threads: int | None,
    progress: Progress | None,
    keep_errors: bool = False,
) -> list[Result | InputError]:
    """Run scenarios in the core, on several cores.

    Args:
        scenarios: Files, mappings or `Scenario`s.
        threads: How many cores to use; all if None.
        progress: Told how many are done.
        keep_errors: Whether the `InputError` of a scenario stands in its place, and the others run.

    Returns:
        The results, in the same order.

    Raises:
        InputError: Something is wrong in one of them; its `index` says in which.
    """
    loaded = []
    for index, scenario in enumerate(scenarios):
        try:
            loaded.append(load_scenario(scenario))
        except InputError as error:
            error.index = index
            raise
    beside = [_beside(one) for one in loaded]
    everything = [*loaded, *chain.from_iterable(beside)]
    texts = _core.simulate_many([one.to_json() for one in everything], threads, progress)
    results: list[Result | InputError] = []
    at = len(loaded)
    for index, text in enumerate(texts[:at]):
        mine, at = texts[at : at + len(beside[index])], at + len(beside[index])
        tree = of_core(text, loaded[index], index=None if keep_errors else index)
        if isinstance(tree, InputError):
            if not keep_errors:
                raise tree
            results.append(tree)
        else:
            results.append(result_of(loaded[index], _told(tree, loaded[index], mine)))
    return results


def of_core(
    text: str, scenario: Scenario, *, index: int | None = None
) -> dict[str, Any] | InputError:
    """Return one of the results of many as plain values, or what is wrong with its scenario.

    Args:
        text: The core's JSON.
        scenario: What was simulated, or what that was made of.
        index: Its place among several, which the error names.
    """
    tree: dict[str, Any] = json.loads(text)
    if "error" not in tree:
        return tree
    told = _core.InputError(json.dumps(tree["error"]))
    return from_core(told, places=scenario._places, index=index)
