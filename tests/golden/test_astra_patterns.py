"""Patterns of messages as ASTRA-sim has them: times that it gave, and traces that allrail wrote."""

from __future__ import annotations

import json

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.formats.astra_sim import read_case
from allrail.formats.chakra_export import export_chakra
from allrail.scenario import load_scenario

NETWORK = {
    "topologies-per-dim": ["Switch"],
    "units-count": [8],
    "links-count": [1],
    "link-latency": [700],
    "link-bandwidth": [25.0],
}
LAYER = {"parameters": 2**18, "output": 1024, "forward": "1 ms", "backward": "2 ms"}


def micro(folder, *, chunks: int, active: int) -> float:
    """An all-reduce of 91 KiB on trees of 8 NPUs, in ns: files of 1.0."""
    network, system, workload = (folder / name for name in ("n.json", "s.txt", "w.txt"))
    network.write_text(json.dumps(NETWORK | {"dimensions-count": 1}))
    system.write_text(
        "scheduling-policy: FIFO\nendpoint-delay: 10\n"
        f"active-chunks-per-dimension: {active}\npreferred-dataset-splits: {chunks}\n"
        "all-reduce-implementation: doubleBinaryTree\ncollective-optimization: baseline\n"
    )
    workload.write_text("MICRO\n1\nlayer\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t93184\t10\n")
    case = read_case(network, system=system, workload=workload)
    return allrail.simulate(case.scenario).time_us * 1e3 + case.update_time


# What the tutorial's build (tag tutorial-asplos2022) prints; all chunks go through the same tree.
@pytest.mark.parametrize(
    ("chunks", "active", "expected"),
    [(1, 1, 29306), (2, 1, 37770), (4, 1, 54698), (4, 2, 27354), (4, 3, 27354), (8, 4, 22146)],
)
def test_a_tree_of_1_0_is_one_for_all_chunks(tmp_path, chunks, active, expected):
    assert micro(tmp_path, chunks=chunks, active=active) == pytest.approx(expected, rel=0.001)


TRAINED = {
    "model": {"layers": [{"name": "one", "repeat": 4, **LAYER}]},
    "precision": "fp32",
    "micro_batch": 1,
    "batch_per_replica": 2,
    "iterations": 1,
    "parallelism": {"pp": 2},
}


def on_a_ring(workload):
    """Four NPUs in `links`."""
    ring = {"kind": "ring", "size": 4, "bandwidth": "50 GB/s", "latency": "500 ns"}
    return load_scenario(
        {
            "schema_version": 1,
            "fabric": {"name": "ring", "dimensions": [ring]},
            "workload": workload,
            "network_model": "links",
        }
    )


def steps(scenario) -> list[float]:
    """How long each step takes, in us."""
    return allrail.simulate(scenario).to_dict()["steps_us"]


def test_a_pipeline_that_was_exported_takes_as_long_when_it_is_read(tmp_path):
    scenario = on_a_ring(TRAINED)
    export_chakra(scenario, folder=tmp_path, name="w")
    again = on_a_ring({"model": {"trace": str(tmp_path / "w")}, "iterations": 1})
    assert steps(again) == pytest.approx(steps(scenario), rel=1e-6)
    # And under ASTRA-sim's files, in which messages of ranks need `links`.
    (tmp_path / "n.yml").write_text(
        "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 46.566 ]\nlatency: [ 500.0 ]\n"
    )
    keys = {"endpoint-delay": 0, "preferred-dataset-splits": 1}
    rings = {f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather")}
    (tmp_path / "s.json").write_text(json.dumps(keys | rings))
    case = read_case(tmp_path / "n.yml", system=tmp_path / "s.json", workload=tmp_path / "w")
    assert case.scenario["network_model"] == "links"
    assert sum(steps(case.scenario)) == pytest.approx(sum(steps(scenario)), rel=0.05)


def direct(npus: int, window: int | None, network_model: str, **keys) -> float:
    """A collective of 1 MiB from everyone to everyone on a switch without contention, in ns."""
    switch = {"kind": "switch", "size": npus, "bandwidth": "50 GB/s", "latency": "700 ns"}
    fabric = {"name": "one", "dimensions": [switch | {"contention": "none"}]}
    memory = {"memory_bandwidth": "100 GB/s"} if keys.pop("memory", False) else {}
    scenario = {
        "schema_version": 1,
        "fabric": fabric | memory | ({} if window is None else {"window": window}),
        "collective": {"size": "1 MiB"} | keys,
        "schedule": {"chunks": 1, "algorithms": ["direct"], "endpoint_delay": "100 ns"}
        | {"composition": "sequential"},
        "network_model": network_model,
    }
    return allrail.simulate(scenario).time_us * 1e3


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
def test_a_window_is_the_same_in_stages_and_in_messages(kind, window, memory):
    stages = direct(8, window, "dims", kind=kind, memory=memory)
    messages = direct(8, window, "links", kind=kind, memory=memory)
    assert stages == pytest.approx(messages, abs=15), "whole ns, of each of 14 messages at most"


@pytest.mark.parametrize(("window", "rounds"), [(1, 7), (2, 4), (3, 3), (4, 2), (7, 1), (8, 1)])
def test_a_window_makes_rounds_of_a_step(window, rounds):
    # 128 KiB at 50 GB/s, a latency and the endpoint; once more at the start.
    one = 2**17 / 50 + 700 + 100
    assert direct(8, window, "dims", kind="all_to_all") == pytest.approx(100 + rounds * one, abs=8)


def test_a_window_as_wide_as_the_others_lets_each_half_message_leave_when_it_is_reduced():
    # Where messages share links they come one after the other, and are reduced one after the other.
    def shared(window):
        switch = {"kind": "switch", "size": 8, "bandwidth": "50 GB/s", "latency": "700 ns"}
        tree = {
            "schema_version": 1,
            "fabric": {"name": "one", "dimensions": [switch], "memory_bandwidth": "20 GB/s"},
            "collective": {"kind": "all_reduce", "size": "1 MiB"},
            "schedule": {"chunks": 1, "algorithms": ["direct"], "composition": "sequential"},
            "network_model": "links",
        }
        if window:
            tree["fabric"]["window"] = window
        return allrail.simulate(tree).time_us

    # Reducing one takes 19.7 us, sending one 2.6: when the last has come none is reduced, and six
    # messages of seven leave while others are.
    step = 2**17 / 50e3
    assert shared(None) - shared(7) == pytest.approx(6 * step, rel=0.01)


def test_a_window_needs_messages():
    ring = {"kind": "ring", "size": 4, "bandwidth": "50 GB/s", "latency": "500 ns"}
    tree = {
        "schema_version": 1,
        "fabric": {"name": "ring", "dimensions": [ring], "window": 2},
        "collective": {"kind": "all_reduce", "size": "1 MiB"},
    }
    with pytest.raises(InputError, match=r"fabric\.window"):
        allrail.simulate(tree)


def test_windows_of_a_file_are_one(tmp_path):
    (tmp_path / "n.json").write_text(json.dumps(NETWORK | {"dimensions-count": 1}))
    (tmp_path / "w.txt").write_text(
        "MICRO\n1\nlayer\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t93184\t10\n"
    )

    def read(name: str, **network_model: str):
        (tmp_path / "s.txt").write_text(f"all-reduce-implementation: {name}\n")
        files = {"system": tmp_path / "s.txt", "workload": tmp_path / "w.txt"}
        return read_case(tmp_path / "n.json", **files, **network_model)

    assert read("direct3").scenario["fabric"]["window"] == 3
    # All at once they come at one time, but not where they share links.
    assert "window" not in read("direct").scenario["fabric"]
    assert read("direct", network_model="links").scenario["fabric"]["window"] == 8
    assert "window" not in read("ring").scenario["fabric"]
    with pytest.raises(InputError, match="direct0"):
        read("direct0")
