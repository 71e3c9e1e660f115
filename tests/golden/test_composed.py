"""Composed networks in all network models: collectives and training steps on one fabric."""

from __future__ import annotations

import pytest

import allrail

POD = {
    "topology": "composed",
    "domains": 4,
    "inside": {"kind": "switch", "size": 4, "bandwidth": "400 GB/s", "latency": "1 us"},
    "ports": "by_rail",
    "outside": {"topology": "fat_tree", "npus": 16, "levels": 2, "switch_radix": 8},
}
NETWORK_MODELS = ("dims", "links", "flows", "packets")


def scenario(network_model: str, **more) -> dict:
    return {"schema_version": 1, "fabric": POD, "network_model": network_model, **more}


@pytest.mark.parametrize("network_model", NETWORK_MODELS)
def test_collectives_take_the_inside_and_the_outside(network_model):
    """Of an all-reduce on both, a quarter leaves the domains."""
    collective = {"kind": "all_reduce", "size": "16 MiB"}
    result = allrail.simulate(scenario(network_model, collective=collective)).to_dict()
    # 3/4 of 16 MiB twice at 400 GB/s inside, the same of 4 MiB at 50 GB/s outside, side by side.
    assert 125.8 < result["time_us"] < 62.9 + 125.8 + 60


@pytest.mark.parametrize("network_model", NETWORK_MODELS)
def test_training_steps_run(network_model):
    workload = {
        "model": "vgg16",
        "parallelism": {"dp": 16},
        "micro_batch": 1,
        "iterations": 2,
        "compute": {"peak": "100000 TFLOP/s", "efficiency": 1.0},  # next to no time
    }
    result = allrail.simulate(scenario(network_model, workload=workload)).to_dict()
    # 553 MB of gradients, 3/4 of a quarter of them twice at 50 GB/s.
    assert 4150 < result["exposed_us"]["data"] < 4180


OWN = {
    "topology": "graph",
    "npus": [f"p{port}" for port in range(16)],
    "switches": ["left", "right"],
    "link": {"bandwidth": "400 Gb/s", "latency": "100 ns"},
    "links": [
        *({"from": f"p{port}", "to": "left" if port < 8 else "right"} for port in range(16)),
        {"from": "left", "to": "right", "count": 2},
    ],
}
OUTSIDES = {
    "dragonfly": (18, {"topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9}),
    "own graph": (4, OWN),
    "mesh": (4, {"topology": "mesh", "shape": [4, 4]}),
    "HammingMesh over dragonflies": (
        16,
        {"topology": "hammingmesh", "board": [2, 2], "grid": [4, 4], "global": "dragonfly"},
    ),
    "torus that domains do not divide": (9, {"topology": "torus", "shape": [6, 6]}),
}


@pytest.mark.parametrize("network_model", NETWORK_MODELS)
@pytest.mark.parametrize("outside", OUTSIDES)
def test_any_graph_outside_runs(network_model, outside):
    """Collectives and layouts, of which one leaves NPUs over."""
    domains, keys = OUTSIDES[outside]
    fabric = {**POD, "domains": domains, "ports": "by_domain", "outside": keys}
    tree = {"schema_version": 1, "fabric": fabric, "network_model": network_model}
    collective = {"kind": "all_gather", "size": "1 MiB"}
    result = allrail.simulate({**tree, "collective": collective})
    assert result.time_us > result.bound_time_us
    assert "over cables" in result.counted
    workload = {
        "model": {
            "transformer": {
                "layers": 4,
                "hidden": 64,
                "heads": 4,
                "vocabulary": 256,
                "sequence_length": 32,
            }
        },
        "parallelism": {"tp": 2, "pp": 2, "dp": 3},
        "batch_per_replica": 4,
        "compute": {"peak": "10 TFLOP/s", "memory_bandwidth": "1 TB/s"},
    }
    step = allrail.simulate({**tree, "workload": workload})
    assert step.npus == 12
    assert any("12 of" in note and "idle" in note for note in step.notes)
    assert any("over cables" in note for note in step.notes)


@pytest.mark.parametrize(
    "fabric",
    [
        "dragonfly-1k",
        "{topology: mesh, shape: [4, 4], npus_per_switch: 1}",
        "{topology: torus, shape: [4, 4], failed_nodes: [3]}",
    ],
)
def test_a_plan_of_a_network_without_dimensions_is_kept(folder, allrail_cli, fabric):
    text = (folder / "scenario.yaml").read_text().replace("tutorial-8x8x8", fabric)
    (folder / "scenario.yaml").write_text(text)
    made = allrail_cli("plan", "scenario.yaml", "--out", "plan.json")
    assert made.status == 0
    alone, kept = (
        allrail_cli("simulate", "scenario.yaml", *options)
        for options in ((), ("--plan", "plan.json"))
    )
    assert (alone.status, kept.status) == (0, 0)
    times = [line for line in alone.stdout.splitlines() if line.startswith("time_us")]
    assert times
    assert times[0] in kept.stdout
    assert "count messages over cables" in alone.stderr + alone.stdout
    assert "cables among" in allrail_cli("fabric", "show", fabric).stdout or "{" in fabric


@pytest.mark.parametrize("fabric", ["dgx-h100", "dgx-b200", "gb200-nvl72", "tpu-v5p-cube"])
def test_presets_train_in_all_network_models(fabric):
    """A job that communicates little takes as long on dimensions as on their cables."""
    workload = {
        "model": "vgg16",
        "parallelism": {"dp": 16} if "tpu" not in fabric else {"dp": 64},
        "micro_batch": 1,
        "iterations": 1,
        "compute": {"peak": "1 TFLOP/s", "efficiency": 1.0},
    }
    packets = {"packet": "1 MiB", "buffer": "8 MiB"}
    times = {}
    for network_model in NETWORK_MODELS:
        tree = {
            "schema_version": 1,
            "fabric": fabric,
            "network_model": network_model,
            "workload": workload,
        }
        if network_model == "packets":
            tree["packets"] = packets
        times[network_model] = allrail.simulate(tree).step_time_us
    assert max(times.values()) < 1.1 * min(times.values()), times
