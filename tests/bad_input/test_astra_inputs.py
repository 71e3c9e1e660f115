"""Mistakes in ASTRA-sim's files: one message with file, field, value and hint, nothing written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from allrail_reproduce.astra_sim import FOLDER

NETWORK, SYSTEM, WORKLOAD = "3d_switch.json", "3d_switch_baseline.txt", "all_reduce.txt"
IMPLEMENTATIONS = "all-reduce-implementation: halvingDoubling_halvingDoubling_halvingDoubling"
RECOMPUTE = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8"
ROW = "all_reduce -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1048576 1"


def keys(**changes):
    """Replaces keys of the network; `None` takes one away. Underscores stand for dashes."""

    def change(folder: Path) -> None:
        path = folder / NETWORK
        tree = json.loads(path.read_text())
        for name, value in changes.items():
            key = name.replace("_", "-")
            if value is None:
                del tree[key]
            else:
                tree[key] = value
        path.write_text(json.dumps(tree))

    return change


def whole(name: str, text: str | bytes):
    """Replaces a file."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def line(name: str, old: str, new: str):
    """Replaces a part of a file."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def gone(name: str):
    """Takes a file away."""

    def change(folder: Path) -> None:
        (folder / name).unlink()

    return change


# What is done to the files, which file the message names, what else it names.
CASES = {
    "no network": (gone(NETWORK), NETWORK, ["no such file"]),
    "no system": (gone(SYSTEM), SYSTEM, ["no such file"]),
    "no workload": (gone(WORKLOAD), WORKLOAD, ["no such file"]),
    "broken JSON": (whole(NETWORK, '{"units-count": [8,'), NETWORK, ["not JSON"]),
    "a JSON list": (whole(NETWORK, "[1]"), NETWORK, ["no keys"]),
    "a key twice": (whole(NETWORK, '{"a": 1, "a": 2}'), NETWORK, ["`a`", "twice"]),
    "network not UTF-8": (whole(NETWORK, b'{"a": "\xff"}'), NETWORK, ["UTF-8"]),
    "system not UTF-8": (whole(SYSTEM, b"endpoint-delay: \xfe\n"), SYSTEM, ["UTF-8"]),
    "workload not UTF-8": (whole(WORKLOAD, b"MICRO\xff\n"), WORKLOAD, ["UTF-8"]),
    "lists of different lengths": (
        keys(units_count=[8, 8]),
        NETWORK,
        ["`units-count`", "2 values", "is 3"],
    ),
    "a list that is a number": (keys(link_bandwidth=50), NETWORK, ["`link-bandwidth`", "`50`"]),
    "no bandwidth": (keys(link_bandwidth=None), NETWORK, ["`link-bandwidth` is missing"]),
    "unknown topology": (
        keys(topologies_per_dim=["Swich", "Switch", "Switch"]),
        NETWORK,
        ["`topologies-per-dim[0]`", "`Swich`", "did you mean `Switch`?"],
    ),
    "unknown kind of network": (
        keys(topology_name="Torus3D"),
        NETWORK,
        ["`topology-name`", "`Torus3D`", "Hierarchical"],
    ),
    "a key with a typing mistake": (
        keys(links_cout=[1, 1, 1], links_count=None),
        NETWORK,
        ["`links-cout`", "did you mean `links-count`?"],
    ),
    "bandwidth zero": (keys(link_bandwidth=[50, 0, 50]), NETWORK, ["`link-bandwidth[1]`", "zero"]),
    "bandwidth negative": (
        keys(link_bandwidth=[50, 50, -1]),
        NETWORK,
        ["`link-bandwidth[2]`", "`-1`", "negative"],
    ),
    "bandwidth NaN": (
        keys(link_bandwidth=[float("nan"), 50, 50]),
        NETWORK,
        ["`link-bandwidth[0]`", "NaN", "finite"],
    ),
    "bandwidth absurd": (
        keys(link_bandwidth=[1e30, 50, 50]),
        NETWORK,
        ["`link-bandwidth[0]`", "out of range"],
    ),
    "bandwidth with a unit": (
        keys(link_bandwidth=["50 GB/s", 50, 50]),
        NETWORK,
        ["`link-bandwidth[0]`", "`50 GB/s`", "no unit"],
    ),
    "latency negative": (
        keys(link_latency=[1, -5, 1]),
        NETWORK,
        ["`link-latency[1]`", "negative"],
    ),
    "a dimension of 0": (keys(units_count=[0, 8, 8]), NETWORK, ["`units-count[0]`", "`0`"]),
    "a dimension of 1.5": (
        keys(units_count=[8, 1.5, 8]),
        NETWORK,
        ["`units-count[1]`", "`1.5`", "whole number"],
    ),
    "nobody to talk to": (keys(units_count=[1, 1, 1]), NETWORK, ["more than one NPU"]),
    "too few links": (
        keys(topologies_per_dim=["FullyConnected", "Switch", "Switch"]),
        NETWORK,
        ["`links-count[0]`", "7 peers"],
    ),
    "no links": (keys(links_count=[1, 0, 1]), NETWORK, ["`links-count[1]`", "`0`"]),
    "seven dimensions": (
        keys(dimensions_count=7),
        NETWORK,
        ["`dimensions-count`", "`7`"],
    ),
    "a line without a colon": (
        whole(SYSTEM, "endpoint-delay 10\n"),
        SYSTEM,
        [f"{SYSTEM}:1", "key: value"],
    ),
    "a key without a value": (
        line(SYSTEM, "endpoint-delay: 10", "endpoint-delay:"),
        SYSTEM,
        ["`endpoint-delay`", "no value"],
    ),
    "a system key with a typing mistake": (
        line(SYSTEM, "preferred-dataset-splits", "preferred-dataset-split"),
        SYSTEM,
        [f"{SYSTEM}:4", "did you mean `preferred-dataset-splits`?"],
    ),
    "a key twice in the system": (
        line(SYSTEM, "endpoint-delay: 10", "endpoint-delay: 10\nendpoint-delay: 20"),
        SYSTEM,
        [f"{SYSTEM}:3", "twice"],
    ),
    "unknown implementation": (
        line(SYSTEM, IMPLEMENTATIONS, "all-reduce-implementation: ring_rng_ring"),
        SYSTEM,
        [f"{SYSTEM}:5", "`all-reduce-implementation[1]`", "`rng`", "did you mean `ring`?"],
    ),
    "implementations for two dimensions": (
        line(SYSTEM, IMPLEMENTATIONS, "all-reduce-implementation: ring_ring"),
        SYSTEM,
        ["`all-reduce-implementation`", "2 implementations", "3 dimensions"],
    ),
    "one algorithm over all dimensions": (
        line(SYSTEM, IMPLEMENTATIONS, "all-reduce-implementation: oneRing"),
        SYSTEM,
        ["`oneRing`", "512 NPUs"],
    ),
    "a tree that has to scatter": (
        line(SYSTEM, IMPLEMENTATIONS, "all-reduce-implementation: doubleBinaryTree_ring_ring"),
        SYSTEM,
        ["`all-reduce-implementation[0]`", "`doubleBinaryTree`", "whole all-reduces"],
    ),
    "no implementation": (
        line(SYSTEM, IMPLEMENTATIONS + "\n", ""),
        SYSTEM,
        ["`all-reduce-implementation` is missing"],
    ),
    "unknown scheduler": (
        line(SYSTEM, "inter-dimension-scheduling: baseline", "inter-dimension-scheduling: themsi"),
        SYSTEM,
        ["`inter-dimension-scheduling`", "`themsi`", "did you mean `themis`?"],
    ),
    "unknown order": (
        line(SYSTEM, "intra-dimension-scheduling: FIFO", "intra-dimension-scheduling: FIF"),
        SYSTEM,
        ["`intra-dimension-scheduling`", "did you mean `FIFO`?"],
    ),
    "unknown collective order": (
        line(SYSTEM, "LIFO", "LILO"),
        SYSTEM,
        [f"{SYSTEM}:1", "`scheduling-policy`", "`LILO`"],
    ),
    "no chunks": (
        line(SYSTEM, "splits: 64", "splits: 0"),
        SYSTEM,
        ["`preferred-dataset-splits`", "`0`"],
    ),
    "more chunks than bytes": (
        line(SYSTEM, "splits: 64", "splits: 2000000000"),
        SYSTEM,
        ["`preferred-dataset-splits`", "`2000000000`", "1048576"],
    ),
    "no active chunks": (
        line(SYSTEM, "active-chunks-per-dimension: 1", "active-chunks-per-dimension: 0"),
        SYSTEM,
        ["`active-chunks-per-dimension`"],
    ),
    "a delay in words": (
        line(SYSTEM, "endpoint-delay: 10", "endpoint-delay: ten"),
        SYSTEM,
        [f"{SYSTEM}:2", "`endpoint-delay`", "`ten`"],
    ),
    "an empty workload": (whole(WORKLOAD, " \n"), WORKLOAD, ["empty"]),
    "a transformer without its group": (
        line(WORKLOAD, "MICRO", "HYBRID_TRANSFORMER"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "`HYBRID_TRANSFORMER`", "model_parallel_NPU_group: 4"],
    ),
    "a group of more NPUs than there are": (
        line(WORKLOAD, "MICRO", "HYBRID_TRANSFORMER model_parallel_NPU_group: 1024"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "`model_parallel_NPU_group`", "`1024`", "512"],
    ),
    "a group that cuts a dimension unevenly": (
        line(WORKLOAD, "MICRO", "HYBRID_TRANSFORMER model_parallel_NPU_group: 24"),
        WORKLOAD,
        ["`model_parallel_NPU_group`", "`24`", "dimension 2", "8 × 8 × 8"],
    ),
    "an unknown option of a loop": (
        line(WORKLOAD, "MICRO", "HYBRID_TRANSFORMER model_parallel_NPU_grup: 8"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "did you mean `model_parallel_NPU_group`?"],
    ),
    "options of a loop that has none": (
        line(WORKLOAD, "MICRO", "DATA model_parallel_NPU_group: 8"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "`DATA` takes no options"],
    ),
    "a list that ends early": (
        line(WORKLOAD, "MICRO", f"{RECOMPUTE} checkpoints: 2 0"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "`checkpoints`", "ends before"],
    ),
    "a checkpoint that does not exist": (
        line(WORKLOAD, "MICRO", f"{RECOMPUTE} checkpoints: 1 7 checkpoint_initiates: 0"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "`checkpoints`", "`7`", "0 to 0"],
    ),
    "no checkpoint to start from": (
        line(WORKLOAD, "MICRO", f"{RECOMPUTE} checkpoints: 0 checkpoint_initiates: 1 0"),
        WORKLOAD,
        ["`checkpoint_initiates`", "`0`", "no checkpoint is below it"],
    ),
    "DLRM without its layer": (
        line(WORKLOAD, "MICRO", "HYBRID_DLRM"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "embeddings", "HYBRID_DLRM 4"],
    ),
    "a bottom layer that does not exist": (
        line(WORKLOAD, "MICRO", "HYBRID_DLRM 4"),
        WORKLOAD,
        [f"{WORKLOAD}:1", "`last bottom layer`", "`4`"],
    ),
    "a layer without its own parallelism": (
        line(WORKLOAD, "MICRO", "HYBRID_CUSTOMIZED"),
        WORKLOAD,
        [f"{WORKLOAD}:3", "12 of a layer's 13 fields", "parallelism"],
    ),
    "an unknown parallelism of a layer": (
        whole(WORKLOAD, f"HYBRID_CUSTOMIZED\n1\n{ROW} DATTA\n"),
        WORKLOAD,
        [f"{WORKLOAD}:3", "`parallelism`", "did you mean `DATA`?"],
    ),
    "a negative time": (
        whole(WORKLOAD, "DATA\n1\na -1 -5 NONE 0 1 NONE 0 1 NONE 0 1\n"),
        WORKLOAD,
        [f"{WORKLOAD}:3", "`forward compute time`", "`-5`"],
    ),
    "a negative update time": (
        whole(WORKLOAD, "DATA\n1\na -1 5 NONE 0 1 NONE 0 1 NONE 0 -1\n"),
        WORKLOAD,
        [f"{WORKLOAD}:3", "`update time`", "`-1`"],
    ),
    "two collectives in one": (
        whole(WORKLOAD, ROW.replace("ALLREDUCE", "ALLREDUCEALLTOALL").join(["DATA\n1\n", "\n"])),
        WORKLOAD,
        [f"{WORKLOAD}:3", "`ALLREDUCEALLTOALL`", "two layers"],
    ),
    "a layer of fewer bytes than chunks": (
        whole(WORKLOAD, "DATA\n1\nsmall -1 5 NONE 0 1 NONE 0 1 ALLREDUCE 63 1\n"),
        SYSTEM,
        ["`preferred-dataset-splits`", "`64`", "layer `small`", "63"],
    ),
    "an unknown loop": (
        line(WORKLOAD, "MICRO", "MICR0"),
        WORKLOAD,
        ["`MICR0`", "did you mean `MICRO`?"],
    ),
    "no number of layers": (whole(WORKLOAD, "MICRO\n"), WORKLOAD, ["number of layers"]),
    "a number of layers in words": (
        whole(WORKLOAD, f"MICRO\none\n{ROW}\n"),
        WORKLOAD,
        [f"{WORKLOAD}:2", "`layers`", "`one`"],
    ),
    "fewer layers than it says": (
        whole(WORKLOAD, f"MICRO\n3\n{ROW}\n"),
        WORKLOAD,
        ["`layers`", "1 lines follow"],
    ),
    "a truncated line": (
        whole(WORKLOAD, "MICRO\n1\nall_reduce -1 1 NONE 0 1 NONE\n"),
        WORKLOAD,
        [f"{WORKLOAD}:3", "7 of a layer's 12 fields", "input-gradient bytes"],
    ),
    "a line with too much": (
        whole(WORKLOAD, f"MICRO\n1\n{ROW} DATA\n"),
        WORKLOAD,
        [f"{WORKLOAD}:3", "13 fields"],
    ),
    "an unknown collective": (
        line(WORKLOAD, "ALLREDUCE", "ALLREDUCED"),
        WORKLOAD,
        [f"{WORKLOAD}:3", "`ALLREDUCED`", "did you mean `ALLREDUCE`?"],
    ),
    "no collective": (line(WORKLOAD, "ALLREDUCE 1048576", "NONE 0"), WORKLOAD, ["no collective"]),
    "no bytes": (line(WORKLOAD, "1048576", "0"), WORKLOAD, ["`weight-gradient bytes`", "`0`"]),
    "bytes that overflow": (
        line(WORKLOAD, "1048576", "9" * 30),
        WORKLOAD,
        ["`weight-gradient bytes`", "more than it can be"],
    ),
    "bytes with more digits than anyone reads": (
        line(WORKLOAD, "1048576", "9" * 10_000),
        WORKLOAD,
        ["`weight-gradient bytes`"],
    ),
    "a half byte": (line(WORKLOAD, "1048576", "0.5"), WORKLOAD, ["`0.5`", "whole number"]),
}

ARGUMENTS = ["--network", NETWORK, "--system", SYSTEM, "--workload", WORKLOAD]

OPTIONS = [
    (["--comm-scale", "0"], ["--comm-scale", "`0`"]),
    (["--comm-scale", "nan"], ["--comm-scale", "`nan`"]),
    (["--comm-scale", "1e18"], [WORKLOAD, "1e+18", "1 PiB"]),
    (["--compute-scale", "-1"], ["--compute-scale", "`-1`"]),
    (["--num-passes", "0"], ["--num-passes", "`0`"]),
    (["--network-model", "flows"], ["--network-model", "`flows`"]),
]


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """The tutorial's files in the current folder."""
    for name in (NETWORK, SYSTEM, WORKLOAD):
        shutil.copy(FOLDER / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(outcome, folder: Path, before: set[str]) -> None:
    """One message, a hint, exit status 2, no traceback and no file."""
    assert outcome.status == 2, outcome
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.count("error:") == 1
    assert "\n\nhint: " in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_is_wrong(files, allrail_cli, name):
    change, file, told = CASES[name]
    change(files)
    before = {path.name for path in files.iterdir()}
    outcome = allrail_cli("simulate", "--astra-sim", *ARGUMENTS, "--out", "out")
    check(outcome, files, before)
    assert outcome.stderr.startswith(f"error: {file}"), outcome.stderr
    for part in told:
        assert part in outcome.stderr, outcome.stderr


@pytest.mark.parametrize(("arguments", "told"), OPTIONS, ids=lambda value: " ".join(value)[:40])
def test_an_option_that_is_wrong(files, allrail_cli, arguments, told):
    outcome = allrail_cli("simulate", "--astra-sim", *ARGUMENTS, *arguments)
    check(outcome, files, {NETWORK, SYSTEM, WORKLOAD})
    for part in told:
        assert part in outcome.stderr, outcome.stderr


def test_a_chakra_trace_is_refused_with_its_name(files, allrail_cli):
    (files / "trace.0.et").write_bytes(b"\x0a\xff\x00")
    arguments = ["--network", NETWORK, "--system", SYSTEM, "--workload", "trace.0.et"]
    outcome = allrail_cli("simulate", "--astra-sim", *arguments)
    check(outcome, files, {NETWORK, SYSTEM, WORKLOAD, "trace.0.et"})
    assert "Chakra" in outcome.stderr


def test_a_2x_network_with_lists_of_different_lengths(files, allrail_cli):
    (files / "net.yml").write_text(
        "topology: [Ring]\nnpus_count: [8, 8]\nbandwidth: [50]\nlatency: [1]\n"
    )
    arguments = ["--network", "net.yml", "--system", SYSTEM, "--workload", WORKLOAD]
    outcome = allrail_cli("simulate", "--astra-sim", *arguments)
    check(outcome, files, {NETWORK, SYSTEM, WORKLOAD, "net.yml"})
    assert outcome.stderr.startswith("error: net.yml:2: `npus_count`")
