"""Many scenarios at once: read them all, hand them to the core, say in which one a mistake is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from allrail import _core
from allrail.errors import InputError
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.explain import from_core
from allrail.scenario.places import parse_path, show_path

Progress = Callable[[int, int], None]
"""Called now and then with how much is done and how much there is."""


def run_many(
    scenarios: Iterable[ScenarioLike],
    *,
    check: Callable[[Scenario], Scenario],
    run: Callable[[list[str], int | None, Progress | None], list[str]],
    threads: int | None,
    progress: Progress | None,
) -> list[Any]:
    """Run scenarios in the core, on several cores.

    Args:
        scenarios: Files, mappings or `Scenario`s.
        check: Refuses a scenario that `run` does not take.
        run: One of the core's functions of many scenarios.
        threads: How many cores to use; all if None.
        progress: Told how many are done.

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
    try:
        texts = run([one.to_json() for one in loaded], threads, progress)
    except _core.InputError as error:
        index, told = _of_one(error)
        raise from_core(told, places=loaded[index]._places, index=index) from None
    return [json.loads(text) for text in texts]


def _of_one(error: _core.InputError) -> tuple[int, _core.InputError]:
    """Split `scenarios[3].seed` into which scenario it was and its own error."""
    told = json.loads(str(error.args[0]))
    path = parse_path(told["field"].rstrip(".")) or ("scenarios", 0)
    told["field"] = show_path(path[2:])
    return int(path[1]), _core.InputError(json.dumps(told))
