"""Traffic on graph fabrics, from YAML to JSON: the keys that are promised, and that runs repeat."""

from __future__ import annotations

import csv
import json

import pytest

import allrail
from allrail.base.errors import InputError

# The keys as the project promised them.
PROMISED = """\
schema_version: 1
fabric: {topology: hammingmesh, board: [2, 2], grid: [16, 16], planes: 4, switch_radix: 64, rows: merged,
         link: {bandwidth: 400 Gb/s, latency: 20 ns}, board_link: {bandwidth: 400 Gb/s, latency: 1 ns}, taper: 0.0, failed_boards: []}
traffic: {pattern: all_to_all, size: 1 MiB, phases: all, paths: ideal}
network_model: flows
"""  # noqa: E501
SMALL = {
    "schema_version": 1,
    "fabric": {"topology": "torus", "shape": [4, 4], "planes": 2},
    "traffic": {"pattern": "permutation", "size": "64 KiB"},
    "network_model": "packets",
}


def test_the_promised_keys_work_as_they_are(folder, allrail_cli):
    (folder / "mesh.yaml").write_text(PROMISED)
    outcome = allrail_cli("simulate", "mesh.yaml", "--set", "traffic.phases=4", "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    tree = json.loads(outcome.stdout)
    assert (tree["npus"], tree["planes"], tree["phases"]) == (1024, 4, 1023)
    assert tree["phases_simulated"] == 4
    # Published: 25.4 % of injection.
    assert 0.235 < tree["share_of_injection"] < 0.27
    assert tree["time_us"] > tree["lower_bound_time_us"]


@pytest.mark.parametrize(
    "fabric",
    [
        "{topology: fat_tree, npus: 32, switch_radix: 8, levels: 2, taper: 0.5, planes: 16}",
        "{topology: dragonfly, a: 4, p: 2, h: 2, groups: 4, switch_radix: 16}",
        "{topology: torus, shape: [4, 4], board: [2, 2]}",
        "{topology: hyperx, shape: [4, 4]}",
        "hx2mesh-1k",
    ],
)
@pytest.mark.parametrize("network_model", ["flows", "packets"])
def test_every_fabric_takes_traffic(folder, allrail_cli, fabric, network_model):
    traffic = "{pattern: all_to_all, size: 64 KiB, phases: 2 sampled}"
    (folder / "mine.yaml").write_text(
        f"schema_version: 1\nfabric: {fabric}\ntraffic: {traffic}\nnetwork_model: {network_model}\n"
    )
    tree = json.loads(allrail_cli("simulate", "mine.yaml", "--json").stdout)
    assert 0 < tree["share_of_injection"] <= 1
    assert tree["built"]["npus"] == tree["npus"]
    assert ("packet_hops" in tree) == (network_model == "packets")
    assert ("packet_hops_per_s" in tree["host"]) == (network_model == "packets")


def test_the_network_model_is_flows_if_left_out():
    scenario = {key: value for key, value in SMALL.items() if key != "network_model"}
    assert allrail.simulate(scenario).network_model == "flows"


def test_many_at_once_are_the_same_as_one_by_one():
    scenarios = [{**SMALL, "seed": seed} for seed in range(4)]
    together = allrail.simulate_many(scenarios, threads=2)
    alone = [allrail.simulate(scenario) for scenario in scenarios]

    def of(result):
        return {key: value for key, value in result.raw.items() if key != "host"}

    assert [of(one) for one in together] == [of(one) for one in alone]
    assert len({one.time_us for one in together}) > 1


def test_one_of_many_that_is_wrong_is_named():
    wrong = {**SMALL, "traffic": {"pattern": "incast", "size": "1 KiB", "destination": 16}}
    with pytest.raises(InputError) as told:
        allrail.simulate_many([SMALL, wrong])
    assert (told.value.index, told.value.field) == (1, "traffic.destination")


def test_a_trace_file_is_its_messages(folder):
    (folder / "t.csv").write_text("time_us,source,destination,bytes\n0,0,5,4096\n1.5,5,0,8192\n")
    rows = [["0 us", 0, 5, "4096 B"], ["1.5 us", 5, 0, "8192 B"]]
    inline = {**SMALL, "traffic": {"pattern": "trace", "messages": rows}}
    text = "schema_version: 1\nfabric: {topology: torus, shape: [4, 4], planes: 2}\n"
    (folder / "t.yaml").write_text(
        text + "traffic: {pattern: trace, file: t.csv}\nnetwork_model: packets\n"
    )
    filed, listed = allrail.simulate("t.yaml"), allrail.simulate(inline)
    assert filed.time_us == listed.time_us > 1.5
    assert filed.messages == 2
    assert filed.message_latency_us == listed.message_latency_us


def test_out_writes_tables_and_a_picture(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps(SMALL))
    assert allrail_cli("simulate", "mine.json", "--out", "out").status == 0
    assert {path.name for path in (folder / "out").iterdir()} == {
        *("result.json", "traffic.csv", "traffic.parquet", "npus.csv", "npus.parquet"),
        *("bandwidths.svg", "bandwidths.png", "report.html", ".allrail.json"),
    }
    with (folder / "out" / "npus.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 16
    each = ("--each", "traffic.pattern=all_to_all", "--each", "network_model=flows,packets")
    assert allrail_cli("compare", "mine.json", *each, "--out", "out").status == 0
    # The picture of the first run is not one of the second.
    assert {path.name for path in (folder / "out").iterdir()} == {
        *("result.json", "traffic.csv", "traffic.parquet", "shares.svg", "shares.png"),
        *("report.html", ".allrail.json"),
    }


def test_a_broadcast_by_hand(folder, allrail_cli):
    """Four trees of 15 hops of 20 ns, 16 segments of 50 kB at 50 GB/s each."""
    scenario = {
        **SMALL,
        "fabric": {"topology": "torus", "shape": [4, 4], "planes": 2},
        "traffic": {"pattern": "broadcast", "size": "6400 KB", "algorithm": "rings", "root": 3},
        "network_model": "flows",
    }
    result = allrail.simulate(scenario)
    assert result.time_us == pytest.approx(15 * 0.02 + (16 + 14) * 1.0)
    assert (result.segments, result.segments_simulated, result.steps) == (16, 16, None)
    (folder / "mine.json").write_text(json.dumps(scenario))
    many = ("--set", "traffic.segments=400", "--out", "out")
    outcome = allrail_cli("simulate", "mine.json", *many)
    assert outcome.status == 0, outcome.stderr
    assert "broadcast, 6400 KB, rings, 31_of_400_segments" in outcome.stdout
    with (folder / "out" / "traffic.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["segments_simulated"], row["segments"], row["steps"]) == ("31", "400", "")


def test_flowlets_are_static_paths_until_there_is_a_gap():
    """Two messages a pair, 400 us apart: a flow draws anew at its leaf, and at a spine."""
    tree = {"topology": "fat_tree", "npus": 64, "switch_radix": 16, "levels": 2}
    pairs = [(npu, (npu * 37 + 31) % 64) for npu in range(64)]
    rows = [[f"{at} us", *pair, "1 MiB"] for at in (0, 400) for pair in pairs]

    def run(**packets):
        return allrail.simulate(
            {
                "schema_version": 1,
                "fabric": tree,
                "traffic": {"pattern": "trace", "messages": rows},
                "network_model": "packets",
                "packets": packets,
            }
        )

    static, long, short = (
        run(choice="ecmp"),
        run(choice="flowlet", flowlet_gap="1 s"),
        run(choice="flowlet", flowlet_gap="100 us"),
    )
    assert "flowlets" not in static.raw
    assert (long.raw["flowlets"], long.time_us) == (0, static.time_us)
    assert long.message_latency_us == static.message_latency_us
    assert 40 <= short.raw["flowlets"] <= 128
    assert short.raw["out_of_order"] == 0
    assert short.messages == static.messages
    assert short.message_latency_us != static.message_latency_us


def test_compare_prints_a_line_a_variant(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps({**SMALL, "network_model": "flows"}))
    outcome = allrail_cli(
        "compare", "mine.json", "--each", "traffic.paths=ideal,single", "--size", "1KiB,1MiB"
    )
    lines = [line.split() for line in outcome.stdout.splitlines() if not line.startswith("#")]
    assert lines[0] == [
        *("traffic.paths", "traffic.size", "time_us", "speedup", "share_%", "simulated")
    ]
    assert [line[:2] for line in lines[1:]] == [
        *(["ideal", "1KiB"], ["ideal", "1MiB"], ["single", "1KiB"], ["single", "1MiB"])
    ]


def test_an_override_reaches_into_a_preset():
    scenario = {**SMALL, "fabric": "torus-1k"}
    result = allrail.simulate(scenario, sets={"fabric.shape": [4, 8], "fabric.planes": 1})
    assert (result.npus, result.planes) == (32, 1)


def test_switches_that_sum_halve_an_all_reduce():
    tree = {"topology": "fat_tree", "npus": 64, "switch_radix": 16, "levels": 2, "planes": 2}
    scenario = {
        "schema_version": 1,
        "fabric": {**tree, "in_network_reduction": True},
        "traffic": {"pattern": "all_reduce", "size": "100 MB", "algorithm": "in_network"},
    }
    # 50 MB a plane at 50 GB/s, and four cables of 20 ns.
    assert allrail.simulate(scenario).time_us == pytest.approx(1000.08)
    ring = {**scenario, "traffic": {**scenario["traffic"], "algorithm": "ring"}}
    assert allrail.simulate(ring).time_us > 1.9 * 1000
    for changed, told in [
        ({"fabric": tree}, "in_network_reduction: true"),
        ({"network_model": "packets"}, "network_model: flows"),
        ({"fabric": {"topology": "torus", "shape": [4, 4]}}, "fat_tree"),
    ]:
        with pytest.raises(InputError) as refused:
            allrail.simulate({**scenario, **changed})
        assert refused.value.field == "traffic.algorithm"
        assert told in (refused.value.hint or "")


@pytest.mark.parametrize("network_model", ["flows", "packets"])
@pytest.mark.parametrize(("size", "each"), [("1 B", 1), ("3 B", 2), ("64 KiB", 1 << 15)])
def test_planes_carry_whole_bytes(network_model, size, each):
    """What does not divide is rounded up, as if the size were that, and it is said."""
    scenario = {
        **SMALL,
        "traffic": {"pattern": "permutation", "size": size},
        "network_model": network_model,
    }
    got = allrail.simulate(scenario)
    whole = allrail.simulate(scenario, sets={"traffic.size": f"{2 * each} B"})
    assert got.time_us == whole.time_us > 0
    told = [note for note in got.notes if "does not divide" in note]
    assert told == ([] if got.size_bytes == 2 * each else [whole_bytes(each)])


def whole_bytes(each):
    return f"`size` does not divide by 2 planes: each carries {each} B"
