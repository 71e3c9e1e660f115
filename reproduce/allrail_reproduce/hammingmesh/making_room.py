"""HammingMesh's claim about defragmentation: jobs that move make room for another within a second.

A board holds 64 GiB for each of its NPUs and sends it through all links at its edges; moves whose
new boards are free go at once, the others in rounds after them. A mix is placed in the order of
arrival, and each job that found no boards makes others move. What is printed is the time of all
moves of a mix, over the mixes in which something moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allrail_reproduce.hammingmesh import gaps
from allrail_reproduce.hammingmesh.allocation import (
    ARRIVAL,
    COUNT,
    MIXES,
    PlaceCase,
    made,
    meshes,
)
from allrail_reproduce.hammingmesh.published import HX2, HX4, PLACEMENT, Published, Size
from allrail_reproduce.published import less_than
from allrail_reproduce.rows import Cells, Detail, Row

MEMORY = {HX2: "256 GiB", HX4: "1024 GiB"}
"""Of a board: 64 GiB for each NPU."""
MOST = less_than(1.0, PLACEMENT)
QUANTILES = (("median", 0.5), ("99th percentile", 0.99), ("longest", 1.0))


def cases_of(sizes: Sequence[Size]) -> list[PlaceCase]:
    """Return everything that is placed.

    Args:
        sizes: The halves of Table II.
    """
    return [
        PlaceCase(cluster, mix, ARRIVAL, memory=MEMORY[cluster.name])
        for cluster in meshes(sizes)
        for mix in MIXES[:2]
    ]


@dataclass(frozen=True)
class MakingRoom:
    """The claim from what was placed.

    Attributes:
        results: By case.
    """

    results: Mapping[PlaceCase, Mapping[str, Any]]

    def rows(self) -> list[Row]:
        """How long moving takes on every mesh."""
        return [row for case in self.results for row in self._of(case)]

    def _of(self, case: PlaceCase) -> list[Row]:
        seconds = self._seconds(case)
        if not seconds:
            return []
        moved = [mix["moved"] for mix in self.results[case]["mixes"]]
        placed = sum(one["jobs_placed"] for one in moved)
        told = (
            f"{len(seconds)} of {COUNT[case.cluster.size]} mixes, in which moving placed {placed} "
            f"jobs; {case.options}, {case.memory} a board"
        )
        return [
            Row(
                f"{_label(case.cluster, case.mix)}, moving jobs, {name}",
                _quantile(seconds, part),
                MOST,
                "s",
                within=0.0,
                how=told,
                why=gaps.ROUNDS,
                made=made(case.mix),
            )
            for name, part in QUANTILES
        ]

    def _seconds(self, case: PlaceCase) -> list[float]:
        """Of every mix in which something moved, ascending."""
        mixes = (mix["moved"] for mix in self.results[case]["mixes"])
        return sorted(one["time_ps"] / 1e12 for one in mixes if one["jobs_moved"])

    def details(self) -> list[Detail]:
        """The distribution: every time with how many mixes took it."""
        rows: list[Cells] = []
        for case in self.results:
            seconds = self._seconds(case)
            rows += [
                (case.cluster.label, case.mix, one, seconds.count(one))
                for one in dict.fromkeys(seconds)
            ]
        return [Detail("defragmentation", ("cluster", "mix", "moving_s", "mixes"), rows)]


def _label(cluster: Published, mix: str) -> str:
    return f"{cluster.label}, {mix}"


def _quantile(ascending: Sequence[float], part: float) -> float:
    """By linear interpolation."""
    at = part * (len(ascending) - 1)
    low, high = ascending[int(at)], ascending[min(int(at) + 1, len(ascending) - 1)]
    return low + (high - low) * (at - int(at))
