"""Where the jobs of a placed mix are: boards and NPUs, as the job and as the fabric count them.

    told = place("hx2mesh-1k", count=1, sort=True)
    whereabouts = Whereabouts("hx2mesh-1k", told)
    job = whereabouts.jobs[0]
    job.boards[0]                # its virtual and its physical row and column
    whereabouts.npus(job)        # the fabric's numbers, row by row of the job's own grid
    whereabouts.scenario(job)    # what `allrail simulate` takes

A job on `u x v` boards has a virtual grid of `u` rows and `v` columns, which need not be neighbours
in the fabric: virtual board (i, j) is where the job's i-th row crosses its j-th column. NPUs are
numbered as `allrail.simulate` numbers them: row by row of the whole fabric, those of a
HammingMesh's failed boards left out.

On a HammingMesh or a torus of three dimensions places have three numbers, in the order of the
fabric's `grid` or `shape`. Ranks of a job go along its first dimension as rows, and through the
other two as columns, every other line backwards: ranks that follow each other are neighbours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from allrail.base.errors import InputError
from allrail.scenario import GraphFabric
from allrail.simulation.graphs import GraphLike, count, graph_fabric

MESH, MESH_3D, TORUS = "hammingmesh", "hammingmesh_3d", "torus"
SIZE = "64 MiB"
"""Of the all-reduce that a written job runs."""

MAX_LISTED = 65_536
"""Boards of a job whose coordinates are listed one by one."""

_OWN = ("board", "planes", "switch_radix", "link", "board_link")
"""Keys of a HammingMesh that a job's own has, too; its trees have no taper."""

Place = tuple[int, ...]
"""A row and a column, or a place along each of three dimensions, from 0."""


@dataclass(frozen=True, slots=True)
class Board:
    """A board of a job.

    Attributes:
        virtual: Its place in the job's own grid.
        physical: Its place in the fabric.
    """

    virtual: Place
    physical: Place


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job of the first mix that found boards.

    Attributes:
        job: Its place in the mix, from 0.
        asked: What it asked for: a number of boards, or how many along each dimension.
        rows: The fabric's rows of boards that it has, in the order of its own; in three dimensions
            its places along the first.
        columns: The fabric's columns, in the order of its own; in three dimensions the other two,
            the second times the boards along the third, plus the third.
        sides: Boards of the fabric along three dimensions; None of two.
    """

    job: int
    asked: int | tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    sides: tuple[int, int, int] | None = None

    @property
    def along(self) -> tuple[tuple[int, ...], ...]:
        """The fabric's lines of boards that it has along each dimension, in its own order."""
        if self.sides is None:
            return self.rows, self.columns
        pairs = [divmod(column, self.sides[2]) for column in self.columns]
        second, third = (tuple(dict.fromkeys(pair[k] for pair in pairs)) for k in (0, 1))
        return self.rows, second, third

    @property
    def shape(self) -> tuple[int, ...]:
        """How many boards it has along each dimension."""
        return tuple(len(lines) for lines in self.along)

    @property
    def boards(self) -> list[Board]:
        """Its boards, row by row of its own grid."""
        numbered = (enumerate(lines) for lines in self.along)
        return [
            Board(tuple(i for i, _ in board), tuple(at for _, at in board))
            for board in product(*numbered)
        ]

    def to_dict(self) -> dict[str, Any]:
        """It as plain values: its shape, its lines along each dimension, each board's coordinates.

        Of a job of more than `MAX_LISTED` boards its lines alone say where these are.
        """
        told: dict[str, Any] = {
            "job": self.job,
            "asked": list(self.asked) if isinstance(self.asked, tuple) else self.asked,
            "shape": list(self.shape),
        }
        if self.sides is None:
            told |= {"rows": list(self.rows), "columns": list(self.columns)}
        else:
            told["along"] = [list(lines) for lines in self.along]
        if math.prod(self.shape) <= MAX_LISTED:
            told["boards"] = [
                {"virtual": list(one.virtual), "physical": list(one.physical)}
                for one in self.boards
            ]
        return told


def placed_jobs(told: Mapping[str, Any]) -> list[PlacedJob]:
    """Return the jobs of the first mix that found boards, in the order in which they were placed.

    Args:
        told: What `allrail.simulation.placement.place` returned.
    """
    drawn = told["map"]
    sides = told["fabric"].get("sides")
    whole = None if sides is None else (sides[0], sides[1], sides[2])
    found = []
    for job in drawn["jobs"]:
        asked = drawn["sizes"][job["job"]]
        if isinstance(asked, dict):
            asked = (asked["rows"], asked["columns"])
        elif isinstance(asked, list):
            asked = tuple(asked)
        rows, columns = tuple(job["rows"]), tuple(job["columns"])
        found.append(PlacedJob(job["job"], asked, rows, columns, whole))
    return found


@dataclass(frozen=True)
class Whereabouts:
    """The jobs of a placement's first mix on their fabric.

    Attributes:
        fabric: Where they were placed: a preset's name, a file, or a `GraphFabric`.
        told: What `allrail.simulation.placement.place` returned for it.
    """

    fabric: GraphLike
    told: Mapping[str, Any]

    @cached_property
    def jobs(self) -> list[PlacedJob]:
        """Those that found boards, in the order in which they were placed."""
        return placed_jobs(self.told)

    @cached_property
    def graph(self) -> GraphFabric:
        """The fabric; of a HammingMesh without the boards that failed in this mix."""
        graph = graph_fabric(self.fabric)
        if graph.topology != MESH:
            return graph
        failed = [[column, row] for row, column in self.told["map"]["failed"]]
        keys = {**graph.keys, "failed_boards": failed}
        return GraphFabric.model_validate({"name": graph.name, "topology": graph.topology, **keys})

    @cached_property
    def board(self) -> Place:
        """NPUs of a board along each dimension."""
        sides = self.graph.keys.get("board")
        if sides is None:
            return (1,) * len(self.told["fabric"].get("sides") or (1, 1))
        return tuple(sides)

    def whole(self, job: PlacedJob) -> Place:
        """NPUs of a job along each dimension.

        Args:
            job: One of `jobs`.
        """
        return tuple(boards * npus for boards, npus in zip(job.shape, self.board, strict=True))

    def grid(self, job: PlacedJob) -> tuple[int, int]:
        """Rows and columns of NPUs that a job has, in its own counting.

        Args:
            job: One of `jobs`.
        """
        rows, *others = self.whole(job)
        return rows, math.prod(others)

    def npus(self, job: PlacedJob) -> list[int]:
        """The fabric's numbers of a job's NPUs, in the order of its ranks.

        Args:
            job: One of `jobs`.
        """
        return [self._number(place) for place in self.places(job)]

    def virtual(self, job: PlacedJob) -> list[Place]:
        """The places of a job's NPUs in its own grid, in the order of its ranks: row by row.

        Args:
            job: One of `jobs`.
        """
        whole = self.whole(job)
        if len(whole) == 2:
            return list(product(*map(range, whole)))
        first, second, third = whole
        snake = [(i, third - 1 - j if i % 2 else j) for i in range(second) for j in range(third)]
        return [(row, *place) for row in range(first) for place in snake]

    def places(self, job: PlacedJob) -> list[Place]:
        """The places of a job's NPUs in the fabric, in the order of its ranks.

        Args:
            job: One of `jobs`.
        """
        lines = [
            [board * npus + i for board in boards for i in range(npus)]
            for boards, npus in zip(job.along, self.board, strict=True)
        ]
        return [
            tuple(line[at] for line, at in zip(lines, place, strict=True))
            for place in self.virtual(job)
        ]

    def half_plane_cut_share(self, job: PlacedJob) -> float | None:
        """What half of a job's NPUs can send to the other half, over what they inject.

        Of a job on a HammingMesh of two or three dimensions, which is one of its own, with trees
        without a taper; None for others, and where its topology has no formula.

        Args:
            job: One of `jobs`.
        """
        if self.graph.topology not in (MESH, MESH_3D):
            return None
        # The grid of two dimensions is written columns first.
        shape = job.shape[::-1] if self.graph.topology == MESH else job.shape
        if shape not in self._cuts:
            self._cuts[shape] = self._cut(shape)
        return self._cuts[shape]

    @cached_property
    def _cuts(self) -> dict[Place, float | None]:
        """By shape, as many jobs have the same."""
        return {}

    def _cut(self, shape: Place) -> float | None:
        keys = {key: self.graph.keys[key] for key in _OWN if key in self.graph.keys}
        own = {"name": "job", "topology": self.graph.topology, **keys, "grid": list(shape)}
        share = count(GraphFabric.model_validate(own))["half_plane_cut_share"]
        return None if share is None else float(share)

    def scenario(self, job: PlacedJob, *, network_model: str = "flows") -> dict[str, Any]:
        """Return a job as a scenario: an all-reduce of its NPUs, where they are in the fabric.

        Args:
            job: One of `jobs`.
            network_model: What carries its messages, `flows` or `packets`.

        Raises:
            InputError: The job has one NPU, which sends nothing.
        """
        rows, columns = self.grid(job)
        if rows * columns < 2:
            raise InputError(
                "a job of one NPU sends nothing",
                hint="name a job of two boards or more",
                field="job",
                value=str(job.job),
            )
        algorithms: dict[str, Any] = {"all_reduce": self._algorithm(job, rows, columns)}
        algorithms["shapes"] = {"job": [rows, columns]}
        messages: dict[str, Any] = {"algorithms": algorithms}
        if network_model == "flows":
            messages["paths"] = "ecmp"
        step = {"all_reduce": SIZE, "over": "job"}
        graph = self.graph
        fabric = {"name": graph.name, **json.loads(graph.model_dump_json())}
        return {
            "schema_version": 1,
            "fabric": fabric,
            "workload": {
                "name": f"job {job.job}",
                "model": {
                    "steps": {
                        "ranks": [{"column": columns}, {"row": rows}],
                        "groups": {"job": ["column", "row"]},
                        "steps": {"all": [step]},
                    }
                },
                "iterations": 1,
            },
            "placement": self.npus(job),
            "messages": messages,
            "network_model": network_model,
        }

    def _algorithm(self, job: PlacedJob, rows: int, columns: int) -> str:
        """What `place --run` ran, else along rows and columns, or one ring of a single line."""
        for one in (self.told.get("shares") or {}).get("jobs", ()):
            if one["job"] == job.job and one["algorithm"] != "shift":
                return str(one["algorithm"])
        return "torus" if min(rows, columns) > 1 else "ring"

    def _number(self, place: Place) -> int:
        keys = self.graph.keys
        if self.graph.topology == MESH:
            return self._numbers[place[0]][place[1]]
        if self.graph.topology == MESH_3D:
            # Along the first dimension first.
            sides = [board * grid for board, grid in zip(keys["board"], keys["grid"], strict=True)]
            return _row_major(place[::-1], sides[::-1])
        if self.graph.topology != TORUS:
            return place[1]
        return _row_major(place, keys["shape"])

    @cached_property
    def _numbers(self) -> list[list[int]]:
        """Of a HammingMesh's NPUs by row and column; -1 on boards that failed."""
        rows, columns = self.board
        failed = {tuple(place) for place in self.told["map"]["failed"]}
        fabric = self.told["fabric"]
        numbers, following = [], 0
        for row in range(fabric["rows"] * rows):
            line = []
            for column in range(fabric["columns"] * columns):
                if (row // rows, column // columns) in failed:
                    line.append(-1)
                else:
                    line.append(following)
                    following += 1
            numbers.append(line)
        return numbers


def _row_major(place: Sequence[int], sides: Sequence[int]) -> int:
    number = 0
    for at, side in zip(place, sides, strict=True):
        number = number * side + at
    return number
