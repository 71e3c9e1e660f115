"""Pictures of topologies: everything is in them, in a place of its own, and they repeat."""

from __future__ import annotations

from itertools import combinations

import pytest

from allrail.output.report.layout import layout
from allrail.output.report.renderers import picture
from allrail.output.report.topology import CABLES, _drawn, topology
from allrail.scenario import GraphFabric

WHOLE = {
    "hammingmesh": {"board": [2, 2], "grid": [4, 3]},
    "hammingmesh with trees": {
        "board": [2, 3],
        "grid": [5, 4],
        "switch_radix": 8,
        "rows": "per_accelerator",
    },
    "hammingmesh of 1D": {"board": [2, 3], "grid": [4, 1]},
    "hammingmesh_3d": {"board": [2, 1, 2], "grid": [2, 2, 2]},
    "torus": {"shape": [6, 4], "board": [2, 2]},
    "torus 3D": {"shape": [4, 3, 2]},
    "mesh": {"shape": [4, 3], "npus_per_switch": 5},
    "mesh 3D": {"shape": [3, 3, 3], "npus_per_switch": 2},
    "hyperx": {"shape": [5, 4]},
    "fat_tree": {"npus": 30, "switch_radix": 8, "levels": 2, "taper": 0.5},
    "fat_tree of 3": {"npus": 64, "switch_radix": 8, "levels": 3},
    "dragonfly": {"a": 4, "p": 2, "h": 2, "groups": 9, "switch_radix": 8},
    "composed": {
        "domains": 4,
        "inside": {"kind": "switch", "size": 4, "bandwidth": "400 GB/s", "latency": "1 us"},
        "outside": {"topology": "fat_tree", "npus": 16, "switch_radix": 8, "levels": 2},
    },
    "graph": {
        "npus": ["a", "b", "c", "d"],
        "switches": ["left", "right"],
        "links": [
            *({"from": npu, "to": "left"} for npu in "ab"),
            *({"from": npu, "to": "right", "cable": "aoc"} for npu in "bcd"),
            {"from": "left", "to": "right", "count": 2},
        ],
    },
    "graph of NPUs": {
        "npus": ["a", "b", "c"],
        "links": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}],
    },
}


def fabric(name: str, **keys) -> GraphFabric:
    tag = name.split(" ", maxsplit=1)[0]
    return GraphFabric.model_validate({"name": name, "topology": tag, **(keys or WHOLE[name])})


@pytest.mark.parametrize("name", WHOLE)
def test_no_two_nodes_are_on_top_of_each_other(name):
    some = fabric(name)
    drawn, changed = _drawn(some, dict(some.keys))
    drawing = layout(drawn)
    assert not changed
    assert len(drawing.at) == drawn.nodes
    for (x, y), (to_x, to_y) in combinations(drawing.at, 2):
        assert max(abs(x - to_x), abs(y - to_y)) >= 0.29


@pytest.mark.parametrize("name", WHOLE)
def test_every_cable_is_drawn_in_the_colour_of_its_kind(name):
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_hex

    some = fabric(name)
    drawn, _ = _drawn(some, dict(some.keys))
    drawing = layout(drawn)
    expected = dict.fromkeys(CABLES.values(), 0)
    for index, (_one, _other, kind) in enumerate(drawn.cables):
        expected[CABLES[kind]] += len(drawing.ways.get(index, [1]))
    (axes,) = topology(some).axes
    found = {
        to_hex(lines.get_color()[0]): len(lines.get_segments())
        for lines in axes.collections
        if isinstance(lines, LineCollection)
    }
    assert found == {colour: count for colour, count in expected.items() if count}


def texts(figure):
    (axes,) = figure.axes
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    return [axes.get_title(loc="left"), *(text.get_text() for text in axes.texts), *legend]


def test_failed_parts_are_marked():
    some = fabric("torus", shape=[4, 4], failed_nodes=[5], failed_links=[[0, 1], [2, 3]], planes=2)
    assert "failed: 1 node, 6 cables" in texts(topology(some))
    mesh = fabric("hammingmesh", board=[2, 2], grid=[3, 3], failed_boards=[[0, 1]])
    assert "failed: 1 board" in texts(topology(mesh))
    own = fabric("graph", **WHOLE["graph"], failed_nodes=["a"], failed_links=[["left", "right"]])
    assert "failed: 1 node, 2 cables" in texts(topology(own))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hx2mesh-16k", "grid [4, 4] instead of [64, 64]"),
        ("torus-1k", "shape [8, 8] instead of [32, 32]"),
        ("fat-tree-16k-taper50", "npus 64 instead of 16384"),
        ("dragonfly-16k", "a 4 instead of 32"),
        ("hyperx-1k", "shape [6, 6] instead of [32, 32]"),
    ],
)
def test_large_networks_are_drawn_smaller_and_say_so(name, said):
    from allrail.scenario import load_any_fabric

    assert any(said in text for text in texts(topology(load_any_fabric(name))))


def test_what_has_failed_in_a_large_network_is_left_out_aloud():
    some = fabric("torus", shape=[32, 32], failed_nodes=[7])
    told = texts(topology(some))
    assert any("failed_nodes [] instead of [7]" in text for text in told)
    assert not any(text.startswith("failed:") for text in told)


def test_a_picture_repeats_byte_for_byte(tmp_path):
    for file in ("one.svg", "two.svg"):
        picture("hx2mesh-1k", tmp_path / file)
    one = (tmp_path / "one.svg").read_bytes()
    assert one == (tmp_path / "two.svg").read_bytes()
    assert b"</svg>" in one
