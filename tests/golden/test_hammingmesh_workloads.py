"""HammingMesh's workloads: published rows that are quick to simulate, and how rows are judged."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from allrail.reproduce.hammingmesh import workload_rows
from allrail.reproduce.hammingmesh.published import HX2, HYPERX, TORUS, TREE, TREE_50, TREE_75
from allrail.reproduce.hammingmesh.workloads import (
    DLRM,
    GPT3,
    JOBS,
    MOE,
    NETWORKS,
    RESNET,
    TEXT,
    WorkloadCase,
    cases_of,
    run,
)
from allrail.reproduce.work import core_simulate
from allrail.scenario.models import load_model


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What a stand-in answers must never be found by a real run."""
    monkeypatch.setenv("ALLRAIL_CACHE", str(tmp_path / "cache"))


def told(done: int, total: int) -> None:
    """Nobody looks."""
    assert done <= total


def simulated(*cases: WorkloadCase) -> dict[WorkloadCase, dict[str, Any]]:
    return {case: core_simulate(case.scenario, told) for case in cases}


def published(scenario, progress) -> dict[str, Any]:
    """Answers as the paper does."""
    progress(1, 1)
    for case in cases_of(("flows", "packets")):
        if case.scenario == scenario:
            compute = case.job.compute_ms
            time = case.job.published_ms.get(case.network, compute + 1)
            return {
                "step_time_us": 1e3 * time,
                "compute_us": 1e3 * compute,
                "exposed_communication_us": 1e3 * (time - compute),
            }
    raise AssertionError(scenario)


def test_quick_rows_are_as_published() -> None:
    cases = [WorkloadCase(TEXT, TREE)]
    cases += [WorkloadCase(RESNET, network) for network in (TREE, TREE_75, HYPERX, HX2, TORUS)]
    cases += [WorkloadCase(DLRM, network) for network in (TREE, TREE_50, HX2)]
    rows = [row for row in workload_rows.rows(simulated(*cases)) if row.kind != "report"]
    assert len(rows) == len(cases)
    assert [row.case for row in rows if not row.ok] == []


def test_gpt3_is_near_on_trees_and_small_meshes() -> None:
    """The order, and no gap above 10 %."""
    networks = [network for network in NETWORKS if network != TORUS]
    found = simulated(*(WorkloadCase(GPT3, network) for network in networks))
    ours = [found[WorkloadCase(GPT3, network)]["step_time_us"] / 1e3 for network in networks]
    for network, time in zip(networks, ours, strict=True):
        assert time == pytest.approx(GPT3.published_ms[network], rel=0.1)
    assert all(one <= other * (1 + 1e-3) for one, other in pairwise(ours))


def test_what_is_as_published_is_judged_so() -> None:
    outcome = run(simulate=published, cache=False)
    assert outcome.ok
    rows = {row.case: row for row in outcome.rows}
    assert rows["GPT-3, 2D torus"].ours == pytest.approx(72.2)
    for job in (GPT3, MOE):
        assert rows[f"{job.name}, pairs of networks in the wrong order"].ours == 0
    saving = rows["ResNet-152, saving of Hx4Mesh over fat tree (printed: more than)"]
    # The rule with printed times: 25.3 / 2.7 x 1.7 / 2.1.
    assert saving.ours == pytest.approx(7.59, abs=0.01)
    assert {picture.name for picture in outcome.pictures} == {"workloads"}
    assert {detail.name for detail in outcome.details} == {"workloads", "savings"}


def test_a_reversed_pair_is_counted_and_fails() -> None:
    def reversed_(scenario, progress) -> dict[str, Any]:
        result = published(scenario, progress)
        if scenario == WorkloadCase(GPT3, HX2).scenario:
            result["step_time_us"] = 100e3
        return result

    outcome = run(("flows",), simulate=reversed_, cache=False)
    case = "GPT-3, pairs of networks in the wrong order"
    row = next(row for row in outcome.rows if row.case == case)
    assert (row.ours, row.ok, outcome.ok) == (2, False, False)
    assert "reversed: Hx2Mesh > Hx4Mesh, Hx2Mesh > 2D torus" in row.how


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.preset)
def test_compute_adds_up_to_the_published_time(job) -> None:
    from allrail import _core

    steps = load_model(job.preset)["steps"]
    classes = [
        sum(
            _core.parse_quantity("time", step["compute"]) * step.get("repeat", 1)
            for step in steps["steps"][name]
            if "compute" in step
        )
        for name in steps["steps"]
    ]
    assert max(classes) / 1e9 == pytest.approx(job.compute_ms, rel=1e-3)
