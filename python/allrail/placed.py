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
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from allrail.errors import InputError
from allrail.graphs import GraphLike, count, graph_fabric
from allrail.scenario import GraphFabric

MESH, TORUS = "hammingmesh", "torus"
SIZE = "64 MiB"
"""Of the all-reduce that a written job runs."""

MAX_LISTED = 65_536
"""Boards of a job whose coordinates are listed one by one."""

_OWN = ("board", "planes", "switch_radix", "link", "board_link")
"""Keys of a HammingMesh that a job's own has, too; its trees have no taper."""

Place = tuple[int, int]
"""A row and a column, from 0."""


@dataclass(frozen=True, slots=True)
class Board:
    """A board of a job.

    Attributes:
        virtual: Its row and column in the job's own grid.
        physical: Its row and column in the fabric.
    """

    virtual: Place
    physical: Place


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job of the first mix that found boards.

    Attributes:
        job: Its place in the mix, from 0.
        asked: What it asked for: a number of boards, or rows and columns of them.
        rows: The fabric's rows of boards that it has, in the order of its own.
        columns: The fabric's columns, in the order of its own.
    """

    job: int
    asked: int | tuple[int, int]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def boards(self) -> list[Board]:
        """Its boards, row by row of its own grid."""
        return [
            Board((i, j), (row, column))
            for i, row in enumerate(self.rows)
            for j, column in enumerate(self.columns)
        ]

    def to_dict(self) -> dict[str, Any]:
        """It as plain values: its shape, its rows and columns, and each board's coordinates.

        Of a job of more than `MAX_LISTED` boards rows and columns say where these are.
        """
        told: dict[str, Any] = {
            "job": self.job,
            "asked": list(self.asked) if isinstance(self.asked, tuple) else self.asked,
            "shape": [len(self.rows), len(self.columns)],
            "rows": list(self.rows),
            "columns": list(self.columns),
        }
        if len(self.rows) * len(self.columns) <= MAX_LISTED:
            told["boards"] = [
                {"virtual": list(one.virtual), "physical": list(one.physical)}
                for one in self.boards
            ]
        return told


def placed_jobs(told: Mapping[str, Any]) -> list[PlacedJob]:
    """Return the jobs of the first mix that found boards, in the order in which they were placed.

    Args:
        told: What `allrail.placement.place` returned.
    """
    drawn = told["map"]
    found = []
    for job in drawn["jobs"]:
        asked = drawn["sizes"][job["job"]]
        shape = (asked["rows"], asked["columns"]) if isinstance(asked, dict) else asked
        found.append(PlacedJob(job["job"], shape, tuple(job["rows"]), tuple(job["columns"])))
    return found


@dataclass(frozen=True)
class Whereabouts:
    """The jobs of a placement's first mix on their fabric.

    Attributes:
        fabric: Where they were placed: a preset's name, a file, or a `GraphFabric`.
        told: What `allrail.placement.place` returned for it.
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
        """Rows and columns of NPUs of a board; of three dimensions the last two are columns."""
        sides = self.graph.keys.get("board") or [1, 1]
        columns = 1
        for side in sides[1:]:
            columns *= side
        return sides[0], columns

    def grid(self, job: PlacedJob) -> Place:
        """Rows and columns of NPUs that a job has, in its own counting.

        Args:
            job: One of `jobs`.
        """
        return len(job.rows) * self.board[0], len(job.columns) * self.board[1]

    def npus(self, job: PlacedJob) -> list[int]:
        """The fabric's numbers of a job's NPUs, row by row of its own grid.

        Args:
            job: One of `jobs`.
        """
        return [self._number(place) for place in self.places(job)]

    def places(self, job: PlacedJob) -> list[Place]:
        """The rows and columns of a job's NPUs in the fabric, row by row of its own grid.

        Args:
            job: One of `jobs`.
        """
        rows, columns = self.board
        return [
            (row * rows + i, column * columns + j)
            for row in job.rows
            for i in range(rows)
            for column in job.columns
            for j in range(columns)
        ]

    def half_plane_cut_share(self, job: PlacedJob) -> float | None:
        """What half of a job's NPUs can send to the other half, over what they inject.

        Of a job on a HammingMesh, which is a HammingMesh of its own, with trees without a taper;
        None for others, and where its topology has no formula.

        Args:
            job: One of `jobs`.
        """
        if self.graph.topology != MESH:
            return None
        shape = (len(job.columns), len(job.rows))
        if shape not in self._cuts:
            self._cuts[shape] = self._cut(shape)
        return self._cuts[shape]

    @cached_property
    def _cuts(self) -> dict[Place, float | None]:
        """By shape, as many jobs have the same."""
        return {}

    def _cut(self, shape: Place) -> float | None:
        keys = {key: self.graph.keys[key] for key in _OWN if key in self.graph.keys}
        own = {"name": "job", "topology": MESH, **keys, "grid": list(shape)}
        share = count(GraphFabric.model_validate(own))["half_plane_cut_share"]
        return None if share is None else float(share)

    def scenario(self, job: PlacedJob, *, world: str = "flows") -> dict[str, Any]:
        """Return a job as a scenario: an all-reduce of its NPUs, where they are in the fabric.

        Args:
            job: One of `jobs`.
            world: What carries its messages, `flows` or `packets`.

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
        if world == "flows":
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
            "world": world,
        }

    def _algorithm(self, job: PlacedJob, rows: int, columns: int) -> str:
        """What `place --run` ran, else along rows and columns, or one ring of a single line."""
        for one in (self.told.get("shares") or {}).get("jobs", ()):
            if one["job"] == job.job and one["algorithm"] != "shift":
                return str(one["algorithm"])
        return "torus" if min(rows, columns) > 1 else "ring"

    def _number(self, place: Place) -> int:
        row, column = place
        if self.graph.topology == MESH:
            return self._numbers[row][column]
        if self.graph.topology != TORUS:
            return column
        shape: Sequence[int] = self.graph.keys["shape"]
        if len(shape) == 2:
            return row * shape[1] + column
        sides = self.graph.keys.get("board") or [1, 1, 1]
        board, inside = divmod(column, self.board[1])
        at = divmod(board, shape[2] // sides[2])
        within = divmod(inside, sides[2])
        middle, last = (at[k] * sides[1 + k] + within[k] for k in (0, 1))
        return int((row * shape[1] + middle) * shape[2] + last)

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
