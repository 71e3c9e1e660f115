"""Many scenarios at once: read them all, hand them to the core, say in which one a mistake is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from allrail import _core
from allrail.errors import InputError
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.explain import from_core


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


Progress = Callable[[int, int], None]
"""Called now and then with how much is done and how much there is."""


def most(timeline: bool | int) -> int | None:  # noqa: FBT001
    """Return how many slices a timeline may have: as many as there are, unless a number is given.

    Args:
        timeline: Whether it is asked for, or up to how many slices.
    """
    return None if isinstance(timeline, bool) else timeline


def of_fabric(tree: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """Return a result that says whether its fabric's numbers were measured, which no core knows.

    Args:
        tree: The core's result.
        scenario: What was simulated.
    """
    return {**tree, "calibrated": scenario.fabric.calibrated}


def run_many(
    scenarios: Iterable[ScenarioLike],
    *,
    check: Callable[[Scenario], Scenario],
    run: Callable[[list[str], int | None, Progress | None], list[str]],
    threads: int | None,
    progress: Progress | None,
    keep_errors: bool = False,
) -> list[Any]:
    """Run scenarios in the core, on several cores.

    Args:
        scenarios: Files, mappings or `Scenario`s.
        check: Refuses a scenario that `run` does not take.
        run: One of the core's functions of many scenarios.
        threads: How many cores to use; all if None.
        progress: Told how many are done.
        keep_errors: Whether the `InputError` of a scenario stands in its place, and the others run.

    Returns:
        The results as plain values, in the same order.

    Raises:
        InputError: Something is wrong in one of them; its `index` says in which.
    """
    loaded = []
    for index, scenario in enumerate(scenarios):
        try:
            loaded.append(check(load_scenario(scenario)))
        except InputError as error:
            error.index = index
            raise
    results: list[Any] = []
    for index, text in enumerate(run([one.to_json() for one in loaded], threads, progress)):
        tree = json.loads(text)
        if "error" in tree:
            told = _core.InputError(json.dumps(tree["error"]))
            place = None if keep_errors else index
            wrong = from_core(told, places=loaded[index]._places, index=place)
            if not keep_errors:
                raise wrong
            tree = wrong
        else:
            tree = of_fabric(tree, loaded[index])
        results.append(tree)
    return results
