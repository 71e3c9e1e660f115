"""Training steps over parameter servers, as users ask for them.

Rules and cases by hand are the core's (`crates/simulate/tests/it/servers_oracle.rs`).
"""

from __future__ import annotations

from typing import Any

import pytest

import allrail
from allrail.simulation.api import simulate_many
from allrail_reproduce.bytescheduler.testbed import RESNET50, VGG16, Network

POLICIES: list[dict[str, Any]] = [
    {"policy": "fifo", "barrier": False},
    {"policy": "bytescheduler"},
    {"policy": "priority"},
]
"""As they come: nothing is tuned."""


@pytest.mark.parametrize("colocated", [False, True], ids=["separate", "colocated"])
def test_urgency_gains_where_the_link_binds_and_loses_nowhere(colocated) -> None:
    """16 workers at 25 Gb/s were 470 ms first come, first served, 730 with `bytescheduler`."""
    for case, bandwidth in ((VGG16, "25 Gb/s"), (RESNET50, "10 Gb/s")):
        network = Network(8, bandwidth, machine=None)
        trees = [network.scenario(case, policy) for policy in POLICIES]
        for tree in trees:
            tree["schedule"]["tensor"]["servers"]["colocated"] = colocated
        fifo, ours, p3 = (result.step_time_us for result in simulate_many(trees))
        assert ours < fifo
        # Each of P3's slices costs 30 us of overhead and latency, on co-located links twice.
        assert p3 < (1.2 if colocated else 1.0) * fifo


@pytest.mark.parametrize(
    ("workers", "servers"),
    [
        (5, {"count": 1}),
        (11, {"count": 1}),
        (7, {"count": 2, "colocated": False}),
        (11, {"count": 1, "colocated": False, "in_order": True}),
        (11, {"count": 3, "colocated": False, "in_order": True}),
    ],
)
def test_few_servers_of_many_workers_do_not_serve_them_one_after_the_other(
    workers, servers
) -> None:
    """With `bytescheduler`'s defaults: 471 ms were 391 first come, first served; 1,363 were 927."""
    trees = []
    for policy in POLICIES[:2]:
        tree = Network(workers, "10 Gb/s", machine=None).scenario(RESNET50, policy)
        tree["schedule"]["tensor"]["servers"] = servers
        trees.append(tree)
    fifo, ours = (result.step_time_us for result in simulate_many(trees))
    assert ours < fifo


@pytest.mark.parametrize(("workers", "count"), [(11, 3), (16, 4)])
def test_urgency_costs_no_more_than_one_partition_over_few_servers(workers, count) -> None:
    """Of 382 and 405 ms, 143 and 179 were lost: workers were served one after the other."""
    trees = []
    for policy in POLICIES[:2]:
        tree = Network(workers, "10 Gb/s", machine=None).scenario(RESNET50, policy)
        tree["schedule"]["tensor"]["servers"] = {"count": count, "colocated": False}
        trees.append(tree)
    fifo, ours = (result.step_time_us for result in simulate_many(trees))
    # All workers' copies of 4 MiB, pushed and pulled over the links of all servers.
    partition = 2 * workers * (4 << 20) / 1_250 / count
    assert ours < fifo + partition


def _step(servers: dict[str, Any], **workload: Any) -> Any:
    tensor = {"policy": "bytescheduler", "partition": "1 MiB", "servers": servers}
    scenario = Network(4, "10 Gb/s", machine=None).scenario(RESNET50, tensor, **workload)
    # Not what the testbed says of servers.
    scenario["schedule"]["tensor"]["servers"] = servers
    return allrail.simulate(scenario)


def test_a_straggler_is_waited_for_and_others_have_pushed_meanwhile() -> None:
    slow = {"stragglers": [{"ranks": [1], "factor": 1.5}]}
    alike, waiting = _step({"colocated": False}), _step({"colocated": False}, **slow)
    alone = _step({"colocated": False, "synchronous": False}, **slow)
    assert waiting.step_time_us >= 1.5 * alike.compute_us
    # Others' pushes do not wait for it, so that no more than its compute is added.
    assert waiting.step_time_us < alike.step_time_us + 0.55 * alike.compute_us
    # Those that run ahead share the links with the slow one: within one partition's time, 0.84 ms.
    assert alone.step_time_us <= waiting.step_time_us + 840
    assert any("slowest worker" in note for note in alone.notes)


def test_machines_beside_the_workers_take_byteps_shares() -> None:
    """With n = 4 and k = 2 a link carries 2·4·3/20 = 1.2 of M; co-located servers alone 1.5."""
    colocated = _step({})
    byteps = _step({"placement": "byteps", "count": 2})
    assert byteps.step_time_us < colocated.step_time_us


def test_a_machine_of_eight_gpus_sums_before_it_pushes() -> None:
    """The testbed of 16 x 8 V100, which gradients over two dimensions were once refused."""
    network, alone = Network(16), Network(16, machine=None)
    for case in (VGG16, RESNET50):
        trees = [one.scenario(case, {"policy": "bytescheduler"}) for one in (network, alone)]
        buses, links = simulate_many(trees)
        assert buses.step_time_us > links.step_time_us
        assert [dimension.size for dimension in buses.dimensions] == [8, 16]
