"""Chunk schedulers in Python: known by name wherever the others are, and to the same ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import allrail
from allrail.simulation import plugins

EXAMPLE = Path(__file__).parents[2] / "examples" / "08-write-a-chunk-scheduler"

TWIN = '''\
import allrail

@allrail.chunk_scheduler("twin")
def twin(problem):
    """What the baseline does."""
    inner_first = problem.operation not in ("all_gather", "broadcast")
    order = problem.dimensions if inner_first else problem.dimensions[::-1]
    return [problem.visit(order) for _ in problem.chunks]
'''


@pytest.fixture(autouse=True)
def twin(folder):
    """The baseline once more, as a plugin."""
    (folder / "twin.py").write_text(TWIN)
    allrail.load_plugin("twin.py")
    yield
    for name in plugins.registered():
        plugins.forget(name)


def without_names(plan: allrail.Plan) -> list[dict[str, object]]:
    return [{k: v for k, v in one.items() if k not in ("policy", "key")} for one in plan.plans]


@pytest.mark.parametrize(
    "kind", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]
)
def test_it_plans_as_its_twin_does(kind):
    sets = {"collective.kind": kind, "schedule.chunks": 8}
    ours = allrail.plan("scenario.yaml", sets={**sets, "schedule.policy": "twin"})
    theirs = allrail.plan("scenario.yaml", sets={**sets, "schedule.policy": "baseline"})
    assert without_names(ours) == without_names(theirs)
    assert ours.plans[0]["policy"] == "twin"


@pytest.mark.parametrize("network_model", ["dims", "links", "flows"])
def test_it_takes_the_time_of_its_twin(network_model):
    fabric = {f"fabric.dimensions[{d}].size": 4 for d in range(3)}
    sets = {
        **fabric,
        "network_model": network_model,
        "schedule.chunks": 8,
        "schedule.order": "fifo",
    }
    times = {
        policy: allrail.simulate("scenario.yaml", sets={**sets, "schedule.policy": policy}).time_us
        for policy in ("baseline", "twin", "themis")
    }
    assert times["twin"] == times["baseline"]


def test_the_time_of_a_stage_is_the_simulators():
    seen = []

    @allrail.chunk_scheduler("look")
    def look(problem):
        stages = problem.visit(problem.dimensions)
        seen.append((problem, problem.times(problem.chunks[0], stages)))
        return [stages]

    sets = {"schedule.policy": "look", "schedule.chunks": 1}
    result = allrail.simulate("scenario.yaml", sets=sets)
    problem, times = seen[-1]
    assert problem.operation == "all_reduce"
    assert problem.dimensions == (0, 1, 2)
    assert problem.sizes == {0: 8, 1: 8, 2: 8}
    assert problem.chunks == (1 << 30,)
    assert (problem.order, problem.active_chunks, problem.seed) == ("smallest_first", None, 0)
    assert sum(one.busy_us + one.latency_us for one in times) == pytest.approx(result.time_us)


class TestNames:
    """By decorator, by file, by option."""

    def test_its_order_is_taken_where_none_is_named(self):
        @allrail.chunk_scheduler("ordered", order="lifo")
        def ordered(problem):
            return [problem.visit(problem.dimensions) for _ in problem.chunks]

        tree = {
            "schema_version": 1,
            "fabric": "tutorial-8x8x8",
            "collective": {"kind": "all_reduce", "size": "1 MB"},
            "schedule": {"policy": "ordered"},
        }
        assert allrail.load_scenario(tree).schedule.order == "lifo"
        tree["schedule"] = {"policy": "twin"}
        assert allrail.load_scenario(tree).schedule.order == "fifo"

    def test_a_second_definition_replaces_the_first(self, folder):
        sets = {"schedule.policy": "twin", "schedule.chunks": 4}
        first = allrail.plan("scenario.yaml", sets=sets)
        (folder / "twin.py").write_text(TWIN.replace("else problem", "else  problem"))
        assert allrail.load_plugin("twin.py") == ["twin"]
        second = allrail.plan("scenario.yaml", sets=sets)
        assert without_names(first) == without_names(second)
        assert first.plans[0]["key"] != second.plans[0]["key"], "the key knows the source"

    def test_nothing_is_kept_on_disk(self):
        for _ in range(2):
            assert not allrail.plan("scenario.yaml", sets={"schedule.policy": "twin"}).cached
        assert not list(Path(os.environ["ALLRAIL_CACHE"]).rglob("*.json"))

    def test_a_plan_of_it_runs_without_it(self, allrail_cli):
        four = ("--set", "schedule.policy=twin", "--set", "schedule.chunks=4")
        assert allrail_cli("plan", "scenario.yaml", *four, "--out", "plan.json").status == 0
        plugins.forget("twin")
        outcome = allrail_cli("simulate", "scenario.yaml", "--plan", "plan.json")
        assert outcome.status == 0, outcome.stderr

    def test_compare_has_it_beside_the_others(self, allrail_cli):
        plugins.forget("twin")
        outcome = allrail_cli("compare", "scenario.yaml", "--json", "--plugin", "twin.py")
        assert outcome.status == 0, outcome.stderr
        rows = json.loads(outcome.stdout)["rows"]
        assert [row["label"] for row in rows] == ["baseline", "themis", "search", "twin"]


class TestTraining:
    """Every collective of a step is planned by it."""

    @pytest.mark.parametrize("tensor", ["fifo", "bytescheduler"])
    def test_a_step_takes_the_time_of_its_twin(self, tensor):
        rows = allrail.compare(
            EXAMPLE / "step.yaml",
            each={"schedule.policy": ["baseline", "twin"]},
            sets={"schedule.tensor": tensor, "schedule.order": "fifo"},
        )
        assert rows[0].result.step_time_us == rows[1].result.step_time_us

    def test_what_ifs_ask_it_too(self):
        sets = {"schedule.policy": "twin"}
        rows = allrail.what_if(EXAMPLE / "step.yaml", ["dim1_x2", "ideal_schedule"], sets=sets)
        assert [row.name for row in rows] == ["dim1_x2", "ideal_schedule"]


def test_many_at_once_are_the_same_as_alone():
    scenarios = [
        allrail.load_scenario(
            "scenario.yaml", sets={"schedule.policy": policy, "schedule.chunks": chunks}
        )
        for chunks in range(1, 9)
        for policy in ("twin", "themis")
    ]
    alone = [allrail.simulate(one).time_us for one in scenarios]
    for threads in (1, 3, None):
        many = allrail.simulate_many(scenarios, threads=threads)
        assert [one.time_us for one in many] == alone


LOOP = """\
import allrail

@allrail.chunk_scheduler("loop", time_limit="600 s")
def loop(problem):
    print("begun", flush=True)
    while True:
        try:
            sum(range(1000))
        except Exception:
            pass
"""


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("plan", "collective"),
        ("simulate", "collective"),
        ("compare", "collective"),
        ("simulate", "step"),
        ("compare", "step"),
    ],
)
def test_ctrl_c_ends_it(verb, kind, folder):
    (folder / "loop.py").write_text(LOOP)
    scenario = "scenario.yaml" if kind == "collective" else str(EXAMPLE / "step.yaml")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "allrail", verb, scenario, "--plugin", "loop.py"),
            *("--set", "schedule.policy=loop"),
            *(("--order", "fifo,lifo") if verb == "compare" else ()),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=200)
    assert process.returncode == 130, told
    assert told.endswith(b"interrupted\n")
    assert b"Traceback" not in told
    assert time.monotonic() - started < 60


RAY = """
import subprocess, sys
from ray.cluster_utils import Cluster

small = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=small)
done = subprocess.run([sys.executable, "-m", "allrail", *sys.argv[1:], "--ray", cluster.address])
cluster.shutdown()
sys.exit(done.returncode)
"""


@pytest.mark.long
def test_workers_of_a_ray_cluster_have_it(folder):
    pytest.importorskip("ray", reason="`allrail[ray]`")
    study = {
        "schema_version": 1,
        "scenario": "scenario.yaml",
        "axes": {"schedule.policy": ["baseline", "twin"], "schedule.chunks": [4, 8]},
    }
    (folder / "study.json").write_text(json.dumps(study))
    asked = ["sweep", "study.json", "--plugin", "twin.py"]
    path = os.pathsep.join(sys.path)
    for command in (
        [sys.executable, "-m", "allrail", *asked, "--out", "here", "--workers", "1"],
        [sys.executable, "-c", RAY, *asked, "--out", "there"],
    ):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert done.returncode == 0, done.stderr[-3000:]
    for name in ("sweep.parquet", "sweep.csv"):
        assert (folder / "there" / name).read_bytes() == (folder / "here" / name).read_bytes()
    assert "twin" in (folder / "there" / "sweep.csv").read_text()
