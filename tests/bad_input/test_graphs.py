"""Mistakes in graph fabrics and prices: one message with its place, a hint, exit status 2."""

from __future__ import annotations

import pytest

from allrail.scenario.presets import fabric_text

FILES = {
    "hammingmesh": fabric_text("hx2mesh-1k") + "failed_boards: []\n",
    "fat_tree": fabric_text("fat-tree-1k-taper50"),
    "dragonfly": fabric_text("dragonfly-1k"),
    "torus": fabric_text("torus-1k"),
    "hyperx": fabric_text("hyperx-1k"),
}

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
    assert field.split("[")[0].split(".")[0] in text.splitlines()[line - 1]


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


@pytest.mark.parametrize(
    ("fabric", "field"),
    [
        ("hx2mesh-1k", "`fabric`"),
        ("mine.yaml", "`fabric`"),
        ("{topology: torus, shape: [4, 4]}", "`fabric.topology`"),
    ],
    ids=str,
)
def test_simulating_a_graph_is_refused(folder, allrail_cli, fabric, field):
    (folder / "mine.yaml").write_text(FILES["torus"])
    text = (folder / "scenario.yaml").read_text().replace("tutorial-8x8x8", fabric)
    (folder / "scenario.yaml").write_text(text)
    for verb in ("simulate", "plan"):
        outcome = allrail_cli(verb, "scenario.yaml")
        assert (outcome.status, outcome.stdout) == (2, "")
        assert outcome.stderr.startswith("error: scenario.yaml:2: " + field)
        assert "cannot be simulated" in outcome.stderr
        assert "hint: name a fabric of `dimensions`" in outcome.stderr


def test_advising_on_a_graph_is_refused(allrail_cli):
    outcome = allrail_cli("fabric", "advise", "hx2mesh-1k")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "cannot be advised on yet" in outcome.stderr
