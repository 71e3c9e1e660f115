"""Graph fabrics: the sixteen clusters of HammingMesh (SC'22), Table II, from the command line."""

from __future__ import annotations

import json

import pytest

from allrail.graphs import count, read_prices

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
    assert rows[0] == ["fabric", "npus", "switches", "AoC", "DAC", "M$", "npus/M$"]
    assert rows[1][:6] == ["fat-tree-1k", "1024", "768", "16384", "16384", "25.303"]
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


def test_what_is_too_large_to_build_is_counted(folder, allrail_cli):
    (folder / "huge.yaml").write_text("topology: torus\nshape: [4096, 4096]\n")
    tree = json.loads(allrail_cli("fabric", "show", "huge.yaml", "--json").stdout)
    assert (tree["npus"], tree["diameter"]) == (1 << 24, 4096)
    assert (tree["npus_working"], tree["diameter_bfs"]) == (None, None)
    page = allrail_cli("fabric", "show", "huge.yaml").stdout
    assert "- by search" in page
