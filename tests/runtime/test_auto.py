"""`algorithms: auto` on real ranks: the bits of the algorithm that a scenario's plan has chosen."""

from __future__ import annotations

import numpy as np
import pytest

import allrail

FASTEST = {
    "all_reduce": [
        {"from": "1 B", "algorithm": "direct"},
        {"from": "100 KB", "algorithm": "ring"},
        {"from": "1 MB", "algorithm": "double_binary_tree"},
    ]
}
SIZES = [1_000, 24_999, 25_000, 200_000, 300_000]
"""Of four bytes each: 100 KB is the third."""


def fabric(ranks, **more):
    dimension = {"kind": "switch", "size": ranks, "bandwidth": "10 Gb/s", "latency": "20 us"}
    return {"dimensions": [{**dimension, **more}]}


def summed(rank, job):
    """Sums whose last bits tell in which order ranks were added."""
    draw = np.random.default_rng(rank)
    found = []
    with allrail.Communicator(job=job) as group:
        for size in SIZES:
            array = draw.standard_normal(size).astype(np.float32)
            found.append(group.all_reduce(array).wait().tobytes())
    return found


def chosen(network, size):
    scenario = {
        "schema_version": 1,
        "fabric": network,
        "collective": {"kind": "all_reduce", "size": f"{4 * size} B"},
        "schedule": {"algorithms": "auto", "chunks": 1},
    }
    [plan] = allrail.plan(scenario).to_dict()["plans"]
    return plan["algorithms"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_sum_as_the_plan_of_a_scenario_says(ranks, on_ranks):
    network = fabric(ranks, fastest=FASTEST)
    job = {"schema_version": 1, "fabric": network, "schedule": {"chunks": 1}}

    def run(algorithms):
        asked = {**job, "schedule": {**job["schedule"], "algorithms": algorithms}}
        results = on_ranks(lambda rank: summed(rank, asked), ranks=ranks)
        assert all(one == results[0] for one in results)
        return results[0]

    auto = run("auto")
    names = [chosen(network, size) for size in SIZES]
    assert [one for [one] in names] == [*["direct"] * 2, *["ring"] * 2, "double_binary_tree"]
    named = {name: run([name]) for name in {one for [one] in names}}
    for place, [name] in enumerate(names):
        assert auto[place] == named[name][place]
    if ranks > 2:
        # With two there is one order only.
        assert len({bits[2] for bits in named.values()}) > 1
