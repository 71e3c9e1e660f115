"""NCCL's own algorithms: what they carry on machines whose tables were published."""

from __future__ import annotations

import json

import pytest

from allrail.measure.calibrate.nccl import cluster_of, fastest, switches, ways
from allrail.measure.calibrate.nccl.constants import AMPERE, BLACKWELL, HOPPER, VOLTA
from allrail.measure.calibrate.table import AROUND
from reference import REFERENCE, needs

POSTED = REFERENCE / "nccl"
LARGE = 1 << 34


def machines(link, interface, *, sums=False, each=8):
    inner = {"kind": "switch", "size": each, "bandwidth": f"{link} GB/s", "latency": "0 us"}
    outer = {"kind": "switch", "size": 256, "bandwidth": f"{interface} Gb/s", "latency": "0 us"}
    return [{**inner, "in_network_reduction": True} if sums else inner, outer]


def busbw(dimensions, ranks, size=LARGE, collective="all_reduce", **keys):
    found = ways(cluster_of(dimensions, ranks, **keys), collective)
    return AROUND[collective](ranks) * size / fastest(found, size)[0] / 1e3


@pytest.mark.parametrize(
    ("link", "interface", "sums", "ranks", "published"),
    [
        # NVIDIA's and users' tables, GB/s at 1 GiB and more; sources: `allrail reproduce verdicts`.
        (300, 200, False, 8, 235),  # DGX A100
        (300, 200, False, 16, 189.6),  # A100 on RoCE
        (450, 400, True, 8, 482),  # H200
        (450, 400, True, 16, 471),  # H100 on RoCE
        (450, 200, True, 16, 339),  # H100 behind interfaces of half the rate
        (900, 400, True, 8, 846),  # B200
        (900, 400, True, 32, 382),  # B200 on EFA
    ],
)
def test_large_all_reduces_carry_what_was_published(link, interface, sums, ranks, published):
    found = busbw(machines(link, interface, sums=sums), ranks)
    assert found == pytest.approx(published, rel=0.15)


@pytest.mark.parametrize(
    ("link", "generation"), [(150, VOLTA), (300, AMPERE), (450, HOPPER), (900, BLACKWELL)]
)
def test_links_tell_the_generation_unless_a_device_does(link, generation):
    assert cluster_of(machines(link, 400), 8).generation is generation
    assert cluster_of(machines(link, 400), 8, device="NVIDIA H800").generation is HOPPER


def test_small_sizes_take_few_steps_and_large_ones_few_bytes():
    found = ways(cluster_of(machines(450, 400), 64), "all_reduce")
    names = [name for _, name in switches(found, [1 << power for power in range(3, 35)])]
    assert names[0] == "tree_LL"
    assert names[-1] == "ring_Simple"
    assert len(names) == len(set(names))


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_a_ring_takes_a_step_for_every_rank(collective):
    dimensions = machines(450, 400)
    for ranks in (64, 256, 1024):
        [least] = {fastest(ways(cluster_of(dimensions, ranks), collective), 1)[0]}
        assert least > 2.7 * (ranks // 8 - 1) + ranks - ranks // 8


def test_ranks_that_share_no_machine_have_an_interface_each():
    cluster = cluster_of(machines(450, 400), 2, hosts=2)
    assert (cluster.nodes, cluster.each, cluster.interfaces) == (2, 1, 1)
    assert busbw(machines(450, 400), 2, hosts=2) == pytest.approx(48, rel=0.01)


def test_measured_rates_are_not_discounted():
    nominal, measured = (busbw(machines(450, 400), 16, calibrated=told) for told in (False, True))
    assert measured == pytest.approx(400, rel=0.02)
    assert nominal < measured


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32, 64, 256])
@pytest.mark.parametrize("collective", AROUND)
@pytest.mark.parametrize("sums", [False, True])
def test_nothing_carries_more_than_links_and_interfaces(ranks, collective, sums):
    if collective == "all_reduce" and ranks in {8, 16, 2, 4} and sums:
        limit = 2 * 450
    elif collective == "all_reduce" and ranks == 16:
        limit = 2 * 400  # A tree of two machines crosses once each way.
    else:
        limit = 450
    found = ways(cluster_of(machines(450, 400, sums=sums), ranks), collective)
    for one in found:
        assert one.rate * AROUND[collective](ranks) <= limit * 1.001
        assert one.latency_us > 0


@pytest.mark.parametrize("factor", [2, 4])
def test_more_bandwidth_is_never_slower(factor):
    for ranks in (8, 16, 32):
        for size in (1 << 10, 1 << 20, 1 << 30):
            slow = fastest(ways(cluster_of(machines(450, 100), ranks), "all_reduce"), size)[0]
            fast = machines(450, 100 * factor)
            assert fastest(ways(cluster_of(fast, ranks), "all_reduce"), size)[0] <= slow


def test_compare_has_a_row_of_it(tmp_path, allrail_cli):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "schema_version: 1\nfabric: dgx-h100-nvls\n"
        "collective: {kind: all_reduce, size: 256 MiB}\nschedule: {chunks: 4}\n"
    )
    told = allrail_cli("compare", str(scenario))
    [row] = [line.split() for line in told.stdout.splitlines() if line.startswith("nccl ")]
    assert row[1] == "nvls_tree_Simple"
    found = json.loads(allrail_cli("compare", str(scenario), "--json").stdout)["rows"]
    assert found[-1]["nccl"]["time_us"] == pytest.approx(float(row[2]), abs=0.001)
    first = found[0]["result"]["time_us"]
    assert found[-1]["speedup"] == pytest.approx(first / found[-1]["nccl"]["time_us"])
    # Named, it is there for any fabric of dimensions; of others it says why not.
    arguments = ("--policy", "baseline,nccl", "--fabric", "torus-1k,dragonfly-1k")
    told = allrail_cli("compare", str(scenario), *arguments)
    assert told.status == 1
    assert sum("nccl" in line.split() for line in told.stdout.splitlines()) == 2
    assert "error_1" in told.stdout
    plain = tmp_path / "plain.yaml"
    plain.write_text(scenario.read_text().replace("dgx-h100-nvls", "3D-FC_Ring_SW"))
    assert "nccl" not in allrail_cli("compare", str(plain)).stdout


@needs("nccl")
def test_verdicts_agree_with_those_of_posters(allrail_cli):
    told = allrail_cli("reproduce", "verdicts", str(POSTED), "--json")
    assert told.status == 0
    rows = json.loads(told.stdout)["rows"]
    held = [one for one in rows if one["held_out"] and one["agrees"] is not None]
    assert len(held) >= 20
    assert sum(one["agrees"] for one in held) >= 0.9 * len(held)


def test_gpus_of_a_mesh_have_the_links_between_them():
    """MI300X: 7 links of 64 GB/s each; two GPUs share one of them (AMD's datasheet)."""
    mesh = {"kind": "fully_connected", "size": 8, "links": 7, "latency": "0 us"}
    inner = {**mesh, "bandwidth": "64 GB/s"}
    links = [cluster_of([inner], ranks).link for ranks in (2, 4, 8)]
    assert links == [64, 192, 448]
    assert cluster_of(machines(450, 400), 2).link == 450


@pytest.mark.parametrize("dimensions", [machines(450, 100), machines(450, 100)[1:]])
@pytest.mark.parametrize("ranks", [2, 8])
def test_one_gpu_a_machine_has_an_interface_not_a_bus(dimensions, ranks):
    """A network of one dimension is a machine's, unless each rank is told to be on its own."""
    cluster = cluster_of(dimensions, ranks, hosts=ranks)
    assert (cluster.nodes, cluster.each, cluster.interface) == (ranks, 1, 12.5)
    # 100 Gb/s carry 12 GB/s of NCCL's channels, not three quarters as PCIe does.
    assert 11.5 < busbw(dimensions, ranks, hosts=ranks) <= 12.5
    assert cluster_of([dimensions[-1]], ranks).nodes == 1
