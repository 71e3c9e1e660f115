"""HammingMesh's claims about jobs: how much of a mesh they use, and what crosses its upper level.

The paper takes job sizes from a cluster's trace and does not print the distribution. Three of ours
are run; the claims are judged on `alibaba-2020-fractional`, and reported on the others. A mix fills
the mesh exactly before it is placed; with failed boards, the same mixes are placed on what works,
under several seeds: where the median depends on the seed, its range is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from allrail.output.report.placement import boards
from allrail_reproduce.hammingmesh import gaps
from allrail_reproduce.hammingmesh.published import (
    HX2,
    HX4,
    PLACEMENT,
    TABLE_TWO,
    Published,
    Size,
)
from allrail_reproduce.published import COMPUTED, Made, chosen, less_than, more_than, number, span
from allrail_reproduce.published import Published as Value
from allrail_reproduce.rows import Cells, Detail, Picture, Row

MIXES = ("alibaba-2020-fractional", "alibaba-2020", "powers-of-two")
DRAWN_MIX = MIXES[0]

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "transpose": {"transpose": True},
    "transpose, aspect 8": {"transpose": True, "aspect": 8},
    "sort, transpose, aspect 8": {"sort": True, "transpose": True, "aspect": 8},
    "all with locality": {"sort": True, "transpose": True, "aspect": 8, "locality": True},
}
NONE, TRANSPOSE, ARRIVAL, SORTED, LOCAL = OPTIONS

COUNT = {"small": 1000, "large": 100}
"""Mixes that are placed."""

FAILED = (0, 10, 20, 30, 40)
FAILED_LARGE = (25, 50, 100)
SEEDS = 12
"""With failed boards, on small meshes."""
JUMP = 5.0
"""A median that differs by more between seeds, in points, is printed with its range."""
LEAF_BOARDS = 16
"""Boards under a leaf switch, for the upper level's share."""

UNOPTIMISED = number(90.0, PLACEMENT)
TRANSPOSED = span(5.0, 8.0, PLACEMENT)
SORTED_LEAST = more_than(98.0, PLACEMENT)
P99_LEAST = more_than(95.0, PLACEMENT)
FAILED_LEAST = more_than(70.0, PLACEMENT)
LOST_MOST = less_than(10.0, PLACEMENT)
UPPER_MOST = {HX2: (SORTED, 50.0), HX4: (LOCAL, 25.0)}
"""With which options, and how many per cent at most."""

POINTS = 2.0
"""How far a claim may be missed."""

MIX = chosen("distribution of job sizes", by="the claims about sorted mixes and failed boards")
"""`alibaba-2020` is the trace as it is; that of fractional GPUs was chosen."""


@dataclass(frozen=True, slots=True)
class PlaceCase:
    """Many mixes of jobs on one mesh.

    Attributes:
        cluster: Where.
        mix: Whose job sizes.
        options: A name of `OPTIONS`.
        failed: How many boards do not work.
        leaf_boards: Boards under one leaf switch; the mesh's own if 0.
        memory: What a board holds, if jobs move to make room for others.
        seed: Of what is drawn.
    """

    cluster: Published
    mix: str
    options: str
    failed: int = 0
    leaf_boards: int = 0
    memory: str = ""
    seed: int = 0

    @property
    def scenario(self) -> dict[str, Any]:
        """What `allrail.simulation.placement.place` takes, under `place`."""
        place: dict[str, Any] = {"mix": self.mix, "unit": "boards", "seed": self.seed}
        place |= {"count": COUNT[self.cluster.size], **OPTIONS[self.options]}
        if self.failed:
            place["failed"] = self.failed
        if self.leaf_boards:
            place["leaf_boards"] = self.leaf_boards
        if self.memory:
            place["memory"] = self.memory
        return {"fabric": self.cluster.fabric, "place": place}

    @property
    def weight(self) -> float:
        """About how many seconds of a core it takes."""
        return 0.1 if self.cluster.size == "small" else 2.0


Results = Mapping[PlaceCase, Mapping[str, Any]]


def made(mix: str) -> Made:
    """How a number of a distribution came about."""
    return COMPUTED if mix == MIXES[1] else MIX


def meshes(sizes: Sequence[Size]) -> list[Published]:
    """Return the HammingMeshes.

    Args:
        sizes: The halves of Table II.
    """
    return [c for c in TABLE_TWO if c.size in sizes and c.name in (HX2, HX4)]


def _upper(cluster: Published) -> PlaceCase:
    options, _ = UPPER_MOST[cluster.name]
    return PlaceCase(cluster, MIXES[1], options, leaf_boards=LEAF_BOARDS)


def cases_of(sizes: Sequence[Size]) -> list[PlaceCase]:
    """Return everything that is placed.

    Args:
        sizes: The halves of Table II.
    """
    on = meshes(sizes)
    cases = [PlaceCase(c, mix, options) for c in on for mix in MIXES for options in OPTIONS]
    for cluster in on:
        if cluster.size == "small":
            cases += [
                PlaceCase(cluster, mix, options, failed, seed=seed)
                for mix in MIXES[:2]
                for options in (SORTED, ARRIVAL)
                for failed in FAILED
                for seed in range(SEEDS if failed else 1)
            ]
        else:
            cases.append(_upper(cluster))
            cases += [
                PlaceCase(cluster, mix, options, failed)
                for mix in MIXES[:2]
                for options in (SORTED, ARRIVAL)
                for failed in FAILED_LARGE
            ]
    return list(dict.fromkeys(cases))


@dataclass(frozen=True)
class Allocation:
    """The claims from what was placed.

    Attributes:
        sizes: The halves of Table II.
        results: By case.
    """

    sizes: tuple[Size, ...]
    results: Results

    def use(self, case: PlaceCase, what: str) -> float:
        """Boards in use, per cent of those that work: `mean`, `median` or another quantile."""
        return 100 * float(self.results[case]["utilisation"][what])

    def rows(self) -> list[Row]:
        """Every claim on every mesh."""
        rows = []
        for cluster in meshes(self.sizes):
            for mix in MIXES:
                rows += self.claims(cluster, mix)
            if cluster.size == "large":
                rows += self._crossing(cluster)
                rows += [row for mix in MIXES[:2] for row in self._large_failures(cluster, mix)]
            elif cluster.name == HX4:
                rows += [self.failures(cluster, mix) for mix in MIXES[:2]]
                rows += self._jumps(cluster)
        return rows

    def claims(self, cluster: Published, mix: str) -> list[Row]:
        """Every claim about mixes on a mesh whose boards all work."""
        cases = {options: PlaceCase(cluster, mix, options) for options in OPTIONS}
        plain = self.use(cases[NONE], "mean")
        gain = self.use(cases[TRANSPOSE], "mean") - plain
        label, told = f"{cluster.label}, {mix}", f"{COUNT[cluster.size]} mixes, unit boards"
        values: tuple[tuple[str, float, Value, str], ...] = (
            ("use, no options", plain, UNOPTIMISED, NONE),
            ("gain by transposing", gain, TRANSPOSED, TRANSPOSE),
            ("mean use, sorted", self.use(cases[SORTED], "mean"), SORTED_LEAST, SORTED),
            ("median use, sorted", self.use(cases[SORTED], "median"), SORTED_LEAST, SORTED),
            ("99th percentile of use, sorted", self.use(cases[SORTED], "p99"), P99_LEAST, SORTED),
        )
        rows = [
            Row(
                f"{label}, {name}",
                ours,
                claim,
                "%",
                within=POINTS,
                absolute=True,
                how=f"{told}; {options}",
                why=gaps.MIX,
                made=made(mix),
            )
            for name, ours, claim, options in values
        ]
        lower = self.use(cases[SORTED], "p1")
        how = f"{told}; {SORTED}: 99 of 100 mixes use more"
        name = f"{label}, 1st percentile of use, sorted"
        rows.append(Row(name, lower, None, "%", how=how, made=made(mix)))
        if cluster.size == "large":
            loss = self.use(cases[SORTED], "mean") - self.use(cases[ARRIVAL], "mean")
            name = f"{label}, lost in order of arrival"
            how = f"{told}; {ARRIVAL} against {SORTED}"
            rows.append(
                Row(name, loss, LOST_MOST, "%", within=0.0, absolute=True, how=how, made=made(mix))
            )
        return rows

    def failures(self, cluster: Published, mix: str) -> Row:
        """The claim about the most failed boards of a small mesh."""
        case = PlaceCase(cluster, mix, SORTED, FAILED[-1])
        return Row(
            f"{cluster.label}, {mix}, median use, {FAILED[-1]} of 64 boards failed",
            self.use(case, "median"),
            FAILED_LEAST,
            "%",
            within=0.0,
            absolute=True,
            how=f"{COUNT[cluster.size]} mixes, unit boards; {SORTED}; of the boards that work",
            why=gaps.MIX,
            made=made(mix),
        )

    def _large_failures(self, cluster: Published, mix: str) -> list[Row]:
        """With the most failed boards: the median use, and what the order of arrival loses."""
        rows = []
        for failed in FAILED_LARGE:
            sorted_, arrival = (
                self.use(PlaceCase(cluster, mix, options, failed), "median")
                for options in (SORTED, ARRIVAL)
            )
            label = f"{cluster.label}, {mix}"
            told = f"{COUNT['large']} mixes, unit boards, {failed} boards failed"
            values = (
                (f"median use, {failed} boards failed", sorted_, FAILED_LEAST, SORTED),
                (
                    f"lost in order of arrival, {failed} boards failed",
                    sorted_ - arrival,
                    LOST_MOST,
                    f"medians, {ARRIVAL} against {SORTED}",
                ),
            )
            rows += [
                Row(
                    f"{label}, {name}",
                    ours,
                    claim,
                    "%",
                    within=0.0,
                    absolute=True,
                    how=f"{told}; {options}",
                    made=made(mix),
                )
                for name, ours, claim, options in values
            ]
        return rows

    def _range(self, case: PlaceCase) -> tuple[float, float]:
        """The least and the largest median over the seeds."""
        medians = [self.use(replace(case, seed=seed), "median") for seed in range(SEEDS)]
        return min(medians), max(medians)

    def _jumps(self, cluster: Published) -> list[Row]:
        """The medians that depend on the seed; the paper prints none of them."""
        rows = []
        for case in self._failed(cluster):
            least, most = self._range(case)
            if most - least <= JUMP:
                continue
            rows.append(
                Row(
                    f"{cluster.label}, {case.mix}, median use, {case.failed} of 64 boards failed, "
                    + ("sorted" if case.options == SORTED else "in order of arrival"),
                    self.use(case, "median"),
                    None,
                    "%",
                    how=f"{COUNT[cluster.size]} mixes, seed 0; over {SEEDS} seeds {least:.1f} to "
                    f"{most:.1f}",
                    why=gaps.JUMPS,
                )
            )
        return rows

    def _failed(self, cluster: Published) -> list[PlaceCase]:
        """What was placed around failed boards, at the first seed."""
        return [
            case
            for case in self.results
            if case.cluster == cluster and case.failed and not case.seed
        ]

    def _crossing(self, cluster: Published) -> list[Row]:
        """What crosses the upper level: all-to-all's pairs, and the edges of all-reduces' rings."""
        options, most = UPPER_MOST[cluster.name]
        case = _upper(cluster)
        shares = self.results[case]["upper_level"]
        how = f"{COUNT['large']} mixes, {LEAF_BOARDS} boards a leaf; {options}"
        label = f"{cluster.label}, {case.mix}"
        return [
            Row(
                f"{label}, {name} across the upper level",
                100 * float(shares[key]["mean"]),
                published,
                "%",
                within=0.0,
                absolute=True,
                how=how,
            )
            for name, key, published in (
                ("all-to-all pairs", "all_to_all", less_than(most, "SC'22, Fig. 9")),
                ("all-reduce ring edges", "rings", None),
            )
        ]

    def pictures(self) -> list[Picture]:
        """A map of boards, many of them failed; if small meshes are placed."""
        drawn = [
            case
            for case in self.results
            if (case.mix, case.options, case.failed, case.seed)
            == (DRAWN_MIX, SORTED, FAILED[-1], 0)
        ]
        return [
            Picture(
                "boards",
                f"Jobs on the boards of the {case.cluster.label}",
                f"The first mix of {case.mix}, {case.failed} boards failed. A job has the boards "
                "where its rows cross its columns; they need not be neighbours.",
                partial(boards, dict(self.results[case])),
            )
            for case in drawn[:1]
        ]

    def details(self) -> list[Detail]:
        """The use of every case, and of every mix of those that are drawn."""
        quantiles = ("mean", "median", "p1", "p99")
        header = ("cluster", "mix", "options", "failed", *(f"{q}_%" for q in quantiles))
        table: list[Cells] = [
            (
                case.cluster.label,
                case.mix,
                case.options,
                case.failed,
                *(self.use(case, quantile) for quantile in quantiles),
            )
            for case in self.results
            if not case.leaf_boards and not case.seed and not case.memory
        ]
        failures: list[Cells] = [
            (case.cluster.label, case.mix, case.options, case.failed, SEEDS, *self._range(case))
            for cluster in meshes(self.sizes)
            if cluster.size == "small"
            for case in self._failed(cluster)
        ]
        each: list[Cells] = [
            (case.cluster.label, case.mix, case.options, 100 * float(mix["utilisation"]))
            for case, result in self.results.items()
            if case.mix == DRAWN_MIX and not (case.failed or case.leaf_boards or case.memory)
            for mix in result["mixes"]
        ]
        columns = ("cluster", "mix", "options", "use_%")
        seeds = ("seeds", "least_median_%", "largest_median_%")
        return [
            Detail("allocation", header, table),
            Detail("allocation_failures", (*header[:4], *seeds), failures),
            Detail("allocation_mixes", columns, each),
        ]
