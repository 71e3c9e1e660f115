"""Sweeps: points, the table, going on after an interruption, lost workers, pictures, Ray.

The study of most tests is 2 policies x 3 sizes of an all-reduce, of which one size is too small for
its chunks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import polars as pl
import pytest

import allrail
from allrail.output.report.front import pareto_front
from allrail.output.report.sweep import pictures
from allrail.search.sweeps.study import load_study
from allrail.search.sweeps.tasks import LOSSES, Done, Tasks

BASE = {
    "schema_version": 1,
    "fabric": "tutorial-8x8x8",
    "collective": {"kind": "all_reduce", "size": "1 GiB"},
    "schedule": {"policy": "themis", "chunks": 8},
}
STUDY = {
    "schema_version": 1,
    "scenario": BASE,
    "axes": {
        "schedule.policy": ["baseline", "themis"],
        "collective.size": ["100 MB", "1 GiB", "0 B"],
    },
}

HELD_UP = """
import time
from pathlib import Path
from allrail.cli.main import main
from allrail.cli.progress import Progress
def hold(self, done, total):
    if Path("study/sweep.jsonl").read_bytes().count(b"\\n") >= 20:
        time.sleep(10**6)
Progress.__call__ = hold
main()
"""
"""A command that goes no further once 20 lines are written, however fast the machine is."""


def study(axes, **more):
    return {"schema_version": 1, "scenario": BASE, "axes": axes, **more}


def points(axes, **more):
    read = load_study(study(axes, **more)).points
    return [read.cells(index) for index in range(len(read))]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return allrail.sweep(STUDY, tmp_path_factory.mktemp("sweep") / "out", workers=1)


class TestPoints:
    def test_are_every_combination_with_the_last_axis_fastest(self):
        found = points({"schedule.chunks": [1, 2], "schedule.policy": ["baseline", "themis"]})
        assert [tuple(one.values()) for one in found] == [
            (1, "baseline"),
            (1, "themis"),
            (2, "baseline"),
            (2, "themis"),
        ]

    def test_fields_change_together_under_one_name(self):
        pair = [{"schedule.chunks": 4, "collective.size": "1 MB"}, {"schedule.chunks": 8}]
        pair[1]["collective.size"] = "2 MB"
        assert points({"both": pair, "seed": [0]}) == [{**one, "seed": 0} for one in pair]

    def test_degrees_of_a_layout_need_no_path(self):
        base = {**BASE, "workload": {"model": "gpt3_175b", "precision": "fp16"}}
        del base["collective"]
        read = load_study(
            {
                "schema_version": 1,
                "scenario": base,
                "axes": {"layout": [{"tp": 8, "pp": 4}, {"tp": 4, "pp": 8}]},
            }
        )
        assert read.points.sets(1) == {
            "workload.parallelism.tp": 4,
            "workload.parallelism.pp": 8,
        }

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"from": 1, "to": 9, "count": 3}, [1, 5, 9]),
            ({"from": 1, "to": 64, "count": 4, "scale": "log"}, [1, 4, 16, 64]),
            ({"from": 0.5, "to": 1.5, "count": 3}, [0.5, 1.0, 1.5]),
            ({"from": "1 KiB", "to": "1 MiB", "count": 2}, ["1 KiB", "1024 KiB"]),
            ({"from": "50 Gb/s", "to": "100 GB/s", "count": 1}, ["50 Gb/s"]),
        ],
    )
    def test_of_a_range(self, given, expected):
        assert [one["schedule.chunks"] for one in points({"schedule.chunks": given})] == expected

    def test_of_a_latin_hypercube_cover_every_axis_evenly(self):
        sample = {"method": "latin_hypercube", "points": 40, "seed": 3}
        found = points(
            {
                "schedule.policy": ["baseline", "themis"],
                "schedule.chunks": {"from": 1, "to": 20},
                "collective.size": {"from": "0 MB", "to": "40 MB"},
            },
            sample=sample,
        )
        assert [one["schedule.policy"] for one in found].count("themis") == 20
        chunks = [one["schedule.chunks"] for one in found]
        assert all(chunks.count(number) == 2 for number in range(1, 21))
        sizes = sorted(float(one["collective.size"].split()[0]) for one in found)
        assert all(part <= size < part + 1 for part, size in enumerate(sizes))

    def test_that_are_drawn_repeat_with_their_seed(self):
        axes = {"schedule.chunks": {"from": 1, "to": 10**6, "scale": "log"}}
        drawn = [
            points(axes, sample={"method": "random", "points": 50, "seed": seed})
            for seed in (1, 1, 2)
        ]
        assert drawn[0] == drawn[1] != drawn[2]
        assert all(1 <= one["schedule.chunks"] <= 10**6 for one in drawn[0])

    def test_a_million_costs_nothing_before_it_runs(self):
        """Neither time nor memory: whatever makes a million of anything takes megabytes."""
        tracemalloc.start()
        read = load_study(study({"seed": {"from": 0, "to": 10**6 - 1, "count": 10**6}}))
        assert len(read.points) == 10**6
        assert read.points.sets(999_999) == {"seed": 999_999}
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1_000_000


class TestTable:
    def test_has_a_row_a_point_with_typed_columns(self, swept):
        table = pl.read_parquet(swept.folder / "sweep.parquet")
        assert table.equals(swept.table)
        assert table["point"].to_list() == list(range(6))
        assert table.schema["schedule.policy"] == pl.String
        assert table.schema["collective.size_bytes"] == pl.Int64
        assert table["collective.size_bytes"].to_list() == [100_000_000, 2**30, 0] * 2
        one = allrail.simulate(BASE, sets={"collective.size": "100 MB"})
        row = table.row(3, named=True)
        assert (row["time_us"], row["utilisation"]) == (one.time_us, one.utilisation)
        assert (row["chunks"], row["network_model"], row["error"]) == (8, "dims", None)

    def test_a_point_that_fails_is_a_row_with_its_error(self, swept):
        wrong = swept.table.filter(swept.table["error"].is_not_null())
        assert wrong["point"].to_list() == [2, 5]
        assert wrong["time_us"].to_list() == [None, None]
        assert "`collective.size` is `0 B`" in wrong["error"][0]
        assert swept.failed == 2

    def test_mappings_become_columns(self, tmp_path):
        one = allrail.sweep(
            study(
                {
                    "schedule": [
                        {"policy": "themis", "chunks": 4},
                        {"policy": "baseline", "chunks": 8},
                    ]
                }
            ),
            tmp_path,
            workers=1,
        )
        assert one.table["schedule.policy"].to_list() == ["themis", "baseline"]
        assert one.table["schedule.chunks"].to_list() == [4, 8]
        assert one.table["chunks"].to_list() == [4, 8]

    def test_prices_networks_that_have_a_price(self, tmp_path):
        base = {"schema_version": 1, "fabric": "hx2mesh-1k", "traffic": {"pattern": "incast"}}
        base["traffic"]["size"] = "1 MiB"
        base["fabric"] = {
            "topology": "hammingmesh",
            "board": [2, 2],
            "grid": [2, 2],
            "planes": 1,
            "link": {"bandwidth": "400 Gb/s", "latency": "20 ns"},
            "board_link": {"bandwidth": "400 Gb/s", "latency": "1 ns"},
        }
        base["traffic"] = {"pattern": "all_to_all", "size": "1 MiB"}
        one = allrail.sweep(
            {"schema_version": 1, "scenario": base, "axes": {"fabric.planes": [1, 2]}},
            tmp_path,
            workers=1,
        )
        cost = one.table["cost_usd"].to_list()
        assert cost[1] == 2 * cost[0] > 0
        assert set(pictures(one)) == {"sweep", "pareto"}


class TestGoingOn:
    def test_where_a_line_was_cut_off(self, swept, tmp_path):
        text = (swept.folder / "sweep.jsonl").read_bytes()
        lines = text.splitlines(keepends=True)
        (tmp_path / "sweep.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:30])
        again = allrail.sweep(STUDY, tmp_path, workers=1)
        assert again.known == 3
        for name in ("sweep.parquet", "sweep.csv", "sweep.svg", "sweep.png", "report.html"):
            assert (tmp_path / name).read_bytes() == (swept.folder / name).read_bytes()
        told = [json.loads(line) for line in (tmp_path / "sweep.jsonl").read_text().splitlines()]
        assert sorted(one["point"] for one in told[1:]) == list(range(6))

    def test_nothing_is_simulated_twice(self, swept, monkeypatch):
        monkeypatch.setattr("allrail.search.sweeps.pool.subprocess.Popen", None)
        assert allrail.sweep(STUDY, swept.folder).known == 6

    @pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
    def test_after_a_signal(self, tmp_path, sent):
        one = study({"schedule.chunks": [1, 2, 4], "seed": {"from": 0, "to": 199, "count": 200}})
        (tmp_path / "study.json").write_text(json.dumps(one))
        command = [sys.executable, "-c", HELD_UP, "sweep", "study.json", "--workers", "1"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        begun = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        journal = tmp_path / "study" / "sweep.jsonl"
        while not journal.exists() or journal.read_bytes().count(b"\n") < 20:
            assert begun.poll() is None, begun.stderr.read()
            time.sleep(0.01)
        begun.send_signal(sent)
        told = begun.communicate()[1]
        assert begun.returncode == (130 if sent == signal.SIGINT else -sent)
        assert told == (b"interrupted\n" if sent == signal.SIGINT else b"")
        swept = allrail.sweep(tmp_path / "study.json", tmp_path / "study", workers=1)
        assert 19 <= swept.known < 600
        whole = allrail.sweep(one, tmp_path / "whole", workers=2)
        assert whole.known == 0
        for name in ("sweep.parquet", "sweep.csv"):
            assert (whole.folder / name).read_bytes() == (swept.folder / name).read_bytes()


class TestLostWorkers:
    def test_cost_no_point(self, swept, tmp_path):
        killed = []

        def kill(done, total):
            path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
            workers = [int(pid) for pid in path.read_text().split()]
            if done >= 1 and not killed and workers:
                killed.append(workers[0])
                os.kill(workers[0], signal.SIGKILL)

        one = allrail.sweep(STUDY, tmp_path, workers=1, progress=kill)
        assert killed
        assert one.table.equals(swept.table)

    def test_pieces_are_handed_out_again_point_by_point(self):
        tasks = Tasks(range(20), lambda index: {"seed": index})
        first = tasks.next()
        assert [index for index, _ in first.points] == [0]
        tasks.done(first, Done(("",), 0.001))
        piece = tasks.next()
        assert [index for index, _ in piece.points] == [1, 2]
        assert tasks.lost(piece, "killed") == ()
        again = [tasks.next() for _ in range(2)]
        assert [one.points for one in again] == [((1, {"seed": 1}),), ((2, {"seed": 2}),)]
        assert [index for index, _ in tasks.next().points] == [3, 4]

    @pytest.mark.parametrize("each", [0.0001, 0.002, 0.004, 0.3])
    def test_pieces_are_long_at_first_and_short_at_the_end(self, each):
        count = 3000
        tasks = Tasks(range(count), lambda _: {})
        sizes, seen = [], []
        while piece := tasks.next():
            indices = [index for index, _ in piece.points]
            seen += indices
            sizes.append(len(indices))
            assert len(indices) * each <= 0.2 or len(indices) == 1
            tasks.done(piece, Done(tuple("" for _ in indices), each * len(indices)))
        assert seen == list(range(count))
        assert sizes[-1] * each <= 0.05 or sizes[-1] == 1
        if each == 0.002:
            # Of a twentieth of a second there would be 120.
            assert len(sizes) < 60

    def test_a_point_that_loses_several_is_given_up(self):
        tasks = Tasks([7], lambda _: {})
        for _ in range(LOSSES - 1):
            assert tasks.lost(tasks.next(), "killed by SIGKILL") == ()
        (line,) = tasks.lost(tasks.next(), "killed by SIGKILL")
        told = json.loads(line)
        assert told["point"] == 7
        assert "killed by SIGKILL" in told["error"]
        assert tasks.next() is None

    def test_what_was_given_up_is_tried_again(self, swept, tmp_path):
        lines = (swept.folder / "sweep.jsonl").read_text().splitlines(keepends=True)
        lost = json.dumps({"point": 0, "error": "its worker was lost", "lost": True}) + "\n"
        rest = [line for line in lines[1:] if json.loads(line)["point"] != 0]
        (tmp_path / "sweep.jsonl").write_text("".join([lines[0], lost, *rest]))
        again = allrail.sweep(STUDY, tmp_path, workers=1)
        assert again.known == 5
        assert again.table.equals(swept.table)


class TestPictures:
    @pytest.mark.parametrize(
        ("axes", "sample", "panels"),
        [
            ({"schedule.chunks": [4, 8]}, None, 1),
            ({"schedule.policy": ["baseline", "themis"]}, None, 1),
            ({"schedule.chunks": [4, 8], "schedule.policy": ["baseline", "themis"]}, None, 1),
            (
                {
                    "schedule.chunks": [4, 8],
                    "schedule.policy": ["baseline", "themis"],
                    "collective.size": ["1 MB", "2 MB"],
                },
                None,
                2,
            ),
            (
                {"schedule.chunks": {"from": 1, "to": 9}, "schedule.policy": ["baseline"]},
                {"method": "random", "points": 4},
                2,
            ),
        ],
        ids=["line", "words", "heat map", "small multiples", "drawn"],
    )
    def test_suit_the_shape(self, tmp_path, axes, sample, panels):
        more = {} if sample is None else {"sample": sample}
        one = allrail.sweep(study(axes, show="algbw_GBps", **more), tmp_path, workers=1)
        (figure,) = pictures(one).values()
        drawn = [axes for axes in figure.axes if axes.get_visible() and axes.get_xlabel()]
        assert len(drawn) == panels
        values = sorted(one.table["algbw_GBps"].to_list())
        if figure.axes[0].images:
            shown = [float(v) for axes in drawn for v in axes.images[0].get_array().flat]
        else:
            shown = [float(v) for v in drawn[0].lines[0].get_ydata()]
        assert sorted(shown) == pytest.approx(values)

    def test_a_front_has_what_nothing_cheaper_surpasses(self):
        points = [(2.0, 5.0, 0), (1.0, 3.0, 1), (2.0, 6.0, 2), (3.0, 6.0, 3), (4.0, 7.0, 4)]
        assert [number for _, _, number in pareto_front(points)] == [1, 2, 4]


RAY = """
import json, sys
import allrail, ray
from ray.cluster_utils import Cluster
from allrail.search.sweeps.tasks import Tasks

small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
second = cluster.add_node(**small)
lost, given_back = [], Tasks.lost
def note(self, piece, why):
    lost.append(len(piece.points))
    return given_back(self, piece, why)
Tasks.lost = note
nodes = []
def kill(done, total):
    if done >= total // 8 and not nodes:
        nodes.append(second)
        second.kill_raylet()
swept = allrail.sweep(sys.argv[1], sys.argv[2], ray=cluster.address, progress=kill)
cluster.shutdown()
print(json.dumps({"lost": sum(lost), "killed": len(nodes), "failed": swept.failed}))
"""


def _losing_a_node(one, folder):
    done = subprocess.run(
        [sys.executable, "-c", RAY, one, folder],
        capture_output=True,
        text=True,
        timeout=600,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_ray_cluster_that_loses_a_node_gives_the_same_bytes(tmp_path):
    pytest.importorskip("ray", reason="`allrail[ray]`")
    axes = {"schedule.chunks": [64, 128], "schedule.policy": ["baseline", "themis"]}
    one = study({**axes, "collective.size": {"from": "1 MB", "to": "4 GB", "count": 60}})
    (tmp_path / "study.json").write_text(json.dumps(one))
    here = allrail.sweep(one, tmp_path / "here")
    # On a busy machine the node may be lost when it has nothing to do: then it is not a test.
    for attempt in range(3):
        there = tmp_path / f"there{attempt}"
        told = _losing_a_node(tmp_path / "study.json", there)
        if told["lost"]:
            break
    assert told["killed"] == 1
    assert told["failed"] == here.failed == 0
    for name in ("sweep.parquet", "sweep.csv", "sweep.png"):
        assert (there / name).read_bytes() == (here.folder / name).read_bytes()
    journal = (there / "sweep.jsonl").read_text().splitlines()[1:]
    assert sorted(json.loads(line)["point"] for line in journal) == list(range(240))
    if not told["lost"]:
        pytest.skip("the node had nothing to do when it was lost: the machine is too busy")
