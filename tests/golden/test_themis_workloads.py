"""Themis' training steps: one fitted number per workload, and what it predicts."""

from __future__ import annotations

import pytest

from allrail.reproduce import themis_workloads as paper
from allrail.reproduce.grid import BASELINE, PLATFORMS, SCF

FITTED = {"ResNet-152": 0.0217, "GNMT": 0.0861, "DLRM": 0.432}
"""What `allrail reproduce themis --workloads` finds; the search itself takes a minute."""


@pytest.mark.parametrize("name", FITTED)
def test_one_number_predicts_the_others(name: str) -> None:
    case = next(case for case in paper.CASES if case.name == name)
    steps = paper._steps(case, FITTED[name], (BASELINE, SCF, paper.IDEAL))
    rows = paper._rows(case, FITTED[name], steps)
    assert len(rows) == 3
    assert all(row.ok for row in rows), [(row.case, row.ours, row.published) for row in rows]


def test_the_gain_falls_as_compute_takes_longer() -> None:
    case = paper.CASES[0]
    gains = []
    for scale in (0.005, 0.02, 0.08):
        steps = paper._steps(case, scale, (BASELINE, SCF))
        gains.append(sum(paper._gains(steps, SCF)) / len(PLATFORMS))
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.6
    assert gains[-1] < 1.3


def test_a_replica_lies_on_the_innermost_npus() -> None:
    transformer = paper.CASES[-1]
    assert paper.layout(transformer, "2D-SW_SW")["map"] == {"tp": [0, "1[0:8]"], "dp": ["1[8:]"]}
    assert paper.layout(transformer, "4D-Ring_SW_SW_SW")["map"] == {"tp": [0, 1, 2], "dp": [3]}
