"""ASTRA-sim 2.x's quartet: a trace under a network, a system and process groups, as it is."""

from __future__ import annotations

import json

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.formats.astra_sim import read_case
from allrail.formats.chakra_export import export_chakra
from allrail.scenario import load_scenario

NETWORK = "topology: [ Ring ]\nnpus_count: [ {} ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    **{
        f"{kind}-implementation": ["ring"]
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    },
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600,
}
GROUPED = (
    b"\x07\n\x050.0.4H\x08\x01\x12\x01r\x18\x07R\x0e\n\tis_cpu_op\xd8\x01\x00R\r\n\tcomm_typeH\x00"
    b"R\x0f\n\tcomm_sizeH\x80\x80@R\x0f\n\x07pg_name\xea\x01\x034.0"
)
"""A trace of one all-reduce of 1 MiB in the group `4.0`, as Chakra's protobuf."""
LAYER = {"parameters": 2**18, "output": 1024, "forward": "1 ms", "backward": "2 ms"}


def trained(npus: int, **parallelism):
    """A step of a small model on a ring."""
    return load_scenario(
        {
            "schema_version": 1,
            "fabric": {
                "name": "ring",
                "dimensions": [
                    {"kind": "ring", "size": npus, "bandwidth": "50 GB/s", "latency": "500 ns"}
                ],
            },
            "workload": {
                "model": {"layers": [{"name": "one", "repeat": 2, **LAYER}]},
                "precision": "fp32",
                "batch_per_replica": 1,
                "iterations": 1,
                "parallelism": parallelism,
            },
        }
    )


@pytest.fixture
def quartet(tmp_path):
    """Writes the files for so many NPUs; the trace is data parallel."""

    def write(npus: int = 4, **system):
        (tmp_path / "network.yml").write_text(NETWORK.format(npus))
        (tmp_path / "system.json").write_text(json.dumps(SYSTEM | system))
        export_chakra(trained(npus), folder=tmp_path, name="w")

        def read(**options):
            network = options.pop("network", tmp_path / "network.yml")
            named = {"system": tmp_path / "system.json", "workload": tmp_path / "w"} | options
            return read_case(network, **named)

        return read

    return write


def refused(read, **options) -> str:
    with pytest.raises(InputError) as told:
        allrail.simulate(read(**options).scenario)
    return str(told.value)


def test_alike_ranks_are_a_class_and_links_are_asked_for(quartet):
    read = quartet()
    assert read().scenario["network_model"] == "dims"
    unaware = allrail.simulate(read().scenario).to_dict()["steps_us"]
    aware = allrail.simulate(read(network_model="links").scenario).to_dict()["steps_us"]
    # A ring's messages cross one link each and meet nobody.
    assert sum(aware) == pytest.approx(sum(unaware), rel=0.005)


def test_a_reduction_waits_for_memory(quartet):
    fast = allrail.simulate(quartet()().scenario).to_dict()["steps_us"]
    slow = allrail.simulate(quartet(**{"local-mem-bw": 50})().scenario).to_dict()["steps_us"]
    # A gradient's all-reduce is exposed: a quarter of 1 MiB in each of three steps, read twice and
    # written once.
    more = 3 * 3 * 2**20 / 4 * (1 / 50e3 - 1 / 1600e3)
    assert sum(slow) - sum(fast) == pytest.approx(more, rel=0.1)


def test_a_group_may_be_written_as_a_decimal(quartet, tmp_path):
    """`4.0` is group 4, as ASTRA-sim reads it."""
    read = quartet()
    (tmp_path / "groups.json").write_text('{"4": [0, 1, 2, 3]}')
    for rank in range(4):
        (tmp_path / f"g.{rank}.et").write_bytes(GROUPED)
    named = read(workload=tmp_path / "g", comm_group=tmp_path / "groups.json")
    assert allrail.simulate(named.scenario).step_time_us > 0


def test_remote_memory_is_read_for_what_is_not_modelled(quartet, tmp_path):
    file = tmp_path / "memory.json"
    file.write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    read = quartet()
    assert read(remote_memory=file).warning is None
    file.write_text('{"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-bw": 50}')
    assert "PER_NPU_MEMORY_EXPANSION" in read(remote_memory=file).warning
    file.write_text("{}")
    assert "memory-type" in refused(read, remote_memory=file)


def test_the_options_of_astra_sim_itself_are_taken(quartet, tmp_path, allrail_cli):
    quartet()
    (tmp_path / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    told = allrail_cli(
        "simulate",
        "--astra-sim",
        f"--network-configuration={tmp_path / 'network.yml'}",
        f"--system-configuration={tmp_path / 'system.json'}",
        f"--workload-configuration={tmp_path / 'w'}",
        f"--remote-memory-configuration={tmp_path / 'memory.json'}",
    )
    assert told.status == 0, told.stderr
    assert "TotalTime(us)" in told.stdout


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "text", "why"),
        [
            ("logical.json", '{"logical-dims": ["4"]}', "says no bandwidths"),
            ("config.txt", "ENABLE_QCN 1", "ns-3 are not read"),
            ("libra.yml", "Topology: [Ring]\nNpusCount: [4]", "did you mean `topology`"),
            ("bare.yml", "bandwidth: [50]\nlatency: [500]", "`topology` is missing"),
        ],
    )
    def test_networks_of_others(self, quartet, tmp_path, name, text, why):
        (tmp_path / name).write_text(text)
        assert why in refused(quartet(), network=tmp_path / name)

    def test_groups_of_a_trace_that_is_not_there(self, quartet, tmp_path):
        told = refused(quartet(), workload=tmp_path / "other", comm_group=tmp_path / "groups.json")
        assert "no such file" in told

    def test_no_such_trace(self, quartet, tmp_path):
        assert "no such file" in refused(quartet(), workload=tmp_path / "other")

    def test_a_rank_is_missing(self, quartet, tmp_path):
        read = quartet()
        (tmp_path / "w.2.et").unlink()
        assert "rank 2 is missing" in refused(read)

    def test_a_truncated_rank(self, quartet, tmp_path):
        read = quartet()
        whole = (tmp_path / "w.1.et").read_bytes()
        (tmp_path / "w.1.et").write_bytes(whole[: len(whole) - 3])
        assert "w.1.et" in refused(read)

    def test_another_number_of_npus(self, quartet, tmp_path):
        read = quartet()
        (tmp_path / "network.yml").write_text(NETWORK.format(6))
        told = refused(read)
        assert "4 ranks" in told
        assert "6 NPUs" in told

    def test_no_process_groups(self, quartet, tmp_path):
        told = refused(quartet(), comm_group=tmp_path / "groups.json")
        assert "groups.json" in told

    def test_process_groups_of_other_ranks(self, quartet, tmp_path):
        (tmp_path / "groups.json").write_text('{"1": [0, 1, 2, 9]}')
        assert "it has rank 9" in refused(quartet(), comm_group=tmp_path / "groups.json")

    def test_sizes_are_the_traces_own(self, quartet):
        assert "--comm-scale" in refused(quartet(), comm_scale=2.0)

    def test_nothing_but_one_npu(self, quartet, tmp_path):
        read = quartet()
        (tmp_path / "network.yml").write_text(NETWORK.format(1))
        assert "nobody to talk to" in refused(read)

    @pytest.mark.parametrize("names", [["ring", "ring"], ["ring", "oneRing"]])
    def test_more_algorithms_than_dimensions(self, quartet, names):
        told = refused(quartet(**{"all-reduce-implementation": names}))
        for part in ("system.json", "`all-reduce-implementation`", "names 2", "has 1 dimension"):
            assert part in told

    def test_fewer_algorithms_than_dimensions(self, quartet, tmp_path):
        read = quartet()
        two = (
            "topology: [Ring, Ring]\nnpus_count: [2, 2]\nbandwidth: [50, 50]\nlatency: [500, 500]\n"
        )
        (tmp_path / "network.yml").write_text(two)
        assert "names 1 implementations, the network has 2" in refused(read)
