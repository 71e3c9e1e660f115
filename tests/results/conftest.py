"""Results to write and draw: three schedules of one collective."""

from __future__ import annotations

import pytest

import allrail
from allrail.measure.verify.collectives import Exchange
from allrail.measure.verify.fit import Carried
from allrail.measure.verify.verdict import Assumption, Compared, Verdict
from allrail.output import write_results
from allrail.output.report.answer import write as write_answer
from allrail.output.report.placement import write as write_placement
from allrail.output.traffic import write_traffic
from allrail.output.training import write_training
from allrail.search.layouts.asked import Asked, OfModel, job_of
from allrail.simulation.placement import place, queue
from allrail.targets.layouts import rank
from allrail_reproduce.published import Published
from allrail_reproduce.rows import Reproduction, Row

STEP = {
    "schema_version": 1,
    "fabric": {
        "name": "two",
        "dimensions": [
            {"kind": "switch", "size": 4, "bandwidth": "800 Gb/s", "latency": "1 us"},
            {"kind": "ring", "size": 2, "bandwidth": "100 Gb/s", "latency": "2 us"},
        ],
    },
    "workload": {
        "model": "transformer_big",
        "batch_per_replica": 8,
        "compute": {"device": "a100"},
        "parallelism": {"pp": 2},
        "iterations": 2,
    },
    "schedule": {"policy": "themis", "chunks": 4},
}
TRAFFIC = {
    "schema_version": 1,
    "fabric": {"topology": "torus", "shape": [4, 4]},
    "traffic": {"pattern": "all_to_all", "size": "1 MiB"},
}
TUNED = {
    "name": "step",
    "knobs": ["schedule.tensor.partition", "schedule.chunks"],
    "sampler": "a Gaussian process",
    "network_model": "dims",
    "calibrated": False,
    "scenario": STEP,
    "best": {"schedule.chunks": 16},
    "gain": 0.1,
    "trials": [
        {"sets": {}, "step_time_us": 1000.0},
        {"sets": {"schedule.chunks": 4}, "step_time_us": 1200.0},
        {"sets": {"schedule.tensor.partition": "1 MiB"}, "step_time_us": None},
        {"sets": {"schedule.chunks": 16}, "step_time_us": 900.0},
    ],
}
"""A search that found something, with a trial that cannot be simulated."""


def verdict():
    """Of a run whose bandwidth was thought to be twice what it is."""
    return Verdict(
        ranks=4,
        steps=3,
        rank=None,
        measured_ms=40.0,
        planned_ms=30.0,
        refitted_ms=39.0,
        bar=0.02,
        exposed_ms=10.0,
        assumptions=(Assumption("dimension 0's bandwidth", "25 GB/s", "80 Gb/s", 39.0),),
        worst="dimension 0's bandwidth",
        exchanges=(Exchange("a", 4096, 0.2, 0.19), Exchange("b", 1 << 26, 9.0, None)),
        dimensions=(Carried(0, 80.0, 0.01, 1 << 27),),
        fabric={"dimensions": [{"kind": "switch", "size": 4, "bandwidth": "80 Gb/s"}]},
        each=(Compared(7, 40.0, 30.0, 39.0), Compared(8, 41.0, 30.0, 39.0)),
        notes=("a note of the trace",),
    )


def scenario(policy: str, order: str, **schedule):
    return allrail.load_scenario(
        {
            "schema_version": 1,
            "fabric": "3D-SW_SW_SW_hetero",
            "collective": {"kind": "all_reduce", "size": "100 MB"},
            "schedule": {"policy": policy, "order": order, "chunks": 16, **schedule},
        }
    )


@pytest.fixture(scope="session")
def scenarios():
    return {
        "baseline": scenario("baseline", "fifo"),
        "themis": scenario("themis", "smallest_first"),
    }


@pytest.fixture(scope="session")
def results(scenarios):
    return {
        name: allrail.simulate(one, timeline=True, cache=False) for name, one in scenarios.items()
    }


@pytest.fixture(scope="session")
def reports(tmp_path_factory, results, scenarios):
    """A folder with `report.html` of every kind, by kind."""
    root = tmp_path_factory.mktemp("reports")
    write_results(root / "collectives", results=results, scenarios=scenarios)
    step = allrail.load_scenario(STEP)
    trained = allrail.simulate(step, timeline=True)
    assumed = allrail.what_if(step, ["infinite_bandwidth", "dim1_x2"], result=trained)
    write_training(
        root / "training",
        results={"step": trained},
        scenarios={"step": step},
        what_ifs=assumed,
    )
    shapes = {"2 x 8": [2, 8], "4 x 4": [4, 4], "2 x 4": [2, 4]}
    traffic = {
        name: allrail.load_scenario({**TRAFFIC, "fabric": {"topology": "torus", "shape": shape}})
        for name, shape in shapes.items()
    }
    write_traffic(
        root / "traffic",
        results={name: allrail.simulate(one) for name, one in traffic.items()},
        scenarios=traffic,
    )
    placed = place("hx4mesh-1k", mix="alibaba-2020", count=8, failed=1, run="all_reduce")
    write_placement(root / "placement", placed)
    write_placement(root / "queue", queue("hx4mesh-1k", mix="alibaba-2020", jobs=12))
    torus = {"topology": "torus", "shape": [4, 4]}
    study = {
        "schema_version": 1,
        "scenario": {**TRAFFIC, "fabric": torus},
        "axes": {"fabric.planes": [1, 2, 4], "traffic.size": ["64 KiB", "1 MiB", "2 MiB"]},
    }
    allrail.sweep(study, root / "sweep", workers=1)
    published = Published(3.0, 3.0, "Table 1")
    rows = [Row(f"case {n}", 3.0 + n / 10, published, "ms", why="it is so") for n in range(8)]
    Reproduction("A paper", rows, notes=["a note"]).write(root / "reproduction")
    asked = OfModel("gpt2", "dgx-a100", 16, 32, None, "a100")
    rank(job_of(None, asked, example=""), Asked(3, False, 1)).write(root / "layouts")
    write_answer(root / "tuning", "tuning", TUNED)
    write_answer(root / "verdict", "verdict", {**verdict().to_dict(), "run": "rec"})
    return {path.name: path for path in sorted(root.iterdir())}
