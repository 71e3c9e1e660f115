"""Mistakes in graph fabrics and prices: one message with its place, a hint, exit status 2."""

from __future__ import annotations

import json

import pytest

from allrail.scenario.presets import fabric_text

FILES = {
    "hammingmesh": fabric_text("hx2mesh-1k") + "failed_boards: []\n",
    "fat_tree": fabric_text("fat-tree-1k-taper50"),
    "dragonfly": fabric_text("dragonfly-1k"),
    "torus": fabric_text("torus-1k"),
    "hyperx": fabric_text("hyperx-1k"),
    "mesh": "topology: mesh\nshape: [4, 3]\nnpus_per_switch: 2\n",
    "failing": "topology: torus\nshape: [4, 4]\nfailed_nodes: [3]\nfailed_links: [[0, 1]]\n",
    "composed": """\
topology: composed
domains: 8
inside: {kind: switch, size: 8, bandwidth: 450 GB/s, latency: 1 us}
npus_per_port: 1
outside:
  topology: fat_tree
  npus: 64
  levels: 2
  switch_radix: 32
""",
    "graph": """\
topology: graph
npus: [a, b, c]
switches: [hub, top]
link: {bandwidth: 200 Gb/s, cable: aoc}
links: [{from: a, to: hub}, {from: b, to: hub, latency: 5 ns}, \
{from: c, to: top, count: 2}, {from: hub, to: top}]
failed_nodes: []
failed_links: []
""",
}

FAT_TREE = "\n  topology: fat_tree\n  npus: 64\n  levels: 2\n  switch_radix: 32"

NODES = '{"nodes": [{"id": 0, "kind": "npu"}, {"id": 1, "type": "npu"}],\n'

# Which file, what is written, what is written instead, the field, the value, a part of why or hint.
CASES = [
    (
        "hammingmesh",
        "topology: hammingmesh",
        "topology: hamingmesh",
        "topology",
        "hamingmesh",
        "mea",
    ),
    ("hammingmesh", "topology: hammingmesh", "topology: 7", "topology", "7", "`fat_tree`"),
    ("hammingmesh", "board: [2, 2]", "board: [2, 0]", "board", "[2, 0]", "0"),
    ("hammingmesh", "board: [2, 2]", "board: [2]", "board", "[2]", "2 values"),
    ("hammingmesh", "board: [2, 2]", "board: 2", "board", "2", "list"),
    ("hammingmesh", "board: [2, 2]", "board: [2, x]", "board[1]", "x", "whole"),
    ("hammingmesh", "grid: [16, 16]", "gird: [16, 16]", "gird", "[16, 16]", "did you mean `grid`?"),
    ("hammingmesh", "grid: [16, 16]", "grid: [-1, 16]", "grid[0]", "-1", "below 0"),
    ("hammingmesh", "grid: [16, 16]", "grid: [99999, 99999]", "grid", "99999 x 99999", "more than"),
    ("hammingmesh", "switch_radix: 64", "switch_radix: 2", "switch_radix", "2", "4 ports"),
    ("hammingmesh", "switch_radix: 64", "switch_radix: 63", "switch_radix", "63", "odd"),
    (
        "hammingmesh",
        "switch_radix: 64",
        "switch_radix: 32\nrows: merged",
        "switch_radix",
        "32",
        "64 ports",
    ),
    ("hammingmesh", "planes: 4", "planes: 0", "planes", "0", "below 1"),
    ("hammingmesh", "planes: 4", "planes: 4\nrows: shared", "rows", "shared", "per_accelerator"),
    ("hammingmesh", "planes: 4", "planes: 4\ntaper: 0.5", "taper", "0.5", "no uplinks"),
    ("hammingmesh", "planes: 4", "planes: 4\nglobal: ring", "global", "ring", "slim_fly"),
    ("hammingmesh", "planes: 4", "planes: 4\njoined_lines: 3", "joined_lines", "3", "multiple"),
    (
        "hammingmesh",
        "planes: 4",
        "planes: 4\njoined_lines: 4\nrows: merged",
        "joined_lines",
        "4",
        "`rows`",
    ),
    ("hammingmesh", "1 ns}", "1}", "board_link.latency", "1", "unit"),
    (
        "hammingmesh",
        "link: {bandwidth: 400",
        "link: {bandwith: 400",
        "link.bandwith",
        "400",
        "mean",
    ),
    (
        "hammingmesh",
        "failed_boards: []",
        "failed_boards: [[16, 0]]",
        "failed_boards[0]",
        "[16, 0]",
        "[15, 15]",
    ),
    (
        "hammingmesh",
        "failed_boards: []",
        "failed_boards: [[1, 1], [1, 1]]",
        "failed_boards[1]",
        "[1, 1]",
        "twice",
    ),
    (
        "hammingmesh",
        "failed_boards: []",
        f"failed_boards: {[[i % 16, i // 16] for i in range(257)]}",
        "failed_boards",
        "257 boards",
        "256 boards",
    ),
    ("fat_tree", "taper: 0.5", "taper: 1", "taper", "1", "share"),
    ("fat_tree", "taper: 0.5", "taper: -0.1", "taper", "-0.1", "share"),
    ("fat_tree", "taper: 0.5", "taper: half", "taper", "half", "number"),
    ("fat_tree", "taper: 0.5", "taper: .nan", "taper", "NaN", "number"),
    ("fat_tree", "levels: 2", "levels: 4", "levels", "4", "2 or 3"),
    ("fat_tree", "npus: 1024", "npus: 1", "npus", "1", "2 NPUs"),
    ("fat_tree", "npus: 1024", "npus: 100000", "switch_radix", "64", "levels: 3"),
    ("dragonfly", "h: 8", "h: 50", "switch_radix", "64", "73 ports"),
    ("dragonfly", "groups: 8\n", "groups: 1\n", "groups", "1", "2 groups"),
    ("dragonfly", "groups: 8\n", "groups: 200\n", "groups", "200", "129 groups"),
    ("dragonfly", "a: 16", "a: 0", "a", "0", "below 1"),
    ("torus", "board: [2, 2]", "board: [2, 3]", "board", "[2, 3]", "do not tile"),
    ("torus", "board: [2, 2]", "board: [2, 2, 2]", "board", "[2, 2, 2]", "2 dimensions"),
    ("torus", "shape: [32, 32]", "shape: [32]", "shape", "[32]", "2 to 3"),
    ("torus", "shape: [32, 32]", "shape: [32, 1]", "shape", "[32, 1]", "ring"),
    ("torus", "planes: 4", "dimensions: []", "dimensions", "[]", "the keys here are"),
    ("hyperx", "shape: [32, 32]", "shape: [0, 32]", "shape", "[0, 32]", "0"),
    (
        "hyperx",
        "planes: 4",
        "planes: 4\nfailed_nodes: [5, 1024]",
        "failed_nodes[1]",
        "1024",
        "only NPUs",
    ),
    ("mesh", "shape: [4, 3]", "shape: [4, 1]", "shape", "[4, 1]", "no neighbours"),
    ("mesh", "shape: [4, 3]", "shape: [4]", "shape", "[4]", "2 to 3"),
    ("mesh", "npus_per_switch: 2", "npus_per_switch: 0", "npus_per_switch", "0", "below 1"),
    (
        "mesh",
        "npus_per_switch: 2",
        "npus_per_switch: 7\nswitch_radix: 10",
        "switch_radix",
        "10",
        "11 ports",
    ),
    ("failing", "failed_nodes: [3]", "failed_nodes: [16]", "failed_nodes[0]", "16", "0 to 15"),
    ("failing", "failed_nodes: [3]", "failed_nodes: [3, 3]", "failed_nodes[1]", "3", "twice"),
    ("failing", "failed_nodes: [3]", "failed_nodes: [-3]", "failed_nodes[0]", "-3", "below 0"),
    ("failing", "failed_nodes: [3]", "failed_nodes: 3", "failed_nodes", "3", "list"),
    (
        "failing",
        "failed_nodes: [3]",
        f"failed_nodes: {list(range(16))}",
        "failed_nodes",
        "16 NPUs",
        "one must work",
    ),
    ("failing", "[[0, 1]]", "[[0, 5]]", "failed_links[0]", "0 to 5", "no cable joins"),
    ("failing", "[[0, 1]]", "[[0, 1], [1, 0]]", "failed_links[1]", "1 to 0", "fewer cables"),
    ("failing", "[[0, 1]]", "[[0, 77]]", "failed_links[0]", "77", "no such node"),
    ("failing", "[[0, 1]]", "[[0]]", "failed_links[0]", "[0]", "2 values"),
    ("composed", "domains: 8", "domains: 9", "outside", "64 NPUs", "do not meet"),
    ("composed", "npus_per_port: 1", "npus_per_port: 3", "npus_per_port", "3", "divisor"),
    ("composed", "npus: 64", "npus: 63", "outside", "63 NPUs", "64 ports"),
    ("composed", "npus: 64", "npu: 64", "outside.npu", "64", "did you mean `npus`?"),
    ("composed", "levels: 2", "levels: 4", "outside.levels", "4", "2 or 3"),
    ("composed", "topology: fat_tree", "topology: fat_tee", "outside.topology", "fat_tee", "mean"),
    ("composed", "size: 8", "size: 1", "inside.size", "1", "2 NPUs"),
    ("composed", "450 GB/s", "450", "inside.bandwidth", "450", "unit"),
    ("composed", "domains: 8", "domains: 0", "domains", "0", "below 1"),
    ("composed", "npus_per_port: 1", "npus_per_port: 2", "outside", "64 NPUs", "32 ports"),
    ("composed", "npus_per_port: 1", "ports: by_rack", "ports", "by_rack", "by_rail"),
    (
        "composed",
        FAT_TREE,
        " {topology: graph, npus: [a, b], links: [{from: a, to: b}]}",
        "outside",
        "2 NPUs",
        "64 ports",
    ),
    (
        "composed",
        FAT_TREE,
        " {topology: dragonfly, a: 4, p: 2, h: 2, groups: 9}",
        "outside",
        "72 NPUs",
        "domains: 9",
    ),
    ("composed", FAT_TREE, " {topology: torus, shape: [8, 9]}", "outside", "72 NPUs", "64 ports"),
    ("composed", FAT_TREE, " nvlink", "outside", "nvlink", "topology"),
    ("graph", "to: hub}", "to: hubb}", "links[0].to", "hubb", "`a`, `b`"),
    ("graph", "to: hub}", "to: a}", "links[0].to", "a", "itself"),
    ("graph", "{from: a,", "{form: a,", "links[0].form", "a", "did you mean `from`?"),
    ("graph", "from: hub, to: top", "from: hub, to: b", "links[3]", "hub to b", "`count`"),
    ("graph", "count: 2", "count: 0", "links[2].count", "0", "below 1"),
    ("graph", "count: 2", "count: two", "links[2].count", "two", "whole"),
    ("graph", "latency: 5 ns", "latency: 5", "links[1].latency", "5", "unit"),
    ("graph", "latency: 5 ns", "bandwidth: 0 Gb/s", "links[1].bandwidth", "0 Gb/s", "zero"),
    ("graph", "latency: 5 ns", "cable: glass", "links[1].cable", "glass", "`aoc`"),
    ("graph", "npus: [a, b, c]", "npus: [a, b, a]", "npus[2]", "a", "twice"),
    ("graph", "[hub, top]", "[hub, top, b]", "switches[2]", "b", "rename one"),
    ("graph", "npus: [a, b, c]", "npus: []", "npus", "[]", "2 NPUs"),
    ("graph", "npus: [a, b, c]", "npus: [a, b, c, d]", "npus[3]", "d", "no path"),
    ("graph", "npus: [a, b, c]", "npus: [a, b, [c]]", "npus[2]", '["c"]', "name"),
    ("graph", "failed_nodes: []", "failed_nodes: [bb]", "failed_nodes[0]", "bb", "no such node"),
    (
        "graph",
        "failed_links: []",
        "failed_links: [[a, b]]",
        "failed_links[0]",
        "a to b",
        "no cable",
    ),
]


@pytest.mark.parametrize(("base", "old", "new", "field", "value", "told"), CASES, ids=str)
@pytest.mark.parametrize("verb", [["fabric", "show"], ["cost"]], ids=["show", "cost"])
def test_is_told_once_with_its_place(folder, allrail_cli, verb, base, old, new, field, value, told):
    assert old in FILES[base]
    text = FILES[base].replace(old, new, 1)
    (folder / "mine.yaml").write_text(text)
    outcome = allrail_cli(*verb, "mine.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    message, _, hint = outcome.stderr.partition("\n\nhint: ")
    assert message.startswith("error: mine.yaml:"), outcome.stderr
    assert message.count("\n") == 0
    assert f"`{field}`" in message
    assert value in message
    assert hint.strip()
    assert told in outcome.stderr
    line = int(message.split(":")[2])
    keys = field.split("[")[0].split(".")
    assert any(key in text.splitlines()[line - 1] for key in (keys[0], keys[-1]))


@pytest.mark.parametrize(
    ("file", "text", "line", "field", "told"),
    [
        ("net.yaml", "npus: [a, b]\nlinks:\n- {from: a, to: z}\n", 3, "links[0].to", "`b`"),
        ("net.yaml", "npus: [a, b]\nlinks: []\n", 1, "npus[1]", "no path"),
        ("net.yaml", "npus: [a, b]\nlink: {latency: 3}\nlinks: []\n", 2, "link.latency", "unit"),
        ("net.yaml", "topology: torus\nshape: [4, 4]\n", 1, "topology", "`graph`"),
        ("net.yaml", "- a\n", None, "", "`nodes`"),
        ("net.json", '{"nodes": [{"id": "a"}],\n "links": []}', 1, "nodes[0].kind", "`a`"),
        ("net.json", '{"nodes": [{"kind": "npu"}],\n "links": []}', 1, "nodes[0]", "name"),
        ("net.json", '{"nodes": [{"id": 1, "kind": "host"}],\n "links": []}', 1, "kind", "switch"),
        ("net.json", '{"nodes": []}', 1, "", "`edges`"),
        ("net.json", '{"nodes": [], "edges":\n [7]}', 2, "edges[0]", "mapping"),
        ("net.json", '{"nodes": [], "edges":\n [{"source": 1}]}', 2, "edges[0]", "`target`"),
        ("net.json", '{"directed": true, "nodes": [], "links": []}', 1, "directed", "undirected"),
        (
            "net.json",
            NODES + ' "edges": [{"source": 0, "target": 1, "bandwith": "1 Gb/s"}]}',
            2,
            "edges[0].bandwith",
            "`bandwidth`",
        ),
        (
            "net.json",
            NODES + ' "edges": [{"source": 0, "target": 3}]}',
            2,
            "edges[0].target",
            "no such node",
        ),
        (
            "net.json",
            NODES + ' "edges": [{"source": 0, "target": 1}, \n {"source": 1, "target": 0}]}',
            3,
            "edges[1]",
            "`count`",
        ),
        ("net.yaml", "npus: [" + "a, " * 200_000 + "a]\n", 1, "", "more than 200000 values"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_mistake_in_a_file_of_nodes_and_links(folder, allrail_cli, file, text, line, field, told):
    (folder / file).write_text(text)
    (folder / "mine.yaml").write_text(f"topology: graph\nfile: {file}\n")
    outcome = allrail_cli("fabric", "show", "mine.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    place = f"error: {file}:" + (f"{line}: " if line else " ")
    assert outcome.stderr.startswith(place), outcome.stderr
    assert field in outcome.stderr
    assert told in outcome.stderr
    assert "\n\nhint: " in outcome.stderr


@pytest.mark.parametrize(
    ("more", "field", "told"),
    [
        ("file: nowhere.yaml\n", "file", "no such file"),
        ("file: 7\n", "file", "no such file"),
        ("file: net.yaml\nnpus: [a]\n", "npus", "stands in the file too"),
        ("file: net.yaml\nplanes: 0\n", "planes", "below 1"),
    ],
    ids=str,
)
def test_a_mistake_beside_the_file(folder, allrail_cli, more, field, told):
    (folder / "net.yaml").write_text("npus: [a, b]\nlinks: [{from: a, to: b}]\n")
    (folder / "mine.yaml").write_text("topology: graph\n" + more)
    outcome = allrail_cli("fabric", "show", "mine.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("error: mine.yaml:")
    assert f"`{field}`" in outcome.stderr
    assert told in outcome.stderr


def test_only_a_graph_has_a_file(folder, allrail_cli):
    (folder / "mine.yaml").write_text("topology: torus\nshape: [4, 4]\nfile: net.yaml\n")
    assert "`file`" in allrail_cli("fabric", "show", "mine.yaml").stderr


def test_failed_parts_that_strand_an_npu_name_it(folder, allrail_cli):
    text = "topology: fat_tree\nnpus: 32\nswitch_radix: 8\nlevels: 2\nfailed_nodes: [33]\n"
    (folder / "mine.yaml").write_text(text)
    for verb in (["fabric", "show"], ["cost"]):
        outcome = allrail_cli(*verb, "mine.yaml")
        assert (outcome.status, outcome.stdout) == (2, "")
        assert "`NPU 4`: no path leads to it from NPU 0" in outcome.stderr


@pytest.mark.parametrize(
    ("fabric", "file", "told"),
    [
        ("hx2mesh-1k", "mesh.pdf", "SVG"),
        ("hx2mesh-1k", "big.yaml/mesh.svg", "big.yaml"),
        ("dgx2", "dgx.svg", "dimensions"),
        ("big.yaml", "big.svg", "256 NPUs at most"),
    ],
    ids=str,
)
def test_pictures(folder, allrail_cli, fabric, file, told):
    names = [f"n{i}" for i in range(300)]
    links = [{"from": name, "to": "hub"} for name in names]
    tree = {"topology": "graph", "npus": names, "switches": ["hub"], "links": links}
    (folder / "big.yaml").write_text(json.dumps(tree))
    outcome = allrail_cli("fabric", "show", fabric, "--picture", file)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert told in outcome.stderr
    assert "\n\nhint: " in outcome.stderr
    assert not (folder / file).exists()


def test_a_missing_key_is_named(folder, allrail_cli):
    (folder / "mine.yaml").write_text("topology: hammingmesh\nboard: [2, 2]\n")
    outcome = allrail_cli("fabric", "show", "mine.yaml")
    assert outcome.status == 2
    assert "`grid`: it is missing" in outcome.stderr


def test_boards_that_share_no_tree_are_apart(folder, allrail_cli):
    text = "topology: hammingmesh\nboard: [2, 2]\ngrid: [2, 2]\nfailed_boards: [[0, 0], [1, 1]]\n"
    (folder / "mine.yaml").write_text(text)
    outcome = allrail_cli("fabric", "show", "mine.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "no path leads to it" in outcome.stderr


@pytest.mark.parametrize(
    ("text", "field", "told"),
    [
        ("aoc: -603\n", "aoc", "not negative"),
        ("aoc: cheap\n", "aoc", "number of dollars"),
        ("fibre: 3\n", "fibre", "`aoc`"),
        ("switch: 1e13\n", "switch", "above"),
        ("aoc: .nan\n", "", "finite"),
        ("[1]\n", "", "mapping"),
    ],
    ids=str,
)
def test_prices(folder, allrail_cli, text, field, told):
    (folder / "prices.yaml").write_text(text)
    outcome = allrail_cli("cost", "hx2mesh-1k", "--prices", "prices.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("error: prices.yaml")
    assert field in outcome.stderr
    assert told in outcome.stderr
    assert "\n\nhint: " in outcome.stderr


def test_unknown_prices_and_fabrics_have_a_near_miss(folder, allrail_cli):
    outcome = allrail_cli("cost", "hx2mesh-1k", "--prices", "hamingmesh")
    assert "did you mean `hammingmesh`?" in outcome.stderr
    assert "did you mean `hx2mesh-1k`?" in allrail_cli("cost", "hx2mesh1k").stderr
    assert "dimensions" in allrail_cli("cost", "dgx2").stderr


def test_what_is_not_counted_over_cables_is_told(folder, allrail_cli):
    (folder / "far.yaml").write_text(
        "{schema_version: 1, fabric: dragonfly-16k, collective: {kind: all_to_all, size: 1 MiB}}"
    )
    outcome = allrail_cli("simulate", "far.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "`schedule.algorithms` is `direct`" in outcome.stderr
    assert "hint: `ring` goes among any number, but for all-to-alls" in outcome.stderr
    (folder / "slow.yaml").write_text(
        "{schema_version: 1, fabric: dragonfly-1k, workload: {model: vgg16, batch_per_replica: 1, "
        "parallelism: {dp: 16}, compute: {device: a100}, slow_links: {share: 0.1, factor: 0.5}}}"
    )
    outcome = allrail_cli("simulate", "slow.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "dim1 is a network without dimensions" in outcome.stderr
    assert "`network_model: flows`" in outcome.stderr


def test_advising_on_a_graph_without_dimensions_is_refused(allrail_cli):
    outcome = allrail_cli("fabric", "advise", "dragonfly-1k")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "no dimension joins NPU to NPU" in outcome.stderr


def test_only_packets_reads_its_settings(folder, allrail_cli):
    outcome = allrail_cli("simulate", "scenario.yaml", "--set", "packets={packet: 4 KiB}")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "`packets`" in outcome.stderr
    assert "network_model: packets" in outcome.stderr
