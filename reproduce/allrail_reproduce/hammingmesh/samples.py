"""The error of a sample of shift phases that overlap, from independent smaller samples.

Where phases run one after the other each has a time, and the error of their mean is known from the
sample itself. Where they overlap there is no time of a phase: four further samples, of a quarter of
the phases each and with other seeds, say how far a share varies with what was drawn:

    error of n phases = deviation of the four shares / their mean / 2 * sqrt(1 - n / N)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allrail_reproduce.hammingmesh.cases import TrafficCase

BATCHES = 4


def cases_of(case: TrafficCase) -> list[TrafficCase]:
    """Return the further samples of an all-to-all whose phases overlap; none if it has all phases.

    Args:
        case: What is sampled.
    """
    if case.phases is None or case.phases < BATCHES or not case.phases_overlap:
        return []
    part = case.phases // BATCHES
    return [replace(case, phases=part, seed=seed) for seed in range(1, BATCHES + 1)]


def error(case: TrafficCase, results: Mapping[TrafficCase, Mapping[str, Any]]) -> float | None:
    """Return the standard error of a sample's share, as a part of it; None where nothing says it.

    Args:
        case: What is sampled.
        results: Of it and of its further samples.
    """
    further = [results[one] for one in cases_of(case) if one in results]
    if len(further) < BATCHES:
        return None
    shares = [float(one["share_of_injection"]) for one in further]
    left = 1 - results[case]["phases_simulated"] / results[case]["phases"]
    spread = statistics.stdev(shares) / statistics.fmean(shares)
    return spread / math.sqrt(BATCHES) * math.sqrt(left)
