"""Keys, defaults and ranges are the core's: what Python says of them is generated, or the same."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

import allrail
from allrail import _core
from allrail.scenario.keys import fabric, traffic, workload
from allrail.scenario.model import Scenario

ROOT = Path(__file__).parents[2]
PLAIN = {
    "fabric": {
        "dimensions": [
            {"kind": "ring", "size": 4, "bandwidth": "10 GB/s", "latency": "1 us"},
            {"kind": "switch", "size": 2, "bandwidth": "5 GB/s", "latency": "1 us"},
        ]
    },
    "collective": [{"kind": "all_reduce", "size": "1 MB"}],
}
STEP = {
    "fabric": PLAIN["fabric"],
    "workload": {
        "model": {"layers": [{"name": "one", "dense": {"inputs": 64, "outputs": 64}}]},
        "batch_per_replica": 1,
        "compute": {"device": "a100"},
    },
}
TRAFFIC = {
    "fabric": {"topology": "torus", "shape": [4, 4]},
    "traffic": {"pattern": "uniform", "size": "1 MB"},
}


def without_host(text: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(text).items() if key != "host"}


def test_the_parts_are_current():
    script = runpy.run_path(str(ROOT / "docs" / "scenario_keys.py"))
    for path, text in script["files"]().items():
        assert path.read_text(encoding="utf-8") == text, "run `make reference` (or `make docs`)"


def test_the_top_has_the_keys_of_the_core():
    definitions = json.loads(_core.scenario_keys())
    properties = definitions["Scenario"]["properties"]
    core = {key: " ".join(one["description"].split()) for key, one in properties.items()}
    ours = {key: field.description for key, field in Scenario.model_fields.items()}
    assert ours == core


@pytest.mark.parametrize("policy", [None, "baseline", "themis", "search"])
def test_a_collective_takes_the_same_defaults_on_both_sides(policy):
    tree = {"schema_version": 1, **PLAIN}
    if policy is not None:
        tree["schedule"] = {"policy": policy}
    loaded = allrail.load_scenario(tree)
    ours, core = loaded.to_json(), json.dumps(tree)
    assert _core.plan_key(ours) == _core.plan_key(core)
    assert without_host(_core.simulate(ours)) == without_host(_core.simulate(core))


@pytest.mark.parametrize("policy", [None, "themis"])
def test_a_step_takes_the_same_defaults_on_both_sides(policy):
    tree = {"schema_version": 1, **STEP}
    if policy is not None:
        tree["schedule"] = {"policy": policy}
    ours, core = allrail.load_scenario(tree).to_json(), json.dumps(tree)
    results = [without_host(_core.simulate(text)) for text in (ours, core)]
    for result in results:
        result.pop("name", None)
        result.pop("workload", None)
    assert results[0] == results[1]


def test_traffic_takes_the_same_defaults_on_both_sides():
    tree = {"schema_version": 1, **TRAFFIC}
    ours, core = allrail.load_scenario(tree).to_json(), json.dumps(tree)
    results = [without_host(_core.simulate(text)) for text in (ours, core)]
    assert results[0] == results[1]


def test_no_part_is_written_by_hand():
    """A field beside the generated ones is one that the core never sees."""
    fields = {
        "fabric": (allrail.Fabric, fabric.Fabric, {"error", "library"}),
        "workload": (allrail.Workload, workload.Workload, set()),
        "traffic": (allrail.Traffic, traffic.Traffic, {"file"}),
    }
    for ours, generated, more in fields.values():
        assert set(ours.model_fields) - set(generated.model_fields) == more
