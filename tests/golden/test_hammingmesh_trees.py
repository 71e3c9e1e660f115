"""`allrail reproduce hammingmesh --trees`: joined lines and tapered trees, by price and throughput.

Small meshes of the same kind are simulated here; what takes minutes is the command's.
"""

from __future__ import annotations

import json

import pytest

import allrail
from allrail.scenario.keys.traffic import Traffic
from allrail_reproduce.hammingmesh import trees
from allrail_reproduce.hammingmesh.trees import NETWORKS, Case, Trees, cases_of, cost


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What a stand-in answers must never be found by a real run."""
    monkeypatch.setenv("ALLRAIL_CACHE", str(tmp_path / "cache"))


def network(name: str, mesh: str = "hx2mesh-1k") -> Trees:
    return next(one for one in NETWORKS if (one.mesh, one.name) == (mesh, name))


def stand_in(scenario, progress):
    """Carries the more, the more lines are joined and the fewer uplinks are left out."""
    progress(1, 1)
    fabric = scenario["fabric"]
    share = 0.1 + 0.01 * fabric["joined_lines"] - 0.1 * fabric.get("taper", 0.0)
    told = {"pattern": scenario["traffic"]["pattern"], "npus": 1024, "injection_gbps": 1600.0}
    told |= {"share_of_injection": share, "share_of_optimum": share}
    return told | {"npu_bandwidth_gbps": {"mean": 1600.0 * share}}


def test_prices_are_the_papers_and_go_with_what_is_bought():
    # Table II: 5.4, 2.7 and 224 M$.
    assert cost(network(trees.PRICED)) == pytest.approx(5.41184)
    assert cost(network(trees.PRICED, "hx4mesh-1k")) == pytest.approx(2.70592)
    assert cost(network("a tree a line", "hx2mesh-16k")) == pytest.approx(224.116736)
    # A tree of 2,048 ends has as many switches an end as one of 128.
    assert cost(network("16 lines", "hx2mesh-16k")) == pytest.approx(224.116736)
    names = ["32 lines", "32 lines, 1/2 of the uplinks", "32 lines, 1/4 of the uplinks"]
    for mesh in ("hx2mesh-1k", "hx4mesh-1k"):
        prices = [cost(network(name, mesh)) for name in names]
        assert prices == sorted(prices, reverse=True)
        assert min(prices) > cost(network(trees.PRICED, mesh))


def test_every_case_is_a_scenario():
    for case in (case for one in NETWORKS for case in cases_of(one)):
        assert Traffic.model_validate(case.scenario["traffic"])
        assert case.scenario["network_model"] in ("flows", "packets")
        assert case.weight <= 60
    assert len({json.dumps(case.scenario) for one in NETWORKS for case in cases_of(one)}) == sum(
        len(cases_of(one)) for one in NETWORKS
    )


def test_rows_stand_beside_the_mesh_as_priced(tmp_path):
    outcome = trees.run(simulate=stand_in, cache=False)
    rows = {row.case: row for row in outcome.rows}
    gain = rows["hx2mesh-1k, 32 lines: permutation, packets"]
    assert gain.ours == pytest.approx(0.42 / 0.12)
    assert "42.00 of 12.00 %" in gain.how
    dearer = rows["hx2mesh-1k, 32 lines: cost"].ours
    assert f"for the price {gain.ours / dearer:.2f} x" in gain.how
    assert all(row.published is None for row in outcome.rows)
    [detail] = outcome.details
    assert len(detail.rows) == len(NETWORKS)
    large = [row for row in detail.rows if row[0] == "hx2mesh-16k"]
    assert all((row[-1], row[-3]) == (None, None) for row in large)
    outcome.write(tmp_path / "out")
    assert (tmp_path / "out" / "trees.svg").exists()
    assert "1/4 of the uplinks" in (tmp_path / "out" / "trees.csv").read_text()


def test_the_command_says_which_part_it_computes(allrail_cli, monkeypatch):
    from functools import partial

    monkeypatch.setattr(trees, "run", partial(trees.run, simulate=stand_in))
    told = allrail_cli("reproduce", "hammingmesh", "--trees", "--no-cache", "--json")
    assert told.status == 0, told.stderr
    cases = [row["case"] for row in json.loads(told.stdout)["rows"]]
    assert "hx4mesh-1k, 16 lines: all-reduce, flows" in cases
    both = allrail_cli("reproduce", "hammingmesh", "--trees", "--workloads")
    assert (both.status, "one of" in both.stderr) == (2, True)


def share(fabric: dict, **traffic) -> float:
    scenario = {"schema_version": 1, "fabric": fabric, "traffic": traffic, "network_model": "flows"}
    return float(allrail.simulate(scenario).to_dict()["share_of_injection"])


MESH = {
    "topology": "hammingmesh",
    "board": [2, 2],
    "grid": [8, 8],
    "switch_radix": 16,
    "link": {"bandwidth": "400 Gb/s", "latency": "20 ns"},
    "board_link": {"bandwidth": "400 Gb/s", "latency": "1 ns"},
}


def test_joined_lines_let_a_packet_cross_one_network_instead_of_two():
    """At best one of two cables: twice the share of traffic that is spread evenly."""
    uniform = {"pattern": "uniform", "size": "1 MiB", "paths": "ecmp"}
    alone, some, all_ = (share({**MESH, "joined_lines": n}, **uniform) for n in (1, 4, 16))
    assert alone < some < all_ <= 2 * alone
    assert all_ > 1.5 * alone


def test_a_taper_keeps_what_the_uplinks_carry():
    """Rows of 32 ends on leaves of 8 (10, 12) with 8 (6, 4) uplinks; 3/4 of a row is elsewhere."""
    mesh = {**MESH, "grid": [16, 2]}
    uniform = {"pattern": "uniform", "size": "1 MiB", "paths": "ecmp"}
    whole, half, quarter = (share({**mesh, "taper": t}, **uniform) for t in (0.0, 0.5, 0.75))
    assert whole > half > quarter
    # A leaf's uplinks over what wants to leave it.
    assert half / whole == pytest.approx(min(1, 6 / 10 / (1 - 10 / 32)), rel=0.15)
    assert quarter / whole == pytest.approx(min(1, 4 / 12 / (1 - 12 / 32)), rel=0.15)


def test_a_case_says_how_it_is_run():
    case = Case(network("32 lines"), "all-to-all", "flows")
    told = case.scenario["traffic"]
    assert (told["paths"], told["phases"]) == ("ecmp", trees.PHASES)
    assert "paths" not in Case(network("32 lines"), "all-to-all", "packets").scenario["traffic"]
    large = Case(network("16 lines", "hx2mesh-16k"), "all-to-all", "flows")
    assert large.scenario["traffic"]["phases"] == trees.LARGE_PHASES
