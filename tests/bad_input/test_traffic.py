"""Mistakes in traffic: told once, with its place, its value and a hint; exit status 2."""

from __future__ import annotations

import re

import pytest

BASE = """\
schema_version: 1
fabric: {topology: torus, shape: [4, 4], planes: 2}
traffic: TRAFFIC
network_model: flows
"""
ALL = "{pattern: all_to_all, size: 64 KiB}"
SPREAD = "{pattern: broadcast, size: 1 MiB, algorithm: rings}"
TRACE = "{pattern: trace, messages: [[0 us, 0, 1, 1 KiB], [2 us, 1, 0, 1 KiB]]}"
REDUCE = "{pattern: all_reduce, size: 1 MiB, algorithm: rings}"

# The traffic, what is written in the file, what instead, the field, a part of the message.
CASES = [
    (ALL, "pattern: all_to_all", "pattern: alltoall", "traffic.pattern", "mean `all_to_all`?"),
    (ALL, ", size: 64 KiB", "", "traffic.size", "missing"),
    (ALL, "64 KiB", "0 B", "traffic.size", "zero"),
    (ALL, "64 KiB", "64", "traffic.size", "unit"),
    (ALL, "64 KiB}", "64 KiB, phases: 0}", "traffic.phases", "below 1"),
    (ALL, "64 KiB}", "64 KiB, phases: some}", "traffic.phases", "`all`"),
    (ALL, "64 KiB}", "64 KiB, phases: 16}", "traffic.phases", "15 shift phases"),
    (ALL, "64 KiB}", "64 KiB, phases: 3.5}", "traffic.phases", "whole"),
    (ALL, "64 KiB}", "64 KiB, paths: shortest}", "traffic.paths", "`single`"),
    (ALL, "64 KiB}", "64 KiB, algorithm: rings}", "traffic.algorithm", "all_reduce"),
    (ALL, "64 KiB}", "64 KiB, fan_in: 3}", "traffic.fan_in", "incast"),
    (ALL, "64 KiB}", "64 KiB, window: 0}", "traffic.window", "below 1"),
    (ALL, "64 KiB}", "64 KiB, window: 4}", "traffic.window", "barrier"),
    (ALL, "64 KiB}", "64 KiB, skip: maybe}", "traffic.skip", "neither"),
    (ALL, "64 KiB}", "64 KiB, sice: 3}", "traffic.sice", "mean `size`?"),
    (ALL, "network_model: flows", "network_model: dims", "network_model", "`packets`"),
    (ALL, "network_model: flows", "network_model: flow", "network_model", "mean `flows`?"),
    (
        ALL,
        "64 KiB}\nnetwork_model: flows",
        "64 KiB, paths: ecmp}\nnetwork_model: packets",
        "traffic.paths",
        "own",
    ),
    (
        ALL,
        "network_model: flows",
        "network_model: packets\npackets: {packet: 0 B}",
        "packets.packet",
        "1 B",
    ),
    (
        ALL,
        "network_model: flows",
        "network_model: packets\npackets: {buffer: 4 KiB}",
        "packets.buffer",
        "packet",
    ),
    (
        ALL,
        "network_model: flows",
        "network_model: packets\npackets: {bufer: 4 KiB}",
        "packets.bufer",
        "mean",
    ),
    (
        ALL,
        "network_model: flows",
        "network_model: packets\npackets: {flowlet_gap: 1 us}",
        "flowlet_gap",
        "flowlet",
    ),
    (
        ALL,
        "network_model: flows",
        "network_model: packets\npackets: {choice: flowlet, flowlet_gap: 1}",
        "flowlet_gap",
        "unit",
    ),
    (
        ALL,
        "network_model: flows",
        "network_model: packets\npackets: {choice: flowlets}",
        "choice",
        "`flowlet`",
    ),
    (
        ALL,
        "network_model: flows",
        "collective: {kind: all_reduce, size: 1 MB}",
        "traffic",
        "either",
    ),
    (ALL, "network_model: flows", "schedule: {chunks: 4}", "schedule", "no schedule"),
    (ALL, "traffic: " + ALL, "", "traffic", "missing"),
    (ALL, "shape: [4, 4]", "shape: [4, 1]", "fabric.shape", "ring"),
    (ALL, "shape: [4, 4]", "shap: [4, 4]", "fabric.shap", "mean `shape`?"),
    (ALL, "{topology: torus, shape: [4, 4], planes: 2}", "dgx2", "fabric", "`topology`"),
    ("{pattern: incast, size: 1 KiB}", "1 KiB}", "1 KiB, destination: 16}", "destination", "15"),
    ("{pattern: incast, size: 1 KiB}", "1 KiB}", "1 KiB, fan_in: 16}", "traffic.fan_in", "15"),
    (SPREAD, "rings}", "rings, root: 16}", "traffic.root", "0 to 15"),
    (SPREAD, "rings}", "rings, root: -1}", "traffic.root", "below 0"),
    (SPREAD, "rings}", "rings, segments: 0}", "traffic.segments", "below 1"),
    (SPREAD, "1 MiB, algorithm: rings}", "4 B, algorithm: rings, segments: 9}", "segments", "1 B"),
    (SPREAD, ", algorithm: rings", "", "traffic.algorithm", "missing"),
    (SPREAD, "rings", "in_network", "traffic.algorithm", "`all_reduce` alone"),
    (SPREAD, "broadcast", "broadcats", "traffic.pattern", "mean `broadcast`?"),
    (SPREAD, "broadcast", "all_gather, root: 3", "traffic.root", "`broadcast`"),
    (
        SPREAD,
        "broadcast, size: 1 MiB, algorithm: rings",
        "all_gather, size: 1 MiB, algorithm: tree",
        "traffic.algorithm",
        "no shards",
    ),
    (REDUCE, "rings", "ringss", "traffic.algorithm", "mean `rings`?"),
    (REDUCE, ", algorithm: rings", "", "traffic.algorithm", "missing"),
    (REDUCE, "[4, 4]", "[96, 4]", "traffic.algorithm", "96"),
    (REDUCE, "rings}", "rings, shape: [3, 5]}", "traffic.shape", "16 NPUs"),
    (TRACE, "[2 us, 1, 0, 1 KiB]", "[2 us, 1, 16, 1 KiB]", "messages[1].destination", "0 to 15"),
    (TRACE, "[2 us, 1, 0, 1 KiB]", "[2 us, 77, 0, 1 KiB]", "messages[1].source", "0 to 15"),
    (TRACE, "[2 us, 1, 0, 1 KiB]", "[2 us, 1, 1, 1 KiB]", "messages[1].destination", "itself"),
    (TRACE, "[0 us, 0, 1, 1 KiB]", "[3 us, 0, 1, 1 KiB]", "messages[1].time", "backwards"),
    (TRACE, "[2 us, 1, 0, 1 KiB]", "[2, 1, 0, 1 KiB]", "traffic.messages", "unit"),
    (TRACE, "[2 us, 1, 0, 1 KiB]", "[2 us, 1, 0]", "traffic.messages", "four values"),
    (TRACE, "[2 us, 1, 0, 1 KiB]", "[2 us, 1, 0, 0 B]", "traffic.messages", "zero"),
    (TRACE, "pattern: trace", "pattern: trace, size: 1 KiB", "traffic.size", "own"),
    (TRACE, "pattern: trace", "pattern: trace, file: mine.csv", "traffic.file", "either"),
]


@pytest.mark.parametrize(("traffic", "old", "new", "field", "told"), CASES, ids=str)
def test_is_told_once_with_its_place(folder, allrail_cli, traffic, old, new, field, told):
    text = BASE.replace("TRAFFIC", traffic)
    assert old in text
    (folder / "traffic.yaml").write_text(text.replace(old, new, 1))
    outcome = allrail_cli("simulate", "traffic.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    message, _, hint = outcome.stderr.partition("\n\nhint: ")
    assert message.startswith("error: traffic.yaml"), outcome.stderr
    assert message.count("\n") == 0
    assert field in message
    assert hint.strip()
    assert told in outcome.stderr


COLUMNS = "time_us,source,destination,bytes\n"


# The file, what stands in it, the place that the message names, a part of the message.
@pytest.mark.parametrize(
    ("name", "text", "place", "told"),
    [
        ("mine.csv", "time_us,source,target,bytes\n", "mine.csv:1:", "no such column"),
        ("mine.csv", "time_us,source,destination\n", "mine.csv:1:", "not the four"),
        ("mine.csv", COLUMNS + "0,0,1\n", "mine.csv:2:", "3 values"),
        ("mine.csv", COLUMNS + "0,-1,1,8\n", "mine.csv:2:", "NPU"),
        (
            "mine.csv",
            COLUMNS + "\n-1,0,1,8\n",
            "mine.csv:3: `traffic.messages[0].time`",
            "negative",
        ),
        ("mine.csv", COLUMNS, "`traffic.messages`", "without messages"),
        ("mine.csv", COLUMNS + "5,0,1,8\n\n4,1,0,8\n", "mine.csv:4:", "backwards"),
        ("mine.csv", COLUMNS + "5,0,1,8\n6,1,16,8\n", "mine.csv:3:", "0 to 15"),
        ("mine.yaml", "- [0 us, 0, 1, 8 B]\n\n- [1 us, 0, 1]\n", "mine.yaml:3:", "not a message"),
        ("mine.yaml", "- [0 us, 0, 1, 8 B]\n\n- [1 us, 2, 2, 8 B]\n", "mine.yaml:3:", "itself"),
        ("mine.yaml", "messages:\n- [0 us, 0, 1, 8]\n", "mine.yaml:2:", "unit"),
    ],
    ids=str,
)
def test_a_trace_file(folder, allrail_cli, name, text, place, told):
    (folder / name).write_text(text)
    (folder / "traffic.yaml").write_text(
        BASE.replace("TRAFFIC", f"{{pattern: trace, file: {name}}}")
    )
    outcome = allrail_cli("simulate", "traffic.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert place in outcome.stderr
    assert told in outcome.stderr


def test_a_trace_file_that_is_not_there(folder, allrail_cli):
    (folder / "traffic.yaml").write_text(
        BASE.replace("TRAFFIC", "{pattern: trace, file: mine.csv}")
    )
    outcome = allrail_cli("simulate", "traffic.yaml")
    assert outcome.status == 2
    assert "mine.csv" in outcome.stderr


@pytest.mark.parametrize("verb", ["plan", "verify"])
def test_traffic_has_no_plan(folder, allrail_cli, verb):
    (folder / "traffic.yaml").write_text(BASE.replace("TRAFFIC", ALL))
    if verb == "plan":
        outcome = allrail_cli("plan", "traffic.yaml")
    else:
        outcome = allrail_cli("simulate", "traffic.yaml", "--plan", "plan.json")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "traffic" in outcome.stderr


@pytest.mark.parametrize(
    ("link", "traffic", "network_model"),
    [
        ("bandwidth: 1 KB/s, latency: 20 ns", "pattern: permutation, size: 1 PiB", "flows"),
        ("bandwidth: 1 MB/s, latency: 20 ns", "pattern: incast, size: 1 PiB", "flows"),
        ("bandwidth: 1 GB/s, latency: 5000000 s", "pattern: permutation, size: 8 KiB", "flows"),
        (
            "bandwidth: 1 GB/s, latency: 86400 s",
            "pattern: all_to_all, size: 8 KiB, phase_barrier: true",
            "packets",
        ),
    ],
)
def test_what_takes_longer_than_the_clock_is_refused(
    folder, allrail_cli, link, traffic, network_model
):
    fabric = f"{{topology: fat_tree, npus: 16, switch_radix: 4, levels: 3, link: {{{link}}}}}"
    text = f"schema_version: 1\nfabric: {fabric}\ntraffic: {{{traffic}}}\n"
    text += f"network_model: {network_model}\n"
    (folder / "long.yaml").write_text(text)
    outcome = allrail_cli("simulate", "long.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "longer than" in outcome.stderr
    assert "hint: " in outcome.stderr


@pytest.mark.parametrize(
    "own",
    [
        ["fabric.shape=[3, 8]"],
        ["fabric.shape=[8, 3]"],
        ["fabric.shape=[4, 12]"],
        ["fabric.shape=[10, 4]"],
        ["fabric.shape=[2, 4]", "traffic.shape=[1, 8]"],
    ],
    ids=str,
)
def test_what_is_advised_on_a_grid_without_two_cycles_runs(allrail_cli, folder, own):
    text = "schema_version: 1\nfabric: {topology: torus, shape: [2, 2]}\n"
    (folder / "grid.yaml").write_text(f"{text}traffic: {REDUCE}\nnetwork_model: flows\n")

    def simulated(*changes):
        given = [word for change in changes for word in ("--set", change)]
        return allrail_cli("simulate", "grid.yaml", *given)

    refused = simulated(*own)
    assert refused.status == 2
    hint = refused.stderr.partition("hint: ")[2]
    algorithm = re.search(r"`algorithm: (\w+)`", hint)
    assert algorithm
    assert simulated(*own, f"traffic.algorithm={algorithm[1]}").status == 0
    grid = re.search(r"(\d+)x(\d+) NPUs", hint)
    assert (grid is None) == ("traffic.shape=[1, 8]" in own)
    if grid:
        assert simulated(f"fabric.shape=[{grid[1]}, {grid[2]}]").status == 0
