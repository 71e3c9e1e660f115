"""`allrail expect`: what a fabric should show, and what may be the matter where it does not."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from allrail.calibrate.judge import expect, judge
from allrail.calibrate.machine import machine_of
from allrail.calibrate.read import read_tables
from allrail.calibrate.table import AROUND, Row, Table
from allrail.errors import InputError
from allrail.scenario.dimensions import within

POSTED = Path(__file__).parents[2].parent / "shared" / "reference" / "nccl"
posted = pytest.mark.skipif(not POSTED.is_dir(), reason="shared/reference is not here")

INNER = {"kind": "switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}
OUTER = {"kind": "switch", "size": 16, "bandwidth": "50 GB/s", "latency": "5 us"}
FABRIC = [INNER, OUTER]
SIZES = [1 << power for power in range(12, 34)]


def causes(change, *, ranks=16):
    plain = expect(FABRIC, collective="all_reduce", ranks=ranks, sizes=SIZES)
    rows = tuple(Row(one.bytes, change(one.bytes, one.expected_us)) for one in plain)
    table = Table("all_reduce", ranks, ranks // 8, "", rows, "t")
    found = expect(FABRIC, collective="all_reduce", ranks=ranks, sizes=SIZES, table=table)
    return [one.what for one in judge(found, several=ranks > 8, nic=50.0)]


def test_a_ring_carries_what_the_narrowest_dimension_does():
    [large] = expect(FABRIC, collective="all_reduce", ranks=64, sizes=[1 << 34])
    assert large.expected_busbw == pytest.approx(8 * 50, rel=0.01)
    [large] = expect(FABRIC, collective="all_reduce", ranks=8, sizes=[1 << 34])
    assert large.expected_busbw == pytest.approx(450, rel=0.01)
    [tiny] = expect(FABRIC, collective="all_gather", ranks=8, sizes=[1])
    assert tiny.expected_us > 1


@pytest.mark.parametrize("ranks", [8, 16, 64])
def test_what_is_as_it_should_be_has_no_cause(ranks):
    assert causes(lambda _, time: time, ranks=ranks) == []
    assert causes(lambda _, time: 1.3 * time, ranks=ranks) == []
    assert causes(lambda _, time: 0.6 * time, ranks=ranks) == []


def test_half_of_the_rate_is_half_of_the_interfaces_among_others():
    found = causes(lambda _, time: 2 * time)
    assert any("half of the network interfaces" in one for one in found)
    # Others do the same: none is asserted.
    assert len(found) > 1


def test_one_interface_and_sockets_are_told_by_what_they_carry():
    one = causes(lambda size, time: max(time, 1.875 * size / 48 / 1e3))
    assert any("one network interface" in cause for cause in one)
    assert not any("TCP" in cause for cause in one)
    tcp = causes(lambda size, time: max(time, 1.875 * size / 5 / 1e3))
    assert any("TCP" in cause for cause in tcp)


def test_within_a_machine_pcie_is_named():
    found = causes(lambda size, time: max(time, 1.75 * size / 20 / 1e3), ranks=8)
    assert any("PCIe in place of NVLink" in one for one in found)
    assert not any("network interface" in one for one in found)


def test_a_forced_protocol_shows_at_the_largest_sizes():
    found = causes(lambda size, time: time * (1 if size < 1 << 28 else 4))
    assert any("protocol" in one for one in found)


def test_a_small_part_that_early_sizes_reach_is_a_forced_protocol_too():
    found = causes(lambda size, time: max(time, 1.75 * size / 0.06 / 1e3), ranks=8)
    assert any("protocol" in one for one in found)
    assert len(found) > 1
    grows = causes(lambda size, time: time + 4000 + 1.75 * size / 2.3 / 1e3, ranks=8)
    assert not any("protocol" in one for one in grows)


def test_slow_small_messages_are_told_alone():
    found = causes(lambda size, time: time + (500 if size < 1 << 20 else 0))
    assert len(found) == 1
    assert "small messages" in found[0]


def test_bandwidth_that_falls_where_it_should_grow_is_erratic():
    found = causes(lambda size, time: time * (4 if size in {1 << 22, 1 << 25, 1 << 27} else 1))
    assert any("congestion" in one for one in found)
    assert any("algorithm changes" in one for one in found)


def test_one_bad_size_is_not_erratic_and_neither_is_a_tiny_one():
    assert causes(lambda size, time: time * (6 if size == 1 << 19 else 1)) == []
    tiny = causes(lambda size, time: time * (5 if size in {1 << 12, 1 << 14} else 1))
    assert not any("congestion" in one for one in tiny)


def test_a_table_whose_middle_was_left_out_is_judged_by_its_largest_size():
    sizes = [8, 16, 1 << 34]
    [*_, large] = expect(FABRIC, collective="all_reduce", ranks=16, sizes=sizes)
    rows = (Row(8, 900.0), Row(16, 170.0), Row(large.bytes, large.expected_us))
    table = Table("all_reduce", 16, 2, "", rows, "t")
    found = expect(FABRIC, collective="all_reduce", ranks=16, sizes=sizes, table=table)
    assert not any("large sizes" in one.why for one in judge(found, several=True, nic=50.0))


def test_within_a_machine_no_cause_stands_alone():
    assert len(causes(lambda _, time: 2 * time, ranks=8)) > 1


def test_ranks_are_neighbours():
    assert [one["size"] for one in within(FABRIC, 4)] == [4]
    assert [one["size"] for one in within(FABRIC, 24)] == [8, 3]
    assert [one["size"] for one in within(FABRIC, 2, 2)] == [2]
    assert within(FABRIC, 2, 2)[0]["bandwidth"] == OUTER["bandwidth"]
    assert [one["size"] for one in within(FABRIC, 8, 2)] == [4, 2]
    assert [one["size"] for one in within(FABRIC, 16, 2)] == [8, 2]
    wide = [{**INNER, "size": 72}, OUTER]
    assert [one["size"] for one in within(wide, 128)] == [64, 2]
    with pytest.raises(InputError, match="no part of the fabric"):
        within(FABRIC, 1024)


def test_the_command_prints_both_tables(tmp_path, allrail_cli):
    told = allrail_cli("expect", "dgx-h100", "--ranks", "16")
    assert told.status == 0
    assert "expected_busbw" in told.stdout
    assert "measured_busbw" not in told.stdout
    rows = [f"{size} {size / 40e3:.2f} 40.00 75.00" for size in SIZES]
    file = tmp_path / "slow.txt"
    file.write_text("# size time algbw busbw\n" + "\n".join(rows))
    told = allrail_cli("expect", "dgx-h100", "--measured", str(file))
    assert "it may be" in told.stdout
    assert "to tell" in told.stdout
    found = json.loads(allrail_cli("expect", "dgx-h100", "--measured", str(file), "--json").stdout)
    assert found["ranks"] == 16
    assert {"what", "why", "test"} == set(found["causes"][0])


def test_ranks_choose_a_table_and_are_asked_for(tmp_path, allrail_cli):
    def rows(around):
        times = [(size, size / 40e3) for size in SIZES]
        return [f"{size} {time:.2f} 40.00 {40 * around:.2f}" for size, time in times]

    file = tmp_path / "two.txt"
    head = "# size time algbw busbw"
    file.write_text("\n".join([head, *rows(1.75), head, *rows(1.875)]))
    told = allrail_cli("expect", "dgx-h100", "--measured", str(file))
    assert "--ranks" in told.stderr
    arguments = ["--measured", str(file), "--ranks", "16", "--json"]
    assert json.loads(allrail_cli("expect", "dgx-h100", *arguments).stdout)["ranks"] == 16
    file.write_text("# OSU MPI-CUDA Allreduce Latency Test v7.0\n1024 10.0\n1048576 900.0\n")
    told = allrail_cli("expect", "dgx-h100", "--measured", str(file))
    assert told.status == 2
    assert "how many ranks" in told.stderr


STATED = {
    "a40x2_node_sick_allreduce.txt": ("dgx-a100", 2, "no peer-to-peer"),
    "osu_allreduce_cuda_a100x4_ucc_off_v70.txt": ("dgx-a100", 4, "copies through the host"),
    "rtx5090_socket_allgather_LL_sick_v218.txt": ("dgx-h100", 2, "protocol for small"),
    "rtx5090_socket_allgather_v218.txt": ("dgx-h100", 2, "sockets"),
    "rtx5090_socket_allreduce_v218.txt": ("dgx-h100", 2, "sockets"),
    "rtx5090_socket_reducescatter_v218.txt": ("dgx-h100", 2, "sockets"),
}
"""What posters said of their machines, on a preset that is not slower."""


@posted
def test_what_posters_said_is_among_the_causes(allrail_cli):
    with (POSTED / "index.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if "stated" in row["verdict_basis"]]
    said = {r["file"] for r in rows if r["verdict"].startswith(("sick", "slow"))}
    assert said == set(STATED)
    for name, (fabric, ranks, cause) in STATED.items():
        arguments = ["--measured", str(POSTED / name), "--ranks", str(ranks), "--json"]
        found = json.loads(allrail_cli("expect", fabric, *arguments).stdout)["causes"]
        named = [one["what"] for one in found]
        assert any(cause in one for one in named), (name, named)
        assert len(named) > 1, name


@posted
def test_healthy_tables_of_known_machines_raise_no_alarm(allrail_cli):
    machines = {"A100": "dgx-a100", "H100": "dgx-h100", "GB200": "gb200-nvl72"}
    with (POSTED / "index.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    alarms, judged = [], 0
    for row in rows:
        words = row["gpu"].replace("-", " ").split()
        fabric = next((machines[word] for word in words if word in machines), None)
        if "healthy" not in row["verdict"] or fabric is None:
            continue
        for table in read_tables(POSTED / row["file"]):
            # The machines of these presets: 8 GPUs, interfaces of 200 and 400 Gb/s each.
            if table.ranks not in {8, 16, 96, 128} or "4x" in row["network"]:
                continue
            name = str(table.collective)
            if name not in {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}:
                continue
            arguments = ["--measured", str(POSTED / row["file"]), "--collective", name]
            told = allrail_cli("expect", fabric, *arguments)
            if told.status == 0:
                judged += 1
                large = "large sizes" in told.stdout
                alarms += [row["file"]] if large else []
    assert judged >= 10
    assert len(alarms) <= 1, alarms


def _table(device, *, collective="all_reduce", ranks=8, busbw=471.0, hosts=1):
    size = 1 << 33
    around = AROUND[collective](ranks)
    rows = (Row(size, around * size / busbw / 1e3),)
    return Table(collective, ranks, hosts, device, rows, "t.txt")


@pytest.mark.parametrize(
    ("device", "fabric"),
    [
        ("NVIDIA H100 80GB HBM3", "dgx-h100"),
        ("NVIDIA H200", "dgx-h100"),
        ("A100-SXM4-40GB", "dgx-a100"),
        ("NVIDIA B200", "dgx-b200"),
        ("NVIDIA GB200", "gb200-nvl72"),
        ("Tesla V100-SXM3-32GB", "dgx2"),
    ],
)
def test_a_machine_is_known_by_its_devices(device, fabric):
    found = machine_of(_table(device, busbw=3.0), collective="all_reduce")
    assert found.fabric == fabric
    assert device in found.why
    assert "assumed" not in found.why
    assert (
        "assumed"
        in machine_of(_table(device, busbw=3.0, ranks=32, hosts=4), collective="all_reduce").why
    )


@pytest.mark.parametrize(
    "device",
    ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB", "NVIDIA H20", "NVIDIA H800"],
)
def test_cards_and_devices_with_fewer_links_are_no_preset(device):
    with pytest.raises(InputError, match="no preset is a machine of"):
        machine_of(_table(device), collective="all_reduce")


def test_bandwidth_alone_excludes_but_does_not_tell():
    with pytest.raises(InputError, match="does not say on what") as raised:
        machine_of(_table(""), collective="all_reduce")
    # 471 GB/s: more than NVLink 3 carries, and less than later switches that sum.
    assert "dgx-a100" not in str(raised.value)
    assert "`dgx-h100`" in str(raised.value)
    assert "`gb200-nvl72`" in str(raised.value)
    one_rack = _table("", ranks=64, busbw=850.0)
    assert machine_of(one_rack, collective="all_reduce").fabric == "gb200-nvl72"
    with pytest.raises(InputError, match="no preset could carry it"):
        machine_of(_table("", busbw=4000.0), collective="all_reduce")
    with pytest.raises(InputError, match="has fewer"):
        machine_of(_table("NVIDIA GB200", ranks=1440, hosts=None), collective="all_reduce")


@posted
def test_posted_tables_are_taken_for_what_their_posters_had(allrail_cli):
    with (POSTED / "index.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    taken = {}
    for row in rows:
        told = allrail_cli("expect", "--measured", str(POSTED / row["file"]), "--json")
        assert told.status in (0, 2), row["file"]
        if told.status == 0:
            taken[row["file"]] = json.loads(told.stdout)["fabric"]
    gpus = {row["file"]: row["gpu"] for row in rows}
    machines = {"dgx-a100": "A100", "dgx-h100": "H100", "gb200-nvl72": "GB200"}
    assert len(taken) >= 9
    for name, fabric in taken.items():
        assert machines[fabric] in gpus[name], name
