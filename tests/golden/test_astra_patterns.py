"""Patterns of messages as ASTRA-sim has them: times that it gave, and traces that allrail wrote."""

from __future__ import annotations

import json

import pytest

import allrail
from allrail.formats.astra_sim import read_case
from allrail.formats.traces import export_chakra
from allrail.scenario import load_scenario

NETWORK = {
    "topologies-per-dim": ["Switch"],
    "units-count": [8],
    "links-count": [1],
    "link-latency": [700],
    "link-bandwidth": [25.0],
}
LAYER = {"parameters": 2**18, "output": 1024, "forward": "1 ms", "backward": "2 ms"}


def micro(folder, *, chunks: int, active: int) -> float:
    """An all-reduce of 91 KiB on trees of 8 NPUs, in ns: files of 1.0."""
    network, system, workload = (folder / name for name in ("n.json", "s.txt", "w.txt"))
    network.write_text(json.dumps(NETWORK | {"dimensions-count": 1}))
    system.write_text(
        "scheduling-policy: FIFO\nendpoint-delay: 10\n"
        f"active-chunks-per-dimension: {active}\npreferred-dataset-splits: {chunks}\n"
        "all-reduce-implementation: doubleBinaryTree\ncollective-optimization: baseline\n"
    )
    workload.write_text("MICRO\n1\nlayer\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t93184\t10\n")
    case = read_case(network, system=system, workload=workload)
    return allrail.simulate(case.scenario).time_us * 1e3 + case.update_time


# What the tutorial's build (tag tutorial-asplos2022) prints; all chunks go through the same tree.
@pytest.mark.parametrize(
    ("chunks", "active", "expected"),
    [(1, 1, 29306), (2, 1, 37770), (4, 1, 54698), (4, 2, 27354), (4, 3, 27354), (8, 4, 22146)],
)
def test_a_tree_of_1_0_is_one_for_all_chunks(tmp_path, chunks, active, expected):
    assert micro(tmp_path, chunks=chunks, active=active) == pytest.approx(expected, rel=0.001)


TRAINED = {
    "model": {"layers": [{"name": "one", "repeat": 4, **LAYER}]},
    "precision": "fp32",
    "micro_batch": 1,
    "batch_per_replica": 2,
    "iterations": 1,
    "parallelism": {"pp": 2},
}


def on_a_ring(workload):
    """Four NPUs in `links`."""
    ring = {"kind": "ring", "size": 4, "bandwidth": "50 GB/s", "latency": "500 ns"}
    return load_scenario(
        {
            "schema_version": 1,
            "fabric": {"name": "ring", "dimensions": [ring]},
            "workload": workload,
            "world": "links",
        }
    )


def steps(scenario) -> list[float]:
    """How long each step takes, in us."""
    return allrail.simulate_training(scenario).to_dict()["steps_us"]


def test_a_pipeline_that_was_exported_takes_as_long_when_it_is_read(tmp_path):
    scenario = on_a_ring(TRAINED)
    export_chakra(scenario, folder=tmp_path, name="w")
    again = on_a_ring({"model": {"trace": str(tmp_path / "w")}, "iterations": 1})
    assert steps(again) == pytest.approx(steps(scenario), rel=1e-6)
    # And under ASTRA-sim's files, in which messages of ranks need `links`.
    (tmp_path / "n.yml").write_text(
        "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 46.566 ]\nlatency: [ 500.0 ]\n"
    )
    keys = {"endpoint-delay": 0, "preferred-dataset-splits": 1}
    rings = {f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather")}
    (tmp_path / "s.json").write_text(json.dumps(keys | rings))
    case = read_case(tmp_path / "n.yml", system=tmp_path / "s.json", workload=tmp_path / "w")
    assert case.scenario["world"] == "links"
    assert sum(steps(case.scenario)) == pytest.approx(sum(steps(scenario)), rel=0.05)
