"""What people found where two network models, or two ways to ask, disagree.

The networks are those of the questions: a Slim Fly of 200 NPUs, four nodes whose rails miss a NIC,
and a TPU v4 slice of 4 x 4 x 8 with its twist, written as graphs.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

import allrail
from reference import reference

SLIM_FLY = "09-graph-default-algorithm/ar_slimfly.yaml"
RAILS = "09-graph-default-algorithm/ar_railmiss.yaml"
TWISTED = "17-twisted-torus/ar_twist448.yaml"
AUTO = {"schedule.algorithms": "auto"}


def field(name):
    return reference(f"field/{name}")


def renamed(name, folder):
    """The scenario in a folder of its own, with the key's name of today."""
    shutil.copytree(field(name).parent, folder, dirs_exist_ok=True)
    path = folder / Path(name).name
    path.write_text(path.read_text().replace("\nworld:", "\nnetwork_model:"))
    return path


def time(path, sets):
    return allrail.simulate(path, sets={"network_model": "dims", **sets}).time_us


@pytest.mark.parametrize(
    ("name", "faster", "usual"),
    [
        (SLIM_FLY, 3.0, "halving_doubling"),
        (RAILS, 4.0, "halving_doubling"),
        (TWISTED, 1.9, "halving_doubling"),
    ],
)
def test_the_default_on_a_graph_is_what_is_counted_to_be_the_fastest(name, faster, usual, tmp_path):
    path = renamed(name, tmp_path)
    default = time(path, {})
    assert default == pytest.approx(time(path, AUTO), rel=0.001)
    assert time(path, {"schedule.algorithms": [usual]}) > faster * default


def test_a_step_on_rails_that_miss_a_nic_takes_the_fastest_too():
    path = field("09-graph-default-algorithm/step.yaml")
    default = allrail.simulate(path)
    assert default.step_time_us == pytest.approx(696_173, rel=0.01)
    assert default.dimensions[0].algorithm != "halving_doubling"


def test_a_torus_with_a_twist_has_the_cables_of_the_graph(tmp_path):
    path = field("17-twisted-torus/twist448.yaml")
    graph = yaml.safe_load(path.read_text())
    torus = {
        "topology": "torus",
        "shape": [4, 4, 8],
        "twist": 4,
        "link": {"bandwidth": "400 Gb/s", "latency": "100 ns"},
    }
    one = {
        "schema_version": 1,
        "traffic": {"pattern": "all_to_all", "size": "1 MiB"},
        "network_model": "flows",
    }
    times = [allrail.simulate({**one, "fabric": fabric}) for fabric in (graph, torus)]
    assert times[0].time_us == pytest.approx(times[1].time_us, rel=1e-6)
    collective = {
        "schema_version": 1,
        "collective": {"kind": "all_reduce", "size": "256 MiB"},
        "schedule": {"policy": "baseline", "chunks": 4},
    }
    # Rings along the last dimension are known to be rings; of the graph, trees know all cables.
    named = {**collective, "schedule": {**collective["schedule"], "algorithms": ["ring"]}}
    of_torus, of_rings, of_trees = (
        allrail.simulate({**one, "fabric": fabric}).time_us
        for one, fabric in ((collective, torus), (named, graph), (collective, graph))
    )
    assert of_trees < of_torus < of_rings


def test_paths_of_a_collective_s_messages_can_be_named(allrail_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = {
        "schema_version": 1,
        "fabric": {"topology": "mesh", "shape": [4, 4]},
        "collective": {"kind": "all_to_all", "size": "4 MiB"},
        "schedule": {"algorithms": ["direct"], "chunks": 1},
        "network_model": "flows",
    }
    times = {
        paths: allrail.simulate({**one, "messages": {"paths": paths}}).time_us
        for paths in ("minimal", "single")
    }
    assert times["single"] > 1.01 * times["minimal"]
    assert allrail.simulate(one).time_us == times["minimal"]
    for messages, network_model, told in (
        ({"paths": "single"}, "dims", "only `flows` splits messages over paths"),
        ({"steady": True}, "flows", "only a `workload` has it"),
    ):
        wrong = {**one, "messages": messages, "network_model": network_model}
        (tmp_path / "one.yaml").write_text(yaml.safe_dump(wrong))
        outcome = allrail_cli("simulate", "one.yaml")
        assert outcome.status == 2
        assert told in outcome.stderr


def test_a_policy_that_is_behind_the_baseline_says_so(allrail_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = {
        "schema_version": 1,
        "fabric": "tutorial-8x8x8",
        "collective": {"kind": "all_reduce", "size": "1 KiB"},
        "schedule": {"policy": "themis"},
    }
    baseline = allrail.simulate(one, sets={"schedule.policy": "baseline"}).time_us
    result = allrail.simulate(one)
    behind = result.time_us > 1.001 * baseline
    assert behind == (result.behind_baseline is not None)
    (tmp_path / "one.yaml").write_text(json.dumps(one))
    outcome = allrail_cli("simulate", "one.yaml")
    assert ("longer here than `baseline`" in outcome.stderr + outcome.stdout) == behind
    large = allrail.simulate(one, sets={"collective.size": "1 GiB"})
    assert large.behind_baseline is None
