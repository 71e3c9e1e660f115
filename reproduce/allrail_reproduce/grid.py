"""The Themis paper's grid: six platforms of 1,024 NPUs, four sizes, four schedules."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from allrail import _core
from allrail.results.plans import plan_for
from allrail.results.result import CollectivesResult
from allrail.scenario import Scenario, load_scenario

PLATFORMS = (
    "2D-SW_SW",
    "3D-SW_SW_SW_homo",
    "3D-SW_SW_SW_hetero",
    "3D-FC_Ring_SW",
    "4D-Ring_SW_SW_SW",
    "4D-Ring_FC_Ring_SW",
)
SIZES = ("100 MB", "250 MB", "500 MB", "1000 MB")
CHUNKS = 64
SPREAD = 0.1
"""By how much of itself a perturbed bandwidth or latency differs at most."""

BASELINE, FIFO, SCF, SEARCH = "baseline", "themis+FIFO", "themis+SCF", "search"
SCHEDULES = {
    BASELINE: {"policy": "baseline", "order": "fifo"},
    FIFO: {"policy": "themis", "order": "fifo"},
    SCF: {"policy": "themis", "order": "smallest_first"},
    SEARCH: {"policy": "search", "order": "planned"},
}
"""The names under which results stand in tables, and the schedules that they mean."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A platform and the size of its all-reduce."""

    platform: str
    size: str

    def scenario(
        self,
        schedule: str,
        *,
        chunks: int = CHUNKS,
        active_chunks: int | str | None = None,
        network_model: str = "dims",
    ) -> Scenario:
        """The cell under one schedule.

        Args:
            schedule: A name of `SCHEDULES`.
            chunks: How many parts the collective is cut into.
            active_chunks: How many stages a dimension runs at once, or `fill`; None for no limit.
            network_model: Where it runs.
        """
        return load_scenario(
            {
                "schema_version": 1,
                "fabric": self.platform,
                "collective": {"kind": "all_reduce", "size": self.size},
                "schedule": {
                    **SCHEDULES[schedule],
                    "chunks": chunks,
                    "active_chunks": active_chunks,
                },
                "network_model": network_model,
            }
        )


CELLS = tuple(Cell(platform, size) for platform in PLATFORMS for size in SIZES)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean.

    Args:
        values: One at least.
    """
    return sum(values) / len(values)


def perturbed(tree: dict[str, Any], *, seed: int) -> dict[str, Any]:
    """A scenario whose bandwidths and latencies differ from the plan's by up to `SPREAD`.

    Every dimension draws a factor for its bandwidth and one for its latency.

    Args:
        tree: A resolved scenario.
        seed: Of the draws.
    """
    draws = random.Random(seed)  # noqa: S311, nothing secret
    copy: dict[str, Any] = json.loads(json.dumps(tree))
    for dimension in copy["fabric"]["dimensions"]:
        for key, kind, unit in (("bandwidth", "bandwidth", "B/s"), ("latency", "time", "ps")):
            nominal = _core.parse_quantity(kind, dimension[key])  # type: ignore[arg-type]
            factor = draws.uniform(1 - SPREAD, 1 + SPREAD)
            dimension[key] = f"{max(1, round(nominal * factor))} {unit}"
    copy["schedule"]["accept_plan"] = "same_shape"
    return copy


def run_plan(tree: dict[str, Any], *, plan: str) -> CollectivesResult:
    """Run a plan that was made for a fabric of the same shape.

    Args:
        tree: A resolved scenario.
        plan: The plan file's text.
    """
    told = json.loads(_core.simulate(json.dumps(tree), plan))
    return CollectivesResult.from_dict({**told, "calibrated": False})


def nominal_plan(scenario: Scenario, *, cache: bool) -> str:
    """The plan for the fabric as it is on paper.

    Args:
        scenario: What to plan.
        cache: Whether plans are kept on disk.
    """
    return plan_for(scenario, cache=cache).text
