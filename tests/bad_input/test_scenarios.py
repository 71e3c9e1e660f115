"""Mistakes in a scenario's values: each is told once, with its place, its value and a hint."""

from __future__ import annotations

import pytest

INLINE = """\
schema_version: 1
fabric:
  name: mine
  dimensions:
    - {kind: switch, size: 16, links: 2, bandwidth: 200 Gb/s, latency: 700 ns}
    - {kind: ring, size: 8, links: 2, bandwidth: 100 Gb/s, latency: 1 us}
collective: {kind: all_reduce, size: 1 GB}
schedule: {policy: themis, order: smallest_first, chunks: 64}
network_model: dims
seed: 0
"""

# What is written, what is written instead, the field, the value, a part of why and hint.
CASES = [
    # numbers and units
    ("bandwidth: 200 Gb/s", "bandwidth: 200", "fabric.dimensions[0].bandwidth", "200", "unit"),
    ("bandwidth: 200 Gb/s", "bandwidth: 200.5", "fabric.dimensions[0].bandwidth", "200.5", "unit"),
    ("bandwidth: 200 Gb/s", "bandwidth: 0 Gb/s", "fabric.dimensions[0].bandwidth", "0 Gb/s", "zer"),
    ("bandwidth: 200 Gb/s", "bandwidth: 0", "fabric.dimensions[0].bandwidth", "0", "unit"),
    (
        "bandwidth: 200 Gb/s",
        "bandwidth: -5 Gb/s",
        "fabric.dimensions[0].bandwidth",
        "-5 Gb/s",
        "negative",
    ),
    ("bandwidth: 200 Gb/s", "bandwidth: -5", "fabric.dimensions[0].bandwidth", "-5", "negative"),
    ("bandwidth: 200 Gb/s", "bandwidth: .nan", "fabric.dimensions[0].bandwidth", "NaN", "finite"),
    (
        "bandwidth: 200 Gb/s",
        "bandwidth: nan Gb/s",
        "fabric.dimensions[0].bandwidth",
        "nan Gb/s",
        "finite",
    ),
    ("bandwidth: 200 Gb/s", "bandwidth: .inf", "fabric.dimensions[0].bandwidth", "Inf", ""),
    (
        "bandwidth: 200 Gb/s",
        "bandwidth: 2000000 PB/s",
        "fabric.dimensions[0].bandwidth",
        "2000000 PB/s",
        "above",
    ),
    (
        "bandwidth: 200 Gb/s",
        "bandwidth: 1 B/s",
        "fabric.dimensions[0].bandwidth",
        "1 B/s",
        "below",
    ),
    (
        "bandwidth: 200 Gb/s",
        "bandwidth: 200 Gbps",
        "fabric.dimensions[0].bandwidth",
        "200 Gbps",
        "did you mean `200 Gb/s`?",
    ),
    (
        "bandwidth: 200 Gb/s",
        "bandwidth: fast",
        "fabric.dimensions[0].bandwidth",
        "fast",
        "number",
    ),
    ("bandwidth: 200 Gb/s", "bandwidth: true", "fabric.dimensions[0].bandwidth", "true", "unit"),
    ("bandwidth: 200 Gb/s", "bandwidth: [1]", "fabric.dimensions[0].bandwidth", "[1]", "unit"),
    ("latency: 700 ns", "latency: 700", "fabric.dimensions[0].latency", "700", "unit"),
    ("latency: 700 ns", "latency: -1 ns", "fabric.dimensions[0].latency", "-1 ns", "negative"),
    ("latency: 700 ns", "latency: 700 GB", "fabric.dimensions[0].latency", "700 GB", "unit"),
    ("latency: 700 ns", "latency: 9 years", "fabric.dimensions[0].latency", "9 years", "unit"),
    ("latency: 700 ns", "latency: 90000 s", "fabric.dimensions[0].latency", "90000 s", "day"),
    ("size: 1 GB", "size: 1000000000", "collective.size", "1000000000", "unit"),
    ("size: 1 GB", "size: 0 B", "collective.size", "0 B", "zero"),
    ("size: 1 GB", "size: 1 Gb", "collective.size", "1 Gb", "did you mean"),
    ("size: 1 GB", "size: 4 PiB", "collective.size", "4 PiB", "larger"),
    ("size: 1 GB", "size: 1e9 B", "collective.size", "1e9 B", "exponent"),
    (
        "size: 1 GB",
        "size: 99999999999999999999999999999 GB",
        "collective.size",
        "99999999999999999999999999999 GB",
        "digits",
    ),
    ("size: 1 GB", 'size: ""', "collective.size", "", "number"),
    ("size: 1 GB", "size: 1 GB, start: 5", "collective.start", "5", "unit"),
    # counts
    ("size: 16", "size: 0", "fabric.dimensions[0].size", "0", "2"),
    ("size: 16", "size: 1", "fabric.dimensions[0].size", "1", "2"),
    ("size: 16", "size: 1.5", "fabric.dimensions[0].size", "1.5", "whole"),
    ("size: 16", "size: 16.0", "fabric.dimensions[0].size", "16.0", "whole"),
    ("size: 16", "size: -4", "fabric.dimensions[0].size", "-4", "2"),
    ("size: 16", "size: '16'", "fabric.dimensions[0].size", "16", "whole"),
    ("size: 16", "size: true", "fabric.dimensions[0].size", "true", "whole"),
    ("size: 16", "size: .nan", "fabric.dimensions[0].size", "NaN", "whole"),
    ("size: 16", "size: 99999999999", "fabric.dimensions[0].size", "99999999999", "above"),
    ("size: 16", "size: 4000000000", "fabric.dimensions[0].size", "4000000000", "NPUs"),
    ("links: 2, bandwidth: 200", "links: 0, bandwidth: 200", "fabric.dimensions[0].links", "0", ""),
    ("links: 2, bandwidth: 200", "links: x, bandwidth: 200", "fabric.dimensions[0].links", "x", ""),
    ("chunks: 64", "chunks: 0", "schedule.chunks", "0", "below"),
    ("chunks: 64", "chunks: -1", "schedule.chunks", "-1", "below"),
    ("chunks: 64", "chunks: 2.5", "schedule.chunks", "2.5", "whole"),
    ("chunks: 64", "chunks: all", "schedule.chunks", "all", "whole"),
    ("size: 1 GB", "size: 63 B", "schedule.chunks", "64", "byte"),
    ("chunks: 64", "chunks: 64, threshold: 0", "schedule.threshold", "0", "below"),
    ("chunks: 64", "chunks: 64, active_chunks: 0", "schedule.active_chunks", "0", "below"),
    ("chunks: 64", "chunks: 64, active_chunks: full", "schedule.active_chunks", "full", "fill"),
    (
        "chunks: 64}",
        "chunks: 64}\ncompat: {communicators: ring}",
        "compat.communicators",
        "ring",
        "share",
    ),
    ("chunks: 64", "chunks: 64, send_ahead: -1 B", "schedule.send_ahead", "-1 B", "negative"),
    ("chunks: 64", "chunks: 64, send_ahead: 65536", "schedule.send_ahead", "65536", "unit"),
    ("chunks: 64", "chunks: 64, send_ahead: 4 PiB", "schedule.send_ahead", "4 PiB", "larger"),
    ("seed: 0", "seed: -1", "seed", "-1", "below"),
    ("seed: 0", "seed: 18446744073709551616", "seed", "18446744073709551616", "above"),
    ("schema_version: 1", "schema_version: 2", "schema_version", "2", "schema_version: 1"),
    ("schema_version: 1", "schema_version: '1'", "schema_version", "1", "schema_version: 1"),
    # names
    ("policy: themis", "policy: themsi", "schedule.policy", "themsi", "did you mean `themis`?"),
    ("policy: themis", "policy: quickest", "schedule.policy", "quickest", "`baseline`"),
    ("policy: themis", "policy: 7", "schedule.policy", "7", "`baseline`"),
    ("order: smallest_first", "order: smallest-first", "schedule.order", "smallest-first", "mean"),
    ("order: smallest_first", "order: best", "schedule.order", "best", "`fifo`"),
    ("network_model: dims", "network_model: dim", "network_model", "dim", "did you mean `dims`?"),
    ("kind: all_reduce", "kind: allreduce", "collective.kind", "allreduce", "mean `all_reduce`?"),
    ("kind: ring", "kind: torus", "fabric.dimensions[1].kind", "torus", "`ring`"),
    ("chunks: 64", "chunks: 64, algorithms: [ring, rng]", "schedule.algorithms[1]", "rng", "ring"),
    # shapes
    ("chunks: 64", "chunks: 64, algorithms: [ring]", "schedule.algorithms", '["ring"]', "2 dim"),
    (
        "chunks: 64",
        "chunks: 64, algorithms: [direct, ring, ring]",
        "schedule.algorithms",
        '["direct", "ring", "ring"]',
        "2 dim",
    ),
    ("chunks: 64", "chunks: 64, algorithms: ring", "schedule.algorithms", "ring", "list"),
    ("size: 1 GB", "size: 1 GB, dimensions: [2]", "collective.dimensions", "[2]", "0 to 1"),
    ("size: 1 GB", "size: 1 GB, dimensions: [0, 0]", "collective.dimensions", "[0, 0]", "twice"),
    ("size: 1 GB", "size: 1 GB, dimensions: []", "collective.dimensions", "[]", "empty"),
    ("size: 1 GB", "size: 1 GB, dimensions: [-1]", "collective.dimensions[0]", "-1", "below"),
    (
        "schedule: {policy: themis, order: smallest_first, chunks: 64}",
        "schedule: 4",
        "schedule",
        "4",
        "",
    ),
    ("collective: {kind: all_reduce, size: 1 GB}", "collective: []", "collective", "[]", "empty"),
    (
        "collective: {kind: all_reduce, size: 1 GB}",
        "collective: 1 GB",
        "collective",
        "1 GB",
        "list",
    ),
    # keys
    ("policy: themis", "polcy: themis", "schedule.polcy", "themis", "did you mean `policy`?"),
    ("fabric:", "fabirc:", "fabirc", "mine", "did you mean `fabric`?"),
    ("links: 2", "lanes: 2", "fabric.dimensions[0].lanes", "2", "`links`"),
    ("size: 1 GB", "size: 1 GB, colour: red", "collective.colour", "red", "the keys here are"),
    # what only the whole tells
    ("kind: ring", "header: 16 B, kind: ring", "fabric.dimensions[1].header", "16 B", "payload"),
    (
        "kind: ring",
        "payload: 2 GiB, header: 1 B, kind: ring",
        "fabric.dimensions[1].payload",
        "2 GiB",
        "1 GiB",
    ),
    (
        "kind: ring",
        "in_network_reduction: true, kind: ring",
        "fabric.dimensions[1].in_network_reduction",
        "true",
        "switch",
    ),
    (
        "kind: ring",
        "reduction_bandwidth: 1 GB/s, kind: ring",
        "fabric.dimensions[1].reduction_bandwidth",
        "8 Gb/s",
        "does not reduce",
    ),
    (
        "kind: switch",
        "in_network_reduction: true, reduction_bandwidth: 900 TB/s, kind: switch",
        "fabric.dimensions[0].reduction_bandwidth",
        "7200000 Gb/s",
        "at most",
    ),
]


@pytest.mark.parametrize(("old", "new", "field", "value", "told"), CASES, ids=str)
def test_is_told_once_with_its_place(folder, allrail_cli, old, new, field, value, told):
    assert old in INLINE
    text = INLINE.replace(old, new, 1)
    (folder / "scenario.yaml").write_text(text)
    outcome = allrail_cli("simulate", "scenario.yaml", "--out", "out")
    assert outcome.status == 2
    assert outcome.stdout == ""
    message, _, hint = outcome.stderr.partition("\n\nhint: ")
    assert message.startswith("error: scenario.yaml:"), outcome.stderr
    assert message.count("\n") == 0
    assert f"`{field}`" in message
    assert value in message
    assert hint.strip()
    assert told in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["scenario.yaml"]
    key = field.split(".")[-1].split("[")[0]
    lines = [i for i, part in enumerate(text.splitlines(), 1) if new in part or key + ":" in part]
    assert any(f"scenario.yaml:{line}:" in message for line in lines)
