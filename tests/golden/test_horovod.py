"""Steps under coordination: what they cost, and what follows from the model without a run."""

from __future__ import annotations

import json

import pytest

from allrail import _core
from allrail.reproduce import horovod
from allrail.reproduce.horovod import RESNET, STEMDL, request, steps
from allrail.reproduce.horovod.planes import HIERARCHICAL, MPI, NCCL


def test_the_coordinations_are_listed():
    rows = json.loads(_core.coordinations())
    assert [row["name"] for row in rows] == ["none", "central", "tree", "cached", "agreed"]
    assert all(row["about"] and row["version"] >= 1 for row in rows)


@pytest.mark.parametrize("name", ["central", "tree", "cached", "agreed"])
def test_a_step_takes_its_computation_at_least(name: str) -> None:
    outcome = steps(request(RESNET, 12, {"policy": name}))
    assert outcome["step_us"] >= RESNET.compute_us - 0.001
    assert outcome["efficiency"] == pytest.approx(RESNET.compute_us / outcome["step_us"])
    assert outcome["efficiency"] > 0.95


def test_the_same_question_has_the_same_answer():
    tree = request(RESNET, 24, {"policy": "cached"})
    assert steps(tree) == steps(tree)


def test_rank_0_is_what_grows():
    def efficiency(name: str, ranks: int) -> float:
        way = horovod.RESNET_WAYS[name]
        return float(steps(request(RESNET, ranks, way, steps=3))["efficiency"])

    assert efficiency("central", 3200) < efficiency("central", 96) - 0.1
    assert efficiency("cached", 3200) > 0.95


def test_groups_make_fewer_buffers():
    ways = horovod.STEMDL_WAYS
    alone = steps(request(STEMDL, 12, ways["cached, 1 ms"]))
    grouped = steps(request(STEMDL, 12, ways["cached, 1 ms, grouped"]))
    assert grouped["buffers"] == horovod.GROUPS
    assert alone["buffers"] > 4 * horovod.GROUPS


def test_a_lag_hides_the_last_buffers():
    late = {"policy": "cached", "cycle": "5 ms"}
    without, lagged = (steps(request(RESNET, 48, late, lag=lag)) for lag in (0, 1))
    assert lagged["step_us"] < without["step_us"]


def test_an_all_reduce_over_1000_nodes():
    # NCCL's table: 4.4 + 2 (5 * 1.2 + log2(1000) * 8.5) us.
    assert NCCL.latency_ns(6000) == 185_818


def test_a_buffer_takes_its_latency_and_its_bytes():
    outcome = steps(request(RESNET, 12, {"policy": "cached", "cycle": "5 ms"}))
    bytes_us = sum(RESNET.tensors) / 10_300
    expected = bytes_us + outcome["buffers"] * NCCL.latency_ns(12) / 1000
    assert outcome["exchange_us"] == pytest.approx(expected)


def test_tensors_are_those_of_the_presets():
    """161 of ResNet-50: 53 convolutions, scale and offset of their norms, 2 of the classifier."""
    assert (len(RESNET.tensors), sum(RESNET.tensors)) == (161, 25_557_032 * 4)
    assert len(STEMDL.tensors) == 398
    assert sum(STEMDL.tensors) / 2 == pytest.approx(220e6, rel=0.01)
    assert RESNET.ready_us == sorted(RESNET.ready_us)
    assert RESNET.ready_us[-1] == pytest.approx(RESNET.compute_us)


def test_a_plane_is_its_links_one_after_the_other():
    assert NCCL.gbytes == 10.3
    assert MPI.gbytes == pytest.approx(1 / (2 / 50 + 2 / 25))
    assert HIERARCHICAL.gbytes < NCCL.gbytes
    assert HIERARCHICAL.latency_ns(6000) < NCCL.latency_ns(6000)
