"""Planned collectives on real topologies: in `dims` on their dimensions, else on the graph.

Rings along the rows and columns of a torus or a HammingMesh have cables of their own, so what
Themis gains on the dimensions it gains on the graph. The levels of a fat tree share the NPUs'
cables: there the dimensions promise what the graph cannot keep.
"""

from __future__ import annotations

import json

import pytest

import allrail

RINGS = {
    "torus": {"topology": "torus", "shape": [8, 8]},
    "hammingmesh": {"topology": "hammingmesh", "board": [2, 2], "grid": [4, 4]},
}
TREE = {"topology": "fat_tree", "npus": 64, "switch_radix": 16, "levels": 2}
NETWORK_MODELS = ("dims", "flows", "packets")


def times(fabric, network_models=NETWORK_MODELS):
    scenario = {
        "schema_version": 1,
        "fabric": fabric,
        "collective": {"kind": "all_reduce", "size": "64 MiB"},
        "schedule": {"chunks": 8},
    }
    rows = allrail.compare(
        scenario,
        each={"network_model": network_models, "schedule.policy": ("baseline", "themis")},
    )
    found = [row.result.time_us for row in rows]
    return {
        network_model: found[2 * i : 2 * i + 2] for i, network_model in enumerate(network_models)
    }


@pytest.mark.parametrize("fabric", RINGS.values(), ids=RINGS)
def test_what_themis_gains_on_rings_it_gains_on_the_graph(fabric):
    gained = times(fabric)
    for baseline, themis in gained.values():
        assert baseline / themis == pytest.approx(1.778, abs=0.01)
    for network_model in ("flows", "packets"):
        assert gained[network_model] == pytest.approx(gained["dims"], rel=0.005)


def test_the_levels_of_a_fat_tree_share_its_cables():
    gained = times(TREE)
    baseline, themis = gained["dims"]
    assert baseline / themis > 1.5
    for network_model in ("flows", "packets"):
        baseline, themis = gained[network_model]
        # Nothing is faster than all bytes on the NPU's one cable of 50 GB/s.
        least = 2 * (64 << 20) * 63 / 64 / 50e9 * 1e6
        assert themis > least
        assert baseline / themis < 1.1


def test_dimensions_of_planes_are_theirs_together():
    one = times(RINGS["torus"], ("dims", "flows"))
    four = times({**RINGS["torus"], "planes": 4}, ("dims", "flows"))
    for network_model in one:
        assert four[network_model] == pytest.approx(
            [time / 4 for time in one[network_model]], rel=0.01
        )


@pytest.mark.parametrize("network_model", ["flows", "packets"])
def test_a_fabric_of_dimensions_is_a_graph_too(network_model):
    scenario = {
        "schema_version": 1,
        "fabric": "tutorial-8x8x8",
        "collective": {"kind": "all_reduce", "size": "16 MiB"},
        "schedule": {"chunks": 4, "policy": "themis"},
    }
    dims, links, graph = (
        allrail.simulate(scenario, sets={"network_model": one}).time_us
        for one in ("dims", "links", network_model)
    )
    # `links` stores a whole message in a switch before it goes on; fluids and packets do not.
    assert graph == pytest.approx(dims, rel=0.1)
    assert graph < links


def test_a_plan_made_on_a_topology_runs_on_it(tmp_path):
    scenario = {
        "schema_version": 1,
        "fabric": RINGS["hammingmesh"],
        "collective": {"kind": "all_reduce", "size": "4 MiB"},
        "schedule": {"policy": "themis", "chunks": 4},
        "network_model": "flows",
    }
    plan = allrail.plan(scenario)
    result = allrail.simulate(scenario, plan=plan)
    assert (result.network_model, result.npus) == ("flows", 64)
    assert allrail.fabric.advise("hx2mesh-1k")["pairs"][0]["idle_gbps"] > 0


@pytest.mark.parametrize("network_model", ["links", "flows", "packets"])
def test_a_dimension_is_as_busy_as_in_dims(network_model):
    scenario = {
        "schema_version": 1,
        "fabric": {"topology": "torus", "shape": [4, 4]},
        "collective": {"kind": "all_reduce", "size": "16 MB"},
    }
    dims, other = (
        allrail.simulate(scenario, sets={"network_model": one}) for one in ("dims", network_model)
    )
    for one, two in zip(dims.dimensions, other.dimensions, strict=True):
        assert two.busy_fraction == pytest.approx(one.busy_fraction, rel=0.01)


def test_another_wiring_than_the_priced_one_is_told(folder, allrail_cli):
    scenario = {
        "schema_version": 1,
        "fabric": {"topology": "hyperx", "shape": [4, 4]},
        "collective": {"kind": "all_reduce", "size": "1 MiB"},
    }
    told = {
        network_model: allrail.simulate(scenario, sets={"network_model": network_model})
        for network_model in NETWORK_MODELS
    }
    assert told["dims"].simulated_as is None
    assert told["flows"].simulated_as == told["packets"].simulated_as
    assert "direct links" in told["flows"].simulated_as
    whole = allrail.simulate({**scenario, "fabric": RINGS["torus"], "network_model": "flows"})
    assert whole.simulated_as is None
    (folder / "one.json").write_text(json.dumps({**scenario, "network_model": "flows"}))
    outcome = allrail_cli("simulate", "one.json", "--out", "out")
    wiring = told["flows"].simulated_as
    assert wiring in outcome.stdout + outcome.stderr
    assert wiring in (folder / "out" / "report.html").read_text()
    (only,) = json.loads((folder / "out" / "result.json").read_text())["results"]
    assert only["result"]["simulated_as"] == wiring
    assert wiring in (folder / "out" / "results.csv").read_text()
