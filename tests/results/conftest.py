"""Results to write and draw: three schedules of one collective."""

from __future__ import annotations

import pytest

import allrail
from allrail.placement import place, queue
from allrail.report.placement import write as write_placement
from allrail.reproduce.published import Published
from allrail.reproduce.rows import Reproduction, Row
from allrail.results import write_results
from allrail.results.traffic import write_traffic
from allrail.results.training import write_training

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
    trained = allrail.simulate_training(step, timeline=True)
    assumed = allrail.what_ifs(step, ["infinite_bandwidth", "dim1_x2"], result=trained)
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
        results={name: allrail.simulate_traffic(one) for name, one in traffic.items()},
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
    return {path.name: path for path in sorted(root.iterdir())}
