"""What `allrail place` refuses, and how it says so."""

from __future__ import annotations

import json

import pytest

from allrail.base.errors import InputError
from allrail.simulation.placement import fold, place

BASE = ("place", "--fabric", "hx2mesh-1k", "--count", "2")

# What stands in mix.csv, the line, the field, a part of the message or hint.
MIXES = [
    ("size,jobs\n", None, "mix", "no job"),
    ("size,jobs\n4,0\n", None, "mix", "no job"),
    ("size,jobs\n4,10\n8,-3\n", 3, "jobs", "below 0"),
    ("size,jobs\n-4,10\n", 2, "size", "below 0"),
    ("0,10\n", 1, "size", "not empty"),
    ("size,jobs\nfour,10\n", 2, "size", "whole number"),
    ("size,jobs\n4,1.5\n", 2, "jobs", "whole number"),
    ("size,jobs\n4,10\n4,1\n", 3, "size", "twice"),
    ("size,jobs\n4\n", 2, "", "1 columns"),
    ("size,jobs\n257,10\n", None, "mix", "does not fit the 256 boards"),
    ("size,jobs\n4,99999999999999999999\n", 2, "jobs", "above"),
    ("size,jobs\n2x,10\n", 2, "size", "shape"),
    ("size,jobs\n2x4x2,10\n", 2, "size", "two dimensions"),
    ("size,jobs\n4,1\n2x4x2x2,10\n", 3, "size", "shape"),
    ("size,jobs\n2x4,10\n2 x 4,1\n", 3, "size", "twice"),
    ("size,jobs\n0x4,10\n", 2, "size", "not empty"),
    ("size,jobs\n17x1,10\n", None, "mix", "does not fit the 256 boards"),
]


@pytest.mark.parametrize(("text", "line", "field", "why"), MIXES, ids=str)
def test_mixes(folder, allrail_cli, text, line, field, why):
    (folder / "mix.csv").write_text(text)
    outcome = allrail_cli(*BASE, "--mix", "mix.csv")
    assert (outcome.status, outcome.stdout) == (2, "")
    place = "error: mix.csv:" + (f"{line}: " if line else " ")
    assert outcome.stderr.startswith(place), outcome.stderr
    assert f"`{field}`" in outcome.stderr or not field
    assert why in outcome.stderr
    assert "\n\nhint: " in outcome.stderr


CUBE = {"name": "c", "topology": "hammingmesh_3d", "board": [2, 2, 2], "grid": [2, 3, 4]}
# What stands in mix.csv, options, how the message begins, a part of it or its hint.
BOXES = [
    ("4,1\n2x3,10\n", (), "mix.csv:2: `size`", "2x4x1"),
    ("5x1x1,10\n", (), "mix.csv: `mix`", "does not fit the 2 x 3 x 4 boards"),
    ("25,10\n", (), "mix.csv: `mix`", "does not fit the 2 x 3 x 4 boards"),
    ("0x1x1,10\n", (), "mix.csv:1: `size`", "not empty"),
    ("1x1x1,1\n1x1x1,2\n", (), "mix.csv:2: `size`", "twice"),
    ("4,1\n", ("--locality",), "--locality", "two dimensions only"),
    ("4,1\n", ("--leaf-boards", "2"), "--leaf-boards", "two dimensions only"),
    ("4,1\n", ("--run", "all_reduce"), "--run", "on a `hammingmesh`"),
    ("4,1\n", ("--failed", "24"), "--failed", "24 boards work"),
]


@pytest.mark.parametrize(("text", "options", "where", "why"), BOXES, ids=str)
def test_mixes_of_three_dimensions(folder, allrail_cli, text, options, where, why):
    (folder / "mix.csv").write_text("size,jobs\n" * ("," not in text) + text)
    (folder / "cube.json").write_text(json.dumps(CUBE))
    base = ("place", "--fabric", "cube.json", "--mix", "mix.csv", "--count", "2")
    outcome = allrail_cli(*base, *options)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"error: {where}"), outcome.stderr
    assert why in outcome.stderr
    assert "\n\nhint: " in outcome.stderr


def test_a_trace_of_boxes_is_for_three_dimensions(folder, allrail_cli):
    (folder / "cube.json").write_text(json.dumps(CUBE))
    (folder / "trace.csv").write_text("0 s,1 s,2x3x4\n0 s,1 s,2x3\n")
    outcome = allrail_cli("place", "--fabric", "cube.json", "--trace", "trace.csv")
    assert outcome.status == 2
    assert outcome.stderr.startswith("error: trace.csv:2: `size`"), outcome.stderr
    (folder / "trace.csv").write_text("0 s,1 s,2x3x4\n0 s,1 s,24\n")
    outcome = allrail_cli("place", "--fabric", "cube.json", "--trace", "trace.csv")
    assert outcome.status == 0, outcome.stderr
    assert "over 2 s" in outcome.stdout


YAMLS = [
    ("jobs: [1, 2]\n", "mapping"),
    ("jobs: {4: x}\n", "whole number"),
    ("jobs: {4: -1}\n", "below 0"),
    ("jobs: {four: 1}\n", "whole number"),
    ("jobs: {4: 1}\nunits: npus\n", "did you mean `unit`?"),
    ("jobs: {4: 1}\nunit: gpus\n", "`npus`"),
]


@pytest.mark.parametrize(("text", "why"), YAMLS, ids=str)
def test_yaml_mixes(folder, allrail_cli, text, why):
    (folder / "mix.yaml").write_text(text)
    outcome = allrail_cli(*BASE, "--mix", "mix.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("error: mix.yaml"), outcome.stderr
    assert why in outcome.stderr


# What stands in trace.csv, the line, the field, a part of the message or hint.
TRACES = [
    ("arrive,duration,size\n5 s,1 s,4\n4 s,1 s,4\n", 3, "arrive", "time goes backwards"),
    ("arrive,duration,size\n5,1 s,4\n", 2, "arrive", "unit"),
    ("arrive,duration,size\n5 s,0 s,4\n", 2, "duration", "some time"),
    ("arrive,duration,size\n5 s,-1 s,4\n", 2, "duration", "negative"),
    ("arrive,duration,size\n5 s,1 s,257\n", 2, "size", "never fits"),
    ("arrive,duration,size\n5 s,1 s,0\n", 2, "size", "never fits"),
    ("arrive,duration,size\n5 s,1 s,many\n", 2, "size", "whole number"),
    ("arrive,duration,size\n", None, "trace", "no job"),
]


@pytest.mark.parametrize(("text", "line", "field", "why"), TRACES, ids=str)
def test_traces(folder, allrail_cli, text, line, field, why):
    (folder / "trace.csv").write_text(text)
    outcome = allrail_cli("place", "--fabric", "hx2mesh-1k", "--trace", "trace.csv")
    assert (outcome.status, outcome.stdout) == (2, "")
    place = "error: trace.csv:" + (f"{line}: " if line else " ")
    assert outcome.stderr.startswith(place), outcome.stderr
    assert f"`{field}`" in outcome.stderr
    assert why in outcome.stderr


# Options, the option that is named, a part of the message or hint.
OPTIONS = [
    (["--failed", "256"], "--failed", "256 boards work"),
    (["--failed", "-1"], "--failed", "below 0"),
    (["--aspect", "0"], "--aspect", "1 time"),
    (["--count", "0"], "--count", "nothing to place"),
    (["--leaf-boards", "0"], "--leaf-boards", "1 board"),
    (["--memory", "4"], "--memory", "unit"),
    (["--memory", "1000000 TB"], "--memory", "1 PiB"),
    (["--unit", "gpus"], "--unit", "npus"),
    (["--mix", "alibaba-2021"], "--mix", "did you mean `alibaba-2020`?"),
    (["--backfill"], "--backfill", "queue"),
    (["--jobs", "5", "--sort"], "--sort", "queue"),
    (["--jobs", "0"], "--jobs", "1 to"),
    (["--jobs", "5", "--load", "0"], "--load", "above 0"),
    (["--jobs", "5", "--duration", "1"], "--duration", "unit"),
    (["--jobs", "5", "--duration", "0 s"], "--duration", "picoseconds"),
    (["--run", "all_gather"], "--run", "`all_reduce` or `all_to_all`"),
    (["--run", "all_reduce", "--fabric", "fat-tree-1k"], "--run", "on a `hammingmesh`"),
    (["--run", "all_reduce", "--jobs", "5"], "--run", "queue"),
    (["--fabric", "dragonfly-1k"], "dragonfly-1k", "no boards"),
    (["--fabric", "dgx2"], "--fabric", "made of dimensions"),
    (["--fabric", "hx2mesh"], "--fabric", "did you mean `hx2mesh-1k`?"),
]


@pytest.mark.parametrize(("options", "where", "why"), OPTIONS, ids=str)
def test_options(folder, allrail_cli, options, where, why):
    base = BASE[:3] if "--jobs" in options else BASE
    outcome = allrail_cli(*base, *options)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"error: {where}: "), outcome.stderr
    assert why in outcome.stderr


def test_failed_links_are_no_boards(folder, allrail_cli):
    (folder / "mesh.yaml").write_text(
        "schema_version: 1\nname: mesh\ntopology: hammingmesh\nboard: [2, 2]\ngrid: [4, 4]\n"
        "failed_links: [[0, 1]]\n"
    )
    outcome = allrail_cli("place", "--fabric", "mesh.yaml", "--count", "2")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "whole boards" in outcome.stderr


def test_a_foreign_result_is_not_overwritten(folder, allrail_cli):
    (folder / "out").mkdir()
    (folder / "out" / "result.json").write_text("{}")
    outcome = allrail_cli(*BASE, "--out", "out")
    assert outcome.status == 2
    assert "not written by allrail" in outcome.stderr


@pytest.mark.parametrize(
    ("shape", "board"),
    [([3, 5, 7], [2, 2]), ([4, 4], [2, 2]), ([4, 4, 0], [2, 2]), ([4, 4, 2], [0, 2])],
)
def test_shapes_that_do_not_fold(shape, board):
    with pytest.raises(InputError) as refused:
        fold(shape, board=board)
    assert refused.value.hint


def test_pairs_are_checked_too():
    with pytest.raises(InputError, match="whole number"):
        place("hx2mesh-1k", mix=[(1, 2.5)], count=1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--load", "1"), "--load"),
        (("--duration", "5 s"), "--duration"),
        (("--jobs", "5"), "--count"),
        (("--trace", "jobs.csv", "--jobs", "5"), "--jobs"),
        (("--trace", "jobs.csv", "--load", "0.5"), "--load"),
        (("--trace", "jobs.csv", "--duration", "5 s"), "--duration"),
    ],
    ids=str,
)
def test_no_option_is_left_unread(folder, allrail_cli, options, named):
    (folder / "jobs.csv").write_text("arrive,duration,size\n0 s,1 s,1\n")
    count = ("--count", "2") if named == "--count" else ()
    outcome = allrail_cli("place", "--fabric", "hx2mesh-1k", *count, *options)
    assert (outcome.status, outcome.stdout) == (2, ""), outcome.stdout
    assert outcome.stderr.startswith(f"error: {named}: it means nothing")
    assert "\n\nhint: " in outcome.stderr


@pytest.mark.parametrize("load", ["nan", "inf"])
def test_a_load_is_a_number(allrail_cli, load):
    outcome = allrail_cli("place", "--fabric", "hx2mesh-1k", "--jobs", "5", "--load", load)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("error: --load: `load` is `" + load)
