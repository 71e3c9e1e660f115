"""HammingMesh's rows by the real core, those that are out among them.

`hammingmesh_rows.csv` has the rows of `allrail reproduce hammingmesh` that are quick to compute:
what is counted, the small meshes' placements, all-reduces in `flows`, the all-to-alls that take a
second. They are computed again here: one that becomes worse or better, or changes its verdict,
fails until

    python tests/golden/test_hammingmesh_rows.py

has written the file anew and somebody has looked at the difference. What takes minutes is
judged by `make reproduce`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from allrail_reproduce import hammingmesh
from allrail_reproduce.hammingmesh import allocation, claims, making_room
from allrail_reproduce.hammingmesh.cases import Scope, TrafficCase
from allrail_reproduce.hammingmesh.published import (
    DRAGONFLY,
    HYPERX,
    TABLE_TWO,
    TREE,
    TREE_75,
    Published,
)
from allrail_reproduce.hammingmesh.table_two import TableTwo
from allrail_reproduce.rows import Row
from allrail_reproduce.work import core_simulate

FILE = Path(__file__).parent / "hammingmesh_rows.csv"
SAME = 5e-4
"""Relative: what is written has six digits, and some numbers are of a search."""
SCOPE = Scope(network_models=("flows",), curves=False, jobs=False)


def told(done: int, total: int) -> None:
    assert done <= total


def counted() -> list[Row]:
    table = TableTwo(SCOPE, {}, hammingmesh.measured(SCOPE))
    rows = [table.cost_row(one) for one in TABLE_TWO]
    rows += [row for one in TABLE_TWO for row in table.diameters(one)]
    return rows + claims.rows(jobs=False)


def placed() -> list[Row]:
    """On the small meshes, with one seed of failed boards."""
    found = {
        case: core_simulate(case.scenario, told)
        for case in [*allocation.cases_of(("small",)), *making_room.cases_of(("small",))]
        if not case.seed
    }
    judged = allocation.Allocation(("small",), found)
    meshes = allocation.meshes(("small",))
    rows = [row for mesh in meshes for mix in allocation.MIXES for row in judged.claims(mesh, mix)]
    rows += [judged.failures(meshes[1], mix) for mix in allocation.MIXES[:2]]
    moving = {case: found[case] for case in making_room.cases_of(("small",))}
    return rows + making_room.MakingRoom(moving).rows()


def carried() -> list[Row]:
    """Traffic that takes a second."""
    asked: list[tuple[Published, str]] = []
    for cluster in TABLE_TWO:
        if cluster.size == "small" or cluster.name in (TREE, TREE_75, DRAGONFLY):
            asked.append((cluster, "all-reduce"))
        if cluster.size == "small" and cluster.name in (TREE, TREE_75, HYPERX):
            asked.append((cluster, "all-to-all"))
    empty = TableTwo(SCOPE, {}, {})
    cases: list[TrafficCase] = [empty.case(cluster, kind, "flows") for cluster, kind in asked]
    found = {case: core_simulate(case.scenario, told) for case in cases}
    table = TableTwo(SCOPE, found, {})
    return [table.share_row(cluster, kind, "flows") for cluster, kind in asked]


def known() -> dict[str, tuple[str, float, str]]:
    """Published, ours and verdict of every row, by case."""
    with FILE.open(newline="") as file:
        return {row[0]: (row[1], float(row[2]), row[3]) for row in csv.reader(file)}


@pytest.mark.parametrize(("rows", "out"), [(counted, 4), (placed, 11), (carried, 0)])
def test_rows_are_as_written_whether_they_are_met_or_out(rows, out):
    written = known()
    made = rows()
    changed = []
    for row in made:
        published, ours, verdict = written[row.case]
        same = (row.cells()[1], row.verdict) == (published, verdict)
        if not same or row.ours != pytest.approx(ours, rel=SAME, abs=1e-9):
            changed.append(f"{row.case}: {ours} {verdict}, now {row.ours:.6g} {row.verdict}")
    assert not changed
    assert sum(row.verdict == "OUT" for row in made) == out


def write() -> None:
    with FILE.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        for row in (*counted(), *placed(), *carried()):
            lines.writerow((row.case, row.cells()[1], f"{row.ours:.6g}", row.verdict))


if __name__ == "__main__":
    write()
