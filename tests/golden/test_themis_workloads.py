"""Themis' training steps: one fitted number per workload, and what it predicts."""

from __future__ import annotations

import pytest

from allrail_reproduce import themis_workloads as paper
from allrail_reproduce.grid import BASELINE, PLATFORMS, SCF
from allrail_reproduce.themis_workloads import cases, passes

FITTED = {"ResNet-152": 0.0217, "GNMT": 0.0861, "DLRM": 0.432}
"""What `allrail reproduce themis --workloads` finds; the search itself takes a minute."""


@pytest.mark.parametrize("name", FITTED)
def test_one_number_predicts_the_others(name: str) -> None:
    case = next(case for case in paper.CASES if case.name == name)
    steps = paper._steps(case, paper.scaled(FITTED[name]), (BASELINE, SCF, paper.IDEAL))
    rows = paper._rows(case, FITTED[name], steps)
    stated = None if case.ideal_largest is None else True
    assert [row.ok for row in rows] == [None, True, True, stated, None]
    assert [row.made.word for row in rows] == ["fitted"] * 5


OVER_PEAK = {"ResNet-152": 19.65, "GNMT": 5.38, "DLRM": 0.67}


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_says_how_fast_it_makes_the_device(name: str) -> None:
    """More than the peak is no device, and the row says so."""
    case = next(case for case in paper.CASES if case.name == name)
    steps = paper._steps(case, paper.scaled(FITTED[name]), (BASELINE, SCF, paper.IDEAL))
    row = next(row for row in paper._rows(case, FITTED[name], steps) if "peak" in row.case)
    assert row.ours == pytest.approx(OVER_PEAK[name], abs=0.01)
    assert ("no device is faster" in row.why) is (row.ours > 1)


MISSES = {
    "ResNet-152, A100's compute, mean speed-up": 1.031,
    "ResNet-152, A100's compute, largest speed-up": 1.083,
    "GNMT, A100's compute, mean speed-up": 1.042,
    "GNMT, A100's compute, largest speed-up": 1.108,
    "DLRM, A100's compute, mean speed-up": 1.182,
    "DLRM, A100's compute, largest speed-up": 1.485,
    "Transformer-1T, A100's compute, mean speed-up": 1.181,
}
"""What a real device's compute leaves to gain; who changes one says so."""


def test_a_real_devices_rows_are_out_as_they_are() -> None:
    rows = [row for case in paper.CASES for row in paper._devices(case)]
    assert {row.case: round(row.ours, 3) for row in rows if row.ok is False} == MISSES


def test_recomputing_brings_a_real_devices_transformer_into_range() -> None:
    """What a layer exchanges forward goes a second time, over dimensions that Themis balances."""
    rows = {row.case: row for row in paper._devices(cases.RECOMPUTED)}
    mean, largest = (
        rows[f"Transformer-1T, recomputed, A100's compute, {what} speed-up"]
        for what in ("mean", "largest")
    )
    assert (round(mean.ours or 0, 3), mean.ok) == (1.198, True)
    assert (round(largest.ours or 0, 3), largest.ok) == (1.475, True)
    assert mean.made.word == "chosen"


def test_the_gain_falls_as_compute_takes_longer() -> None:
    case = paper.CASES[0]
    gains = []
    for scale in (0.005, 0.02, 0.08):
        steps = paper._steps(case, paper.scaled(scale), (BASELINE, SCF))
        gains.append(sum(paper._gains(steps, SCF)) / len(PLATFORMS))
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.6
    assert gains[-1] < 1.3


def test_a_replica_lies_on_the_innermost_npus() -> None:
    transformer = paper.CASES[-1]
    assert cases.layout(transformer, "2D-SW_SW")["map"] == {"tp": [0, "1[0:8]"], "dp": ["1[8:]"]}
    assert cases.layout(transformer, "4D-Ring_SW_SW_SW")["map"] == {"tp": [0, 1, 2], "dp": [3]}


def test_a_step_is_shorter_the_more_of_the_network_is_used() -> None:
    detail = paper._assumed()
    assert [row[0] for row in detail.rows] == [case.name for case in paper.CASES]
    for row in detail.rows:
        parts = [float(str(part)) for part in row[1:]]
        assert parts[0] == 1
        assert parts == sorted(parts, reverse=True)
        assert parts[-1] < 1


def test_forward_and_backward_are_the_step() -> None:
    """With data parallelism alone nothing waits in the forward pass."""
    case = paper.CASES[0]
    steps = paper._steps(case, paper.scaled(0.02), (BASELINE,))[BASELINE]
    forward, backward = passes.passes(
        passes.measured(case, PLATFORMS[0], schedule=BASELINE, compute=paper.scaled(0.02))
    )
    assert forward.exposed == pytest.approx(0)
    assert backward.compute == pytest.approx(2 * forward.compute, rel=0.3)
    whole = forward.compute + backward.compute + backward.exposed
    assert whole == pytest.approx(steps[0].step_time_us / 1e3)
