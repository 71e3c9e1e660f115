"""Where a placed job is, in its own grid and in the fabric, and as a scenario that runs."""

from __future__ import annotations

import csv
import itertools
import json
import math

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.scenario import GraphFabric
from allrail.simulation.placed import PlacedJob, Whereabouts, placed_jobs
from allrail.simulation.placement import place

MESH = {
    "name": "mesh",
    "topology": "hammingmesh",
    "board": [2, 2],
    "grid": [4, 4],
    "failed_boards": [[1, 1], [3, 2]],
    "link": {"bandwidth": "400 Gb/s", "latency": "60 ns"},
}
"""4 x 4 boards; those in row 1, column 1 and in row 2, column 3 have failed."""
CUBE = {
    "name": "cube",
    "topology": "hammingmesh_3d",
    "board": [2, 1, 3],
    "grid": [3, 4, 4],
    "link": {"bandwidth": "400 Gb/s", "latency": "60 ns"},
}
SHAPES = [("3x2", 1), ("2x2", 1), ("1x2", 1)]
FILE = """\
name: mesh
topology: hammingmesh
board: [2, 2]
grid: [4, 4]
failed_boards: [[1, 1], [3, 2]]
link: {bandwidth: 400 Gb/s, latency: 60 ns}
"""


def whereabouts(fabric, **options):
    graph = fabric if isinstance(fabric, str) else GraphFabric.model_validate(fabric)
    told = place(graph, **{"count": 1, "transpose": True, "sort": True, **options})
    return Whereabouts(graph, told)


FABRICS = [
    ("hx2mesh-1k", {"mix": "alibaba-2020", "failed": 12, "seed": 3}),
    ("hx4mesh-1k", {"mix": "powers-of-two", "failed": 5}),
    (MESH, {"mix": SHAPES}),
    ({**MESH, "board": [3, 2], "failed_boards": []}, {"mix": [(4, 1), (2, 3)]}),
    ("torus-1k", {"mix": [("4x4", 2), (6, 5)]}),
    ({"name": "t", "topology": "torus", "shape": [4, 6, 4], "board": [2, 3, 2]}, {"mix": [(4, 1)]}),
    ({"name": "t", "topology": "torus", "shape": [4, 4, 6]}, {"mix": [("2x3x4", 1), (5, 2)]}),
    (CUBE, {"mix": [("2x3x2", 1), (3, 2), ("1x1x4", 1)], "failed": 3}),
    ("fat-tree-1k", {"mix": [(64, 1), (100, 2)]}),
]


@pytest.mark.parametrize(("fabric", "options"), FABRICS, ids=lambda one: str(one)[:40])
def test_boards_are_whole_grids_that_share_nothing(fabric, options):
    where = whereabouts(fabric, **options)
    sides = where.told["fabric"].get("sides")
    failed = {
        tuple(board) if sides is None else (board[0], *divmod(board[1], sides[2]))
        for board in where.told["map"]["failed"]
    }
    taken, npus = set(), set()
    assert where.jobs
    for job in where.jobs:
        boards = job.boards
        assert [one.virtual for one in boards] == list(itertools.product(*map(range, job.shape)))
        physical = {one.physical for one in boards}
        assert len(physical) == math.prod(job.shape) == len(job.rows) * len(job.columns)
        for one in boards:
            lines = zip(job.along, one.virtual, strict=True)
            assert one.physical == tuple(line[at] for line, at in lines)
        assert not physical & (taken | failed)
        taken |= physical
        mine = where.npus(job)
        grid = where.grid(job)
        assert len(mine) == len(set(mine)) == grid[0] * grid[1] == len(where.places(job))
        assert not npus & set(mine)
        npus |= set(mine)
        on_boards = {
            tuple(at // npus for at, npus in zip(place, where.board, strict=True))
            for place in where.places(job)
        }
        assert on_boards == physical
        if isinstance(job.asked, tuple):
            assert sorted(job.asked) == sorted(job.shape)
    assert max(npus) < allrail.simulation.graphs.measure(where.graph)["npus_working"]


@pytest.mark.parametrize(("fabric", "options"), FABRICS[2:4], ids=["failed", "3x2 boards"])
def test_a_placed_job_takes_as_long_as_on_a_mesh_of_its_own(fabric, options):
    """Its boards are a HammingMesh: a wrong number of one NPU would lead over other cables."""
    where = whereabouts(fabric, **options)
    seen = 0
    for job in where.jobs:
        tree = where.scenario(job)
        placed = allrail.simulate(tree)
        alone = {**tree, "placement": "in_order"}
        alone["fabric"] = {
            **tree["fabric"],
            "grid": [len(job.columns), len(job.rows)],
            "failed_boards": [],
        }
        own = allrail.simulate(alone)
        if 1 in (len(job.rows), len(job.columns)):
            continue  # a mesh of one line of boards closes by cables, not by trees
        seen += 1
        assert placed.step_time_us == pytest.approx(own.step_time_us, rel=1e-9)
        shuffled = {**tree, "placement": tree["placement"][::-2] + tree["placement"][::2]}
        if len(set(shuffled["placement"])) == len(tree["placement"]):
            assert allrail.simulate(shuffled).step_time_us > 1.05 * own.step_time_us
    assert seen


def test_a_job_of_three_dimensions_takes_as_long_as_on_a_mesh_of_its_own():
    """Wherever its planes, rows and columns lie: its boards are such a mesh themselves."""
    where = whereabouts(CUBE, mix=[("2x3x2", 1), ("2x2x2", 1), ("3x1x2", 1)], failed=3, seed=1)
    seen = 0
    for job in where.jobs:
        if 1 in job.shape:
            continue  # a line of one board closes by cables, not by trees
        seen += 1
        tree = where.scenario(job)
        own = whereabouts({**CUBE, "grid": list(job.shape)}, mix=[(job.shape, 1)])
        alone = own.scenario(own.jobs[0])
        times = [allrail.simulate(one).step_time_us for one in (tree, alone)]
        assert times[0] == pytest.approx(times[1], rel=1e-9)
        mixed = {**tree, "placement": tree["placement"][1::2] + tree["placement"][::2]}
        assert allrail.simulate(mixed).step_time_us > 1.05 * times[1]
    assert seen


@pytest.mark.parametrize("fabric", [CUBE, FABRICS[6][0]], ids=["mesh", "torus"])
def test_ranks_that_follow_each_other_are_neighbours(fabric):
    where = whereabouts(fabric, mix=[("2x3x2", 1)])
    for job in where.jobs:
        places, (rows, columns) = where.virtual(job), where.grid(job)
        assert len(places) == rows * columns
        for rank, at in enumerate(places):
            for step, last in (
                (1, rank % columns == columns - 1),
                (columns, rank >= columns * (rows - 1)),
            ):
                if not last:
                    other = places[rank + step]
                    assert sum(abs(a - b) for a, b in zip(at, other, strict=True)) == 1


def test_three_dimensions_have_three_coordinates(folder, allrail_cli):
    (folder / "cube.json").write_text(json.dumps(CUBE))
    (folder / "boxes.csv").write_text("size,jobs\n2x3x2,1\n3x1x4,1\n")
    options = ("--fabric", "cube.json", "--mix", "boxes.csv", "--count", "1", "--sort")
    told = json.loads(allrail_cli("place", *options, "--json").stdout)
    assert told["fabric"]["sides"] == CUBE["grid"]
    for job in told["placed"]:
        assert job["shape"] == job["asked"] == [len(line) for line in job["along"]]
        for board in job["boards"]:
            lines = zip(job["along"], board["virtual"], strict=True)
            assert board["physical"] == [line[at] for line, at in lines]
    assert allrail_cli("place", *options, "--out", "out").status == 0
    tables = {
        name: list(csv.DictReader((folder / "out" / f"{name}.csv").read_text().splitlines()))
        for name in ("placed", "boards", "npus")
    }
    keys = ["job", *(f"{what}_{k}" for what in ("virtual", "physical") for k in range(3))]
    assert [[int(row[key]) for key in keys] for row in tables["boards"]] == [
        [job["job"], *board["virtual"], *board["physical"]]
        for job in told["placed"]
        for board in job["boards"]
    ]
    sides = [[int(row[f"side_{k}"]) for k in range(3)] for row in tables["placed"]]
    assert sides == [job["shape"] for job in told["placed"]]
    for row in tables["npus"]:
        x, y, z = (int(row[f"physical_{k}"]) for k in range(3))
        assert int(row["npu"]) == x + 6 * (y + 4 * z)  # along the first dimension first
    path = str(folder / "out" / "jobs" / f"job-{told['placed'][0]['job']}.yaml")
    outcome = allrail_cli("simulate", path, "--json")
    assert outcome.status == 0, outcome.stderr
    assert "3 x 4 x 4 boards of 6 NPUs" in allrail_cli("place", *options).stdout


def test_every_placed_job_runs_in_both_network_models():
    where = whereabouts(MESH, mix=SHAPES)
    for job in where.jobs:
        flows, packets = (
            allrail.simulate(where.scenario(job, network_model=network_model)).step_time_us
            for network_model in ("flows", "packets")
        )
        assert packets == pytest.approx(flows, rel=0.1)


def test_a_job_runs_what_place_ran():
    where = whereabouts("hx2mesh-1k", mix=[("4x4", 1), ("2x3", 1)], run="all_reduce")
    ran = {one["job"]: one["algorithm"] for one in where.told["shares"]["jobs"]}
    assert set(ran.values()) == {"rings", "torus"}
    for job in where.jobs[:4]:
        algorithms = where.scenario(job)["messages"]["algorithms"]
        assert algorithms["all_reduce"] == ran[job.job]


def test_half_of_a_job_sends_to_the_other_half():
    """1 / 2a of a mesh of a x a boards, whatever its shape; one board closes upon itself."""
    where = whereabouts("hx2mesh-1k", mix=[("4x4", 1)])
    assert where.half_plane_cut_share(where.jobs[0]) == pytest.approx(0.25)
    cube = {**CUBE, "board": [2, 2, 2], "grid": [4, 4, 4]}
    where = whereabouts(cube, mix=[("4x4x4", 1)])
    whole = allrail.simulation.graphs.count(GraphFabric.model_validate(cube))[
        "half_plane_cut_share"
    ]
    assert where.half_plane_cut_share(where.jobs[0]) == pytest.approx(whole)
    where = whereabouts("torus-1k", mix=[("4x4", 1)])
    assert where.half_plane_cut_share(where.jobs[0]) is None


def test_json_has_both_coordinates(folder, allrail_cli):
    (folder / "mesh.yaml").write_text(FILE)
    (folder / "shapes.csv").write_text("size,jobs\n3x2,1\n2x2,1\n1x2,1\n")
    options = ("--fabric", "mesh.yaml", "--mix", "shapes.csv", "--count", "1", "--sort")
    told = json.loads(allrail_cli("place", *options, "--json").stdout)
    for job in told["placed"]:
        assert job["shape"] == [len(job["rows"]), len(job["columns"])] == job["asked"]
        for board in job["boards"]:
            i, j = board["virtual"]
            assert board["physical"] == [job["rows"][i], job["columns"][j]]
            assert board["physical"] not in ([1, 1], [2, 3])
    again = [
        job.to_dict()
        for job in placed_jobs(place("mesh.yaml", mix="shapes.csv", count=1, sort=True))
    ]
    assert told["placed"] == again


def test_out_has_tables_and_a_scenario_a_job(folder, allrail_cli):
    (folder / "mesh.yaml").write_text(FILE)
    (folder / "shapes.csv").write_text("size,jobs\n3x2,1\n2x2,1\n1x2,1\n")
    options = ("--fabric", "mesh.yaml", "--mix", "shapes.csv", "--count", "2", "--sort")
    assert allrail_cli("place", *options, "--out", "out").status == 0
    told = json.loads((folder / "out" / "result.json").read_text())["placement"]["placed"]
    tables = {
        name: list(csv.DictReader((folder / "out" / f"{name}.csv").read_text().splitlines()))
        for name in ("placed", "boards", "npus")
    }
    assert [int(row["job"]) for row in tables["placed"]] == [job["job"] for job in told]
    keys = ("virtual_row", "virtual_column", "row", "column")
    boards = [[int(row[key]) for key in ("job", *keys)] for row in tables["boards"]]
    assert boards == [
        [job["job"], *board["virtual"], *board["physical"]]
        for job in told
        for board in job["boards"]
    ]
    assert len(tables["npus"]) == 4 * len(boards)
    for job in told:
        path = folder / "out" / "jobs" / f"job-{job['job']}.yaml"
        mine = [row for row in tables["npus"] if int(row["job"]) == job["job"]]
        scenario = allrail.load_scenario(path)
        assert scenario.placement == [int(row["npu"]) for row in mine]
        outcome = allrail_cli("simulate", str(path), "--json")
        assert outcome.status == 0, outcome.stderr
        assert json.loads(outcome.stdout)["step_time_us"] > 0
    # An older run's jobs are gone with it.
    queue = ("--fabric", "mesh.yaml", "--mix", "shapes.csv", "--jobs", "4", "--out", "out")
    assert allrail_cli("place", *queue).status == 0
    assert not list((folder / "out").glob("jobs/*.yaml"))


def test_the_boards_of_a_huge_job_are_its_rows_and_columns():
    job = PlacedJob(0, 90_000, tuple(range(300)), tuple(range(300)))
    told = job.to_dict()
    assert "boards" not in told
    assert (told["shape"], told["rows"][-1], told["columns"][-1]) == ([300, 300], 299, 299)


def test_a_job_of_one_npu_is_no_scenario():
    where = whereabouts("fat-tree-1k", mix=[(1, 1)])
    with pytest.raises(InputError, match="one NPU sends nothing"):
        where.scenario(where.jobs[0])
    from allrail.output.report.placement import scenarios

    assert scenarios(where) == {}
