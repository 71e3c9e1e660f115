"""Composed networks in all worlds: collectives and training steps on one fabric."""

from __future__ import annotations

import pytest

import allrail

POD = {
    "topology": "composed",
    "domains": 4,
    "inside": {"kind": "switch", "size": 4, "bandwidth": "400 GB/s", "latency": "1 us"},
    "ports": "by_rail",
    "outside": {"topology": "fat_tree", "npus": 16, "levels": 2, "switch_radix": 8},
}
WORLDS = ("dims", "links", "flows", "packets")


def scenario(world: str, **more) -> dict:
    return {"schema_version": 1, "fabric": POD, "world": world, **more}


@pytest.mark.parametrize("world", WORLDS)
def test_collectives_take_the_inside_and_the_outside(world):
    """Of an all-reduce on both, a quarter leaves the domains."""
    collective = {"kind": "all_reduce", "size": "16 MiB"}
    result = allrail.simulate(scenario(world, collective=collective)).to_dict()
    # 3/4 of 16 MiB twice at 400 GB/s inside, the same of 4 MiB at 50 GB/s outside, side by side.
    assert 125.8 < result["time_us"] < 62.9 + 125.8 + 60


@pytest.mark.parametrize("world", WORLDS)
def test_training_steps_run(world):
    workload = {
        "model": "vgg16",
        "parallelism": {"dp": 16},
        "micro_batch": 1,
        "iterations": 2,
        "compute": {"peak": "100000 TFLOP/s", "efficiency": 1.0},  # next to no time
    }
    result = allrail.simulate_training(scenario(world, workload=workload)).to_dict()
    # 553 MB of gradients, 3/4 of a quarter of them twice at 50 GB/s.
    assert 4150 < result["exposed_us"]["data"] < 4180
