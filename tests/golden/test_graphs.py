"""Graph fabrics: the sixteen clusters of HammingMesh (SC'22), Table II, from the command line."""

from __future__ import annotations

import json

import pytest

from allrail.simulation.graphs import count, read_prices

# NPUs, M$ as printed, diameter as printed; None where search and print differ (see docs/concepts).
TABLE_II = {
    "fat-tree-1k": (1024, "25.3", 4),
    "fat-tree-1k-taper50": (1024, "17.6", 4),
    "fat-tree-1k-taper75": (1024, "13.2", 4),
    "dragonfly-1k": (1024, "27.9", None),
    "hyperx-1k": (1024, "10.8", 4),
    "hx2mesh-1k": (1024, "5.4", 4),
    "hx4mesh-1k": (1024, "2.7", None),
    "torus-1k": (1024, "2.5", 32),
    "fat-tree-16k": (16384, "680", 6),
    "fat-tree-16k-taper50": (16384, "419", 6),
    "fat-tree-16k-taper75": (16384, "271", 6),
    "dragonfly-16k": (16320, "429", 5),
    "hyperx-16k": (16384, "448", 8),
    "hx2mesh-16k": (16384, "224", 8),
    "hx4mesh-16k": (16384, "43.3", 8),
    "torus-16k": (16384, "39.5", 128),
}


@pytest.mark.parametrize("name", TABLE_II)
def test_show_json_has_the_promised_names(allrail_cli, name):
    outcome = allrail_cli("fabric", "show", name, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    tree = json.loads(outcome.stdout)
    npus, cost, diameter = TABLE_II[name]
    assert tree["npus"] == tree["npus_working"] == npus
    assert set(tree["cables"]) == {"aoc", "dac", "pcb"}
    digits = len(cost.partition(".")[2])
    assert f"{tree['cost_usd'] / 1e6:.{digits}f}" == cost
    if diameter is not None:
        assert tree["diameter"] == tree["diameter_bfs"] == diameter
    assert tree["half_plane_cut_links"] > 0
    assert tree["planes"] in (4, 16)


def test_the_two_exceptions(allrail_cli):
    def diameters(name):
        tree = json.loads(allrail_cli("fabric", "show", name, "--json").stdout)
        return tree["diameter"], tree["diameter_bfs"]

    assert diameters("hx4mesh-1k") == (8, 6)
    assert diameters("dragonfly-1k") == (4, 4)


def test_show_is_a_page(allrail_cli):
    page = allrail_cli("fabric", "show", "hx2mesh-1k").stdout
    for part in ("hammingmesh", "1,024", "128", "5.412 M$", "512 links a plane, 25.0 %"):
        assert part in page


def test_list_names_graphs_too(allrail_cli):
    assert "hx2mesh-1k" in allrail_cli("fabric", "list").stdout
    fabrics = json.loads(allrail_cli("fabric", "list", "--json").stdout)["fabrics"]
    assert {"dgx2", *TABLE_II} <= {fabric["name"] for fabric in fabrics}


def test_cost_is_table_ii(allrail_cli):
    table = allrail_cli("cost", *TABLE_II).stdout
    rows = [line.split() for line in table.splitlines() if not line.startswith("#")]
    assert rows[0] == [
        *("fabric", "npus", "switches", "AoC", "DAC", "diameter", "cost_M$", "npus/M$", "savings")
    ]
    assert rows[1][:7] == ["fat-tree-1k", "1024", "768", "16384", "16384", "4", "25.303"]
    assert [row[8] for row in rows[1:8]] == [
        *("1.000", "1.434", "1.912", "0.906", "2.338", "4.675", "9.351")
    ]
    assert [row[0] for row in rows[1:]] == list(TABLE_II)


def test_cost_takes_prices(folder, allrail_cli):
    (folder / "prices.yaml").write_text("switch: 1\naoc: 0\ndac: 0.5\n")
    outcome = allrail_cli("cost", "hx2mesh-1k", "--prices", "prices.yaml", "--json")
    tree = json.loads(outcome.stdout)
    assert tree["prices"] == {"switch": 1, "aoc": 0, "dac": 0.5, "pcb": 0}
    assert tree["fabrics"][0]["cost_usd"] == 128 + 4096 / 2
    assert allrail_cli("cost", "hx2mesh-1k", "--prices", "hammingmesh").status == 0


def test_the_packaged_prices_are_the_defaults():
    expected = {"switch": 14_280, "aoc": 603, "dac": 272, "pcb": 0}
    assert read_prices() == expected
    assert count("hx2mesh-1k")["cost_usd"] == 128 * 14_280 + 4_096 * (603 + 272)


def test_a_failed_board_is_bought_but_gone(folder, allrail_cli):
    text = allrail_cli("fabric", "show", "hx2mesh-1k", "--yaml").stdout
    (folder / "broken.yaml").write_text(text + "failed_boards: [[0, 0], [3, 2]]\n")
    tree = json.loads(allrail_cli("fabric", "show", "broken.yaml", "--json").stdout)
    assert (tree["npus"], tree["npus_working"]) == (1024, 1016)
    assert tree["cost_usd"] == count("hx2mesh-1k")["cost_usd"]


def show(allrail_cli, name):
    return json.loads(allrail_cli("fabric", "show", name, "--json").stdout)


def test_failed_nodes_and_links_are_bought_but_gone(folder, allrail_cli):
    text = allrail_cli("fabric", "show", "fat-tree-1k", "--yaml").stdout
    failed = "failed_nodes: [7, 1056]\nfailed_links: [[1024, 1057]]\n"
    (folder / "broken.yaml").write_text(text + failed)
    tree, whole = show(allrail_cli, "broken.yaml"), show(allrail_cli, "fat-tree-1k")
    assert (tree["npus"], tree["npus_working"], tree["diameter"]) == (1024, 1023, None)
    assert (tree["cost_usd"], tree["diameter_bfs"]) == (whole["cost_usd"], 4)
    page = allrail_cli("fabric", "show", "broken.yaml").stdout
    assert "NPUs 0 to 1023, switches 1024 to 1071" in page


def test_planners_see_dimensions_of_products(allrail_cli):
    torus = show(allrail_cli, "torus-1k")["dimensions"]
    assert [(one["kind"], one["size"], one["links"]) for one in torus] == [("ring", 32, 8)] * 2
    mesh = show(allrail_cli, "hx2mesh-1k")["dimensions"]
    assert [(one["kind"], one["size"], one["links"]) for one in mesh] == [("ring", 32, 8)] * 2
    dragonfly = show(allrail_cli, "dragonfly-1k")
    assert dragonfly["dimensions"] is None
    assert "groups" in dragonfly["no_dimensions"]
    page = allrail_cli("fabric", "show", "hyperx-1k").stdout
    assert "fully_connected of 32 with 4 x 400 Gb/s" in page
    assert "simulated with direct links" in page


OWN = """\
npus: [0, 1, 2]
switches: [left, right]
links:
  - {from: 0, to: left, bandwidth: 100 Gb/s}
  - {from: 1, to: left}
  - {from: 2, to: right, cable: aoc}
  - {from: left, to: right, count: 2}
"""


def networkx_tree(*, edges, kind):
    nodes = [*({"id": npu, kind: "npu", "pos": [npu, 0]} for npu in range(3))]
    nodes += [{"id": "left", kind: "switch"}, {"id": "right", kind: "switch"}]
    between = {"source": "left", "target": "right"}
    links = [
        {"source": 0, "target": "left", "bandwidth": "100 Gb/s", "key": 0},
        {"source": 1, "target": "left", "key": 0},
        {"source": 2, "target": "right", "cable": "aoc", "key": 0},
        *({**between, "key": key} for key in range(2)),
    ]
    return {"directed": False, "multigraph": True, "graph": {}, "nodes": nodes, edges: links}


@pytest.mark.parametrize(("edges", "kind"), [("edges", "kind"), ("links", "type")])
def test_a_graph_of_ones_own_from_yaml_and_networkx(folder, allrail_cli, edges, kind):
    (folder / "inline.yaml").write_text("topology: graph\nplanes: 2\n" + OWN)
    inner = folder / "nets"
    inner.mkdir()
    (inner / "own.yaml").write_text("schema_version: 1\nabout: A test.\n" + OWN)
    (inner / "own.json").write_text(json.dumps(networkx_tree(edges=edges, kind=kind), indent=1))
    expected = show(allrail_cli, "inline.yaml")
    assert (expected["npus"], expected["switches"], expected["diameter_bfs"]) == (3, 4, 3)
    assert expected["cables"] == {"aoc": 2, "dac": 8, "pcb": 0}
    for file in ("own.yaml", "own.json"):
        (inner / "mine.yaml").write_text(f"topology: graph\nplanes: 2\nfile: {file}\n")
        tree = show(allrail_cli, "nets/mine.yaml")
        assert {**tree, "name": "", "keys": 0} == {**expected, "name": "", "keys": 0}
        assert tree["keys"] == expected["keys"]


def test_a_mesh_is_counted_and_priced(folder, allrail_cli):
    (folder / "mesh.yaml").write_text("topology: mesh\nshape: [4, 6]\nnpus_per_switch: 2\n")
    tree = show(allrail_cli, "mesh.yaml")
    assert (tree["npus"], tree["switches"]) == (48, 24)
    assert tree["cables"] == {"aoc": 20, "dac": 18, "pcb": 48}
    assert tree["cost_usd"] == 24 * 14_280 + 20 * 603 + 18 * 272
    assert tree["diameter"] == tree["diameter_bfs"] == 10
    assert (tree["half_plane_cut_links"], tree["half_plane_cut_share"]) == (4, 4 / 24)


def test_what_is_too_large_to_build_is_counted(folder, allrail_cli):
    (folder / "huge.yaml").write_text("topology: torus\nshape: [4096, 4096]\n")
    tree = json.loads(allrail_cli("fabric", "show", "huge.yaml", "--json").stdout)
    assert (tree["npus"], tree["diameter"]) == (1 << 24, 4096)
    assert (tree["npus_working"], tree["diameter_bfs"]) == (None, None)
    page = allrail_cli("fabric", "show", "huge.yaml").stdout
    assert "- by search" in page


@pytest.mark.parametrize(
    ("name", "shared"),
    [("fat-tree-1k", True), ("hyperx-1k", True), ("hx2mesh-1k", False), ("today", False)],
)
def test_advice_says_where_dimensions_share_a_port(allrail_cli, name, shared):
    page = allrail_cli("fabric", "advise", name).stdout
    assert ("share the port of an NPU" in page) is shared
