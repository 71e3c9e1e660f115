"""One point: simulate a scenario with some fields changed, and keep the numbers of its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.results.columns import COLLECTIVES, TRAFFIC, TRAINING, rates
from allrail.results.training_result import TrainingResult
from allrail.scenario import GraphFabric, Scenario, load_scenario
from allrail.simulation.api import simulate

if TYPE_CHECKING:
    from allrail.base.progress import Progress

_COST = {"cost_usd": "Float64"}


def columns(scenario: Scenario) -> dict[str, str]:
    """Return the results' names and their types in polars.

    Args:
        scenario: What every point changes.
    """
    if scenario.workload is not None:
        return {**TRAINING, "memory_fits": "Boolean", **_COST}
    if scenario.traffic is not None:
        return {**TRAFFIC, **_COST}
    return {**COLLECTIVES, **_COST}


def evaluate(
    base: Scenario, sets: Mapping[str, Any], progress: Progress | None = None
) -> dict[str, Any]:
    """Simulate one point.

    Args:
        base: What it changes.
        sets: Values by path.
        progress: Told how far it is.

    Returns:
        The columns of its results.

    Raises:
        InputError: Something in it is wrong.
    """
    loaded = load_scenario(base, sets=sets)
    row = _simulated(loaded, progress)
    row["cost_usd"] = None
    if isinstance(loaded.fabric, GraphFabric):
        row["cost_usd"] = _price(loaded.fabric.model_dump_json())
    return {name: row.get(name) for name in columns(base)}


def outcome(
    base: Scenario, sets: Mapping[str, Any], progress: Progress | None = None
) -> dict[str, Any]:
    """Simulate one point; whatever goes wrong is its `error`.

    Args:
        base: What it changes.
        sets: Values by path.
        progress: Told how far it is.
    """
    try:
        return {"row": evaluate(base, sets, progress)}
    except InputError as error:
        return {"error": error.message + (f"; {error.hint}" if error.hint else "")}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001, a panic of the core is no Exception
        return {"error": f"{type(error).__name__}: {error}"}


def _simulated(loaded: Scenario, progress: Progress | None) -> dict[str, Any]:
    result = simulate(loaded, progress=progress)
    if isinstance(result, TrainingResult):
        return _training(result, loaded)
    return dict(result.raw)


def _training(result: TrainingResult, scenario: Scenario) -> dict[str, Any]:
    row = dict(result.raw) | rates(result)
    row["memory_fits"] = None if result.memory is None else result.memory.fits
    row["workload"] = scenario.workload.title if scenario.workload is not None else None
    row["fabric"] = scenario.fabric.name
    row["what_if"] = None if scenario.what_if is None else str(scenario.what_if)
    return row


@lru_cache(maxsize=256)
def _price(fabric: str) -> float | None:
    """The price of a fabric, counted once a worker: a topology has many parts."""
    cost: float | None = json.loads(_core.graph_count(fabric)).get("cost_usd")
    return cost
