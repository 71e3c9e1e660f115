"""`allrail expect`: what a fabric should show, and what may be the matter where it does not."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from allrail.base.errors import InputError
from allrail.measure.calibrate.expected import HOST_US, cluster_for, expect
from allrail.measure.calibrate.judge import judge
from allrail.measure.calibrate.machine import machine_of
from allrail.measure.calibrate.nccl import fastest, ways
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.shape import large_share
from allrail.measure.calibrate.table import AROUND, Row, Table
from allrail.scenario import load_any_fabric
from allrail.scenario.dimensions import within
from reference import REFERENCE, needs

POSTED = REFERENCE / "nccl"
posted = needs("nccl")

INNER = {"kind": "switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}
OUTER = {"kind": "switch", "size": 16, "bandwidth": "50 GB/s", "latency": "5 us"}
FABRIC = [INNER, OUTER]
SIZES = [1 << power for power in range(12, 34)]


def plain(ranks=16, collective="all_reduce", sizes=SIZES, **keys):
    return expect(FABRIC, collective=collective, ranks=ranks, sizes=sizes, **keys)


def judged(change, *, ranks=16, fabric=FABRIC):
    """A table whose times are changed, judged."""
    rows = tuple(Row(one.bytes, change(one.bytes, one.expected_us)) for one in plain(ranks))
    table = Table("all_reduce", ranks, max(1, ranks // 8), "", rows, "t")
    found = expect(fabric, collective="all_reduce", ranks=ranks, sizes=SIZES, table=table)
    cluster = cluster_for(fabric, ranks, table=table)
    return judge(found, cluster, "all_reduce", several=ranks > 8)


def causes(change, *, ranks=16):
    return [one.what for one in judged(change, ranks=ranks).causes]


def at(rate, around):
    """A table that carries no more than GB/s of bus bandwidth."""
    return lambda size, time: max(time, around * size / rate / 1e3)


@pytest.mark.parametrize("ranks", [8, 16, 64])
def test_what_is_as_it_should_be_has_no_cause(ranks):
    assert causes(lambda _, time: time, ranks=ranks) == []
    assert causes(lambda _, time: 1.15 * time, ranks=ranks) == []
    assert causes(lambda _, time: 0.6 * time, ranks=ranks) == []
    assert [one.verdict for one in judged(lambda _, time: time, ranks=ranks).ranges] == [
        "as expected"
    ]


@pytest.mark.parametrize("share", [0.52, 0.59, 0.75])
def test_three_quarters_are_not_as_it_should_be(share):
    found = judged(lambda _, time: time / share)
    assert not found.healthy
    assert found.causes
    assert {one.verdict for one in found.ranges} <= {"less", "much less"}


def test_a_range_of_sizes_has_its_own_verdict():
    found = judged(lambda size, time: time / (0.55 if 1 << 21 <= size <= 1 << 23 else 1))
    words = [(one.first, one.last, one.verdict) for one in found.ranges]
    assert (1 << 21, 1 << 23, "much less") in words
    assert [word for *_, word in words] == ["as expected", "much less", "as expected"]


def test_half_of_the_rate_is_half_of_the_interfaces_among_others():
    found = causes(at(180, 1.875))
    assert any("half of the network interfaces" in one for one in found)
    # Others do the same: none is asserted.
    assert len(found) > 1


def test_half_of_the_interfaces_explains_best_what_they_make():
    half = replace(cluster_for(FABRIC, 32), interfaces=4)
    made = ways(half, "all_reduce")
    found = causes(lambda size, _: fastest(made, size)[0] + HOST_US, ranks=32)
    assert "half of the network interfaces" in found[0]


def test_a_protocol_that_is_forced_explains_best_what_it_makes():
    made = [one for one in ways(cluster_for(FABRIC, 8), "all_reduce") if one.protocol == "LL"]
    found = judged(lambda size, _: fastest(made, size)[0] + HOST_US, ranks=8).causes
    assert found[0].what.endswith("is forced: LL")
    assert found[0].off == 0.1


def test_switches_that_do_not_sum_explain_a_ring():
    summing = [{**INNER, "in_network_reduction": True}, OUTER]
    found = judged(lambda _, time: time, ranks=8, fabric=summing)
    assert not found.healthy
    assert any(one.what.startswith("switches do not sum") for one in found.causes[:2])


def explained(why):
    """What a cause says of itself: how far off it leaves the sizes."""
    share, factor = re.search(r"within (?:(\d+) %|a factor of ([\d.]+))", why).groups()
    return int(share) / 100 if share else float(factor) - 1


SICK = {
    "a rate": lambda _, time: time * 2.5,
    "half": lambda size, time: time * (2 if size > 1 << 22 else 1),
    "sockets": at(5, 1.875),
    "slow": at(30, 1.875),
    "a dip": lambda size, time: time * (3 if 1 << 24 <= size <= 1 << 27 else 1),
    "late": lambda _, time: time + 400,
    "late and slow": lambda _, time: 400 + time * 3,
    "erratic": lambda size, time: time * (1.3 + size.bit_length() % 3 / 2),
}


@pytest.mark.parametrize("ranks", [8, 16, 64])
@pytest.mark.parametrize("name", SICK)
def test_causes_are_in_the_order_of_the_figures_that_they_print(name, ranks):
    change = SICK[name]
    for seed in range(2):
        draw = random.Random(seed)

        def noisy(size, time, draw=draw):
            return change(size, time) * math.exp(draw.gauss(0, 0.03))

        found = judged(noisy, ranks=ranks).causes
        assert found
        assert [explained(one.why) for one in found] == [pytest.approx(one.off) for one in found]
        assert all(one.off <= two.off for one, two in pairwise(found))


def test_one_interface_and_sockets_are_told_by_what_they_carry():
    made = ways(replace(cluster_for(FABRIC, 16), interfaces=1), "all_reduce")
    one = causes(lambda size, _: fastest(made, size)[0] + HOST_US)
    assert "one network interface" in one[0]
    assert not any("TCP" in cause for cause in one)
    tcp = causes(at(5, 1.875))
    assert any("TCP" in cause for cause in tcp)


@pytest.mark.parametrize("share", [0.92, 0.95, 1.0])
@pytest.mark.parametrize(("interfaces", "what"), [(1, "one network interface"), (4, "half of")])
def test_fewer_interfaces_come_first_though_each_reaches_less(share, interfaces, what):
    # 16 H100s behind one of eight interfaces, as somebody posted: 44.3 of 48 GB/s.
    few = ways(replace(cluster_for(FABRIC, 16), interfaces=interfaces), "all_reduce")
    ring = [one for one in few if one.algorithm == "ring"]
    found = causes(lambda size, _: fastest(ring, size)[0] / share + HOST_US)
    assert found[0].startswith(what)


def test_within_a_machine_pcie_is_named():
    found = causes(at(20, 1.75), ranks=8)
    assert any("PCIe in place of NVLink" in one for one in found)
    assert not any("network interface" in one for one in found)


def test_a_small_part_that_early_sizes_reach_is_a_forced_protocol_too():
    found = causes(at(0.06, 1.75), ranks=8)
    assert len(found) > 1


def test_slow_small_messages_are_told_alone():
    found = causes(lambda size, time: time + (500 if size < 1 << 20 else 0))
    assert len(found) == 1
    assert "small messages" in found[0]


def test_bandwidth_that_falls_where_it_should_grow_is_erratic():
    found = causes(lambda size, time: time * (4 if size in {1 << 22, 1 << 25, 1 << 27} else 1))
    assert any("congestion" in one for one in found)
    assert any("algorithm changes" in one for one in found)


def test_a_hump_and_a_dip_are_named():
    dip = judged(lambda size, time: time * (1.6 if 1 << 27 <= size <= 1 << 28 else 1)).falls
    assert [(one.first, one.last, one.recovers) for one in dip] == [(1 << 27, 1 << 28, True)]
    assert dip[0].told.startswith("dip: bandwidth peaks at 64 MiB")
    hump = judged(lambda size, time: time * (1 if size <= 1 << 26 else 3)).falls
    assert [(one.peak, one.first, one.recovers) for one in hump] == [(1 << 26, 1 << 27, False)]
    assert "does not recover" in hump[0].told
    assert judged(lambda _, time: time).falls == []


def test_one_bad_size_is_not_erratic_and_neither_is_a_tiny_one():
    assert causes(lambda size, time: time * (6 if size == 1 << 19 else 1)) == []
    tiny = causes(lambda size, time: time * (5 if size in {1 << 12, 1 << 14} else 1))
    assert not any("congestion" in one for one in tiny)


def test_a_table_whose_middle_was_left_out_is_judged_by_its_largest_size():
    sizes = [8, 16, 1 << 34]
    [*_, large] = plain(sizes=sizes)
    rows = (Row(8, 90.0), Row(16, 70.0), Row(large.bytes, large.expected_us))
    table = Table("all_reduce", 16, 2, "", rows, "t")
    found = plain(sizes=sizes, table=table)
    assert large_share(found) == pytest.approx(1)
    assert judge(found, cluster_for(FABRIC, 16), "all_reduce", several=True).healthy


def test_within_a_machine_no_cause_stands_alone():
    assert len(causes(lambda _, time: 2 * time, ranks=8)) > 1


@pytest.mark.parametrize("collective", AROUND)
@pytest.mark.parametrize("ranks", [2, 8, 16, 128])
def test_every_collective_is_expected_and_grows(collective, ranks):
    times = [one.expected_us for one in plain(ranks, collective)]
    assert times == sorted(times)
    assert all(one.expected_busbw < 2 * 450 for one in plain(ranks, collective))


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
    assert {"what", "why", "test", "off"} == set(found["causes"][0])


def _slow(tmp_path, share):
    """A table of 16 ranks at a share of what dgx-h100 should show."""
    fabric = [
        one.model_dump(exclude_defaults=True) for one in load_any_fabric("dgx-h100").dimensions
    ]
    found = expect(fabric, collective="all_reduce", ranks=16, sizes=SIZES)
    lines = [
        f"{one.bytes} {one.expected_us / share(one.bytes):.2f}"
        f" {one.expected_busbw * share(one.bytes) / 1.875:.2f}"
        f" {one.expected_busbw * share(one.bytes):.2f}"
        for one in found
        if one.bytes >= 1 << 20
    ]
    file = tmp_path / "table.txt"
    file.write_text("# all_reduce_perf\n# size time algbw busbw\n" + "\n".join(lines))
    return ["expect", "dgx-h100", "--measured", str(file), "--ranks", "16"]


def test_at_least_has_an_exit_status(tmp_path, allrail_cli):
    arguments = _slow(tmp_path, lambda _: 0.87)
    assert allrail_cli(*arguments).status == 0
    assert allrail_cli(*arguments, "--at-least", "0.8").status == 0
    told = allrail_cli(*arguments, "--at-least", "0.9")
    assert told.status == 1
    assert "large sizes: 0.87 of the expected bandwidth, less than 0.9" in told.stdout
    assert json.loads(allrail_cli(*arguments, "--at-least", "0.9", "--json").stdout)["met"] is False


def test_at_least_takes_every_size_from_one_on(tmp_path, allrail_cli):
    arguments = _slow(tmp_path, lambda size: 0.55 if size <= 1 << 23 else 1.0)
    assert allrail_cli(*arguments, "--at-least", "0.9").status == 0
    assert allrail_cli(*arguments, "--at-least", "0.9", "--from", "2 MiB").status == 1
    assert allrail_cli(*arguments, "--at-least", "0.9", "--from", "16 MiB").status == 0
    for wrong in (["--from", "1 MiB"], ["--at-least", "0.9", "--from", "1 TiB"]):
        told = allrail_cli(*arguments, *wrong)
        assert told.status == 2
        assert "--from" in told.stderr
    told = allrail_cli("expect", "dgx-h100", "--at-least", "0.9")
    assert told.status == 2
    assert "--measured" in told.stderr


def test_a_report_has_the_picture_and_is_made_again(tmp_path, allrail_cli):
    arguments = _slow(tmp_path, lambda size: 1.0 if size < 1 << 27 else 0.5)
    out = tmp_path / "out"
    told = allrail_cli(*arguments, "--report", str(out))
    assert told.status == 0
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "hump" in page
    assert (out / "sizes.csv").read_text().startswith("bytes,")
    assert allrail_cli("report", str(out), "--out", str(tmp_path / "again.html")).status == 0
    assert (tmp_path / "again.html").read_text() == page


def test_calibrate_network_has_a_report_too(tmp_path, allrail_cli):
    lines = [
        f"{one.bytes} {one.expected_us:.2f} {one.expected_busbw / 1.75:.2f}"
        f" {one.expected_busbw:.2f}"
        for one in plain(8)
    ]
    file, out = tmp_path / "table.txt", tmp_path / "out"
    file.write_text("# all_reduce_perf\n# size time algbw busbw\n" + "\n".join(lines))
    arguments = ["calibrate", "network", str(file), "--ranks", "8", "--report", str(out)]
    assert allrail_cli(*arguments).status == 0
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "all_reduce over 8 ranks" in page
    assert len((out / "sizes.csv").read_text().splitlines()) == 1 + len(SIZES)
    assert allrail_cli("report", str(out), "--out", str(tmp_path / "again.html")).status == 0
    assert (tmp_path / "again.html").read_text() == page


def test_switches_that_sum_have_a_table_of_their_own(allrail_cli):
    found = {}
    for name in ("dgx-h100", "dgx-h100-nvls"):
        told = json.loads(allrail_cli("expect", name, "--ranks", "8", "--json").stdout)
        found[name] = told["rows"][-1]
    assert found["dgx-h100"]["algorithm"] == "ring_Simple"
    assert found["dgx-h100"]["expected_busbw"] == pytest.approx(360, rel=0.02)
    assert found["dgx-h100-nvls"]["algorithm"] == "nvls_Simple"
    # 8 H200: 473.1 GB/s at 4 GiB; 8 H100: 470.7 (posted).
    assert found["dgx-h100-nvls"]["expected_busbw"] == pytest.approx(472, rel=0.03)


@pytest.mark.parametrize("fabric", ["dgx-h100", "dgx-h100-nvls"])
def test_32_h100s_are_not_expected_to_carry_all_that_their_interfaces_do(fabric, allrail_cli):
    told = json.loads(allrail_cli("expect", fabric, "--ranks", "32", "--json").stdout)
    top = told["rows"][-1]["expected_busbw"]
    # 331 and 324 GB/s are healthy.
    assert top < 375
    assert 324 / top >= 0.85


def test_a_ring_over_many_ranks_takes_its_steps(allrail_cli):
    arguments = ("--collective", "all_gather", "--ranks", "1024", "--json")
    told = json.loads(allrail_cli("expect", "dgx-h100", *arguments).stdout)
    [row] = [one for one in told["rows"] if one["bytes"] == 1 << 26]
    # 896 steps within machines of 1 us or more, 127 between them of 2.7 us or more.
    assert row["expected_us"] > 896 + 127 * 2.7


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


def test_machines_are_said_where_no_table_says_them(allrail_cli):
    def told(*words):
        return json.loads(allrail_cli("expect", "dgx-h100", *words, "--json").stdout)

    assert told("--ranks", "2")["machines"] == 1
    apart = told("--ranks", "2", "--machines", "2")
    assert apart["machines"] == 2
    assert 40 < apart["rows"][-1]["expected_busbw"] < 50
    assert told("--ranks", "16", "--machines", "4")["machines"] == 4
    for machines in ("3", "1"):
        refused = allrail_cli("expect", "dgx-h100", "--ranks", "16", "--machines", machines)
        assert refused.status == 2
        assert "not on so many machines" in refused.stderr
