"""Where the network takes no time, no tensor scheduler gains; nor where there is one tensor."""

from __future__ import annotations

import pytest

from allrail_reproduce.bytescheduler import SETUPS
from allrail_reproduce.bytescheduler.testbed import CASES, Case, Network
from allrail_reproduce.bytescheduler.work import Work

INFINITE = "100 TB/s"
WAIT_US = 1_000
"""Horovod's baseline waits for its cycle, the others for an operation's overhead."""
ONE_LAYER = Case(
    "one layer",
    {"layers": [{"name": "fc", "dense": {"inputs": 25088, "outputs": 4096}}]},
    32,
    400.0,
)


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_at_infinite_bandwidth_nothing_is_gained(setup) -> None:
    network = Network(
        barrier=setup.network.barrier,
        servers=setup.network.servers,
        bandwidth=INFINITE,
        machine=None,
    )
    for best in Work(None, 1).compare(network, (*CASES, ONE_LAYER)):
        assert best.fifo.step_time_us - best.fifo.compute_us < WAIT_US
        assert best.gain < 100 * WAIT_US / best.fifo.compute_us


def test_a_single_tensor_that_is_all_reduced_gains_nothing() -> None:
    (best,) = Work(None, 1).compare(Network(servers=False), [ONE_LAYER])
    assert best.fifo.step_time_us > 1.2 * best.fifo.compute_us
    assert best.gain == pytest.approx(0, abs=1)
