"""Steps under coordination: what they cost, and what follows from the model without a run."""

from __future__ import annotations

import json

import pytest

from allrail import _core
from allrail_reproduce import horovod
from allrail_reproduce.horovod import RESNET, STEMDL, rank_zero, request, steps
from allrail_reproduce.horovod.planes import HIERARCHICAL, MPI, NCCL


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


def test_a_list_of_requests_costs_rank_0_what_was_measured():
    """Two ranks' lists, two answers, three cycles; two other ranks ask for 161 tensors each."""
    costs = rank_zero.SUMMIT
    done = rank_zero.load(costs, ranks=3, tensors=161, messages=3 * 4)
    assert done.cycles == 3
    assert done.network_us == pytest.approx(3 * (2 * 1.17 + 2 * 1.14))
    assert done.parse_us == pytest.approx(2 * 161 * 0.431)
    assert done.queue_us == pytest.approx(2 * 161 * 0.251)
    assert done.whole_us == pytest.approx(done.network_us + done.parse_us + done.queue_us)
    assert costs.latency["entry"] == "682 ns"
    tree = request(RESNET, 6, {"policy": "central"}, costs=rank_zero.OTHERS[2])
    assert tree["schedule"]["coordination"]["latency"]["wire"] == "10900 ns"


def test_central_falls_where_rank_0_has_as_much_to_do_as_the_backward_pass_takes():
    """As measured it is full at about 840 ranks; a core half as fast would be at 420."""

    def outcome(ranks: int) -> tuple[float, float]:
        found = steps(request(RESNET, ranks, {"policy": "central", "cycle": "5 ms"}, steps=3))
        done = rank_zero.load(
            rank_zero.SUMMIT, ranks=ranks, tensors=161, messages=found["messages"]
        )
        return found["efficiency"], done.whole_us / (RESNET.compute_us * 2 / 3)

    before, half = outcome(400)
    after, over = outcome(1600)
    assert half < 0.6
    assert before > 0.95
    assert over > 1.5
    assert after < 0.75


def test_the_table_of_rank_0_stands_beside_the_published_curve():
    answer = {"step_us": 2e5, "efficiency": 0.9, "buffers": 8.0, "exchange_us": 10.0}
    answer |= {"messages": 26.0 * 2 * 399}
    asked = horovod.cases_of(full=False, small=False)
    detail = horovod._rank_zero(dict.fromkeys(asked, answer))
    rows = [dict(zip(detail.header, row, strict=True)) for row in detail.rows]
    assert {row["costs"] for row in rows} == {
        "no thread cache, MPI on EDR",
        "thread cache, MPI on EDR",
        "no thread cache, MPI on QDR",
        "no thread cache, Gloo on TCP",
        "allrail's own, MPI on EDR",
    }
    published = {row["ranks"]: row["published"] for row in rows}
    assert published[400] == "near ideal"
    assert published[800] == "drops"
    (first,) = [row for row in rows if row["ranks"] == 400 and row["costs"] == rows[0]["costs"]]
    assert first["cycles"] == 26
    assert first["parse_ms"] == pytest.approx(399 * 161 * 431e-6)


def test_at_full_size_a_lag_is_compared_with_the_groups_and_the_tree():
    names = {case.way for case in horovod.cases_of(full=True, small=False) if case.ranks == 27_600}
    assert {"tree", "tree, one step of lag", horovod.GROUPED, horovod.GROUPED_LAGGED} <= names
    answer = {"step_us": 1e5, "efficiency": 0.9, "buffers": 8.0, "exchange_us": 10.0}
    results = {case: dict(answer) for case in horovod.cases_of(full=True, small=False)}
    for case, one in results.items():
        one["efficiency"] -= 0.2 if case.way == "tree" else 0.0
    rows = {row.case: row.ours for row in horovod.rows_of(results)}
    assert rows["STEMDL, tree, gain of a step of lag, 27600 ranks"] == pytest.approx(20)


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
