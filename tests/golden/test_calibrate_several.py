"""Calibrated from tables of one machine and of several: no network that cannot exist."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import yaml

from allrail import simulate
from allrail.base.errors import InputError
from allrail.measure.calibrate import library
from allrail.measure.calibrate.network import calibrate
from allrail.measure.calibrate.predict import default_us, predict_us, run
from allrail.measure.calibrate.ran import DEFAULT, NCCL, RING, RINGS, TURNS, library_of
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.table import AROUND, Row, Table
from allrail.search.layouts.mapping import parts_of
from reference import REFERENCE, needs

field = needs("field")
posted = needs("nccl")

SIZES = [1 << power for power in range(12, 33, 2)]


def a_table(ranks, hosts, busbw, *, fixed=30.0, name="all_reduce", device=""):
    rows = tuple(Row(size, fixed + AROUND[name](ranks) * size / busbw / 1e3) for size in SIZES)
    return Table(name, ranks, hosts, device, rows, f"{ranks}.txt")


def rates(made):
    return [float(one["bandwidth"].split()[0]) for one in made.fabric["dimensions"]]


def off_by_default(made, tmp_path):
    """How far each row is from the file that is written, as a scenario with defaults runs it."""
    path = tmp_path / "measured.yaml"
    path.write_text(yaml.safe_dump(made.fabric))
    found = []
    for each in made.judged:
        sizes = {f"fabric.dimensions[{place}].size": one for place, one in enumerate(each.part)}
        assert all(one > 1 for one in each.part), sizes
        for row in each.table.rows:
            told = simulate(
                {
                    "schema_version": 1,
                    "fabric": str(path),
                    "collective": {"kind": each.table.collective, "size": f"{row.bytes} B"},
                }
            )
            found.append(abs(told.time_us / row.time_us - 1))
    return found


def test_one_machine_and_eight_are_no_interfaces_of_332_gigabytes(tmp_path):
    """8 ranks at 370 GB/s and 64 at 365 became 332 GB/s a rank behind interfaces of 50."""
    made = calibrate([a_table(64, 8, 365.0, fixed=120.0), a_table(8, 1, 370.0)])
    inner, outer = rates(made)
    assert inner == pytest.approx(370, rel=0.02)
    assert 30 < outer <= 50
    # The file that is written reproduces its own table, as scenarios with defaults run it.
    several = [row for row in made.judged[1].table.rows if row.bytes >= 1 << 28]
    for row in several:
        told = made.judged[1].simulated_us[row.bytes]
        assert told == pytest.approx(row.time_us, rel=0.03)


def test_the_error_is_that_of_the_written_file_under_the_default_schedule(tmp_path):
    made = calibrate([a_table(32, 4, 180.0, fixed=90.0), a_table(8, 1, 370.0)])
    whole = [each for each in made.judged if all(one > 1 for one in each.part)]
    assert len(whole) == 1
    found = sorted(off_by_default(Only(made.fabric, whole), tmp_path))
    assert found == pytest.approx(sorted(whole[0].off), abs=1e-3)
    every = sorted(one for each in made.judged for one in each.off)
    covered = sum(one <= made.fabric["error"] for one in every) / len(every)
    assert covered >= 0.9
    assert made.fabric["error"] < 0.25


class Only:
    """A calibration with some of its tables."""

    def __init__(self, fabric, judged):
        self.fabric, self.judged = fabric, judged


def test_rails_tell_what_joins_machines():
    rails = Table("all_reduce", 2, 2, "", a_table(2, 2, 45.0).rows, "rails.txt", groups=8)
    made = calibrate([a_table(8, 1, 370.0), rails])
    assert [one["size"] for one in made.fabric["dimensions"]] == [8, 2]
    assert rates(made) == pytest.approx([370, 45], rel=0.02)
    alone = calibrate([a_table(4, 4, 45.0)])
    assert rates(alone) == pytest.approx([45], rel=0.02)
    assert not any("within a machine" in one for one in alone.unknown)


@field
def test_rails_from_the_field():
    folder = REFERENCE / "field" / "03-rail-groups-nccl"
    tables = [*read_tables(folder / "r_one.txt"), *read_tables(folder / "h_split.txt")]
    made = calibrate(tables)
    assert [one["size"] for one in made.fabric["dimensions"]] == [8, 2]
    assert rates(made) == pytest.approx([370, 45], rel=0.02)


@field
def test_messages_from_the_field():
    [table] = read_tables(REFERENCE / "field" / "11-other-benchmarks" / "j_sendrecv.txt")
    made = calibrate([table])
    [dimension] = made.fabric["dimensions"]
    assert dimension["size"] == 16
    assert rates(made) == pytest.approx([48], rel=0.01)
    assert float(dimension["latency"].split()[0]) == pytest.approx(30, rel=0.02)


@pytest.mark.parametrize("name", ["sendrecv", "broadcast", "reduce"])
def test_what_has_no_ring_factor_gives_the_rate_of_a_link(name):
    made = calibrate([a_table(16, 2, 48.0, name=name)])
    assert rates(made) == pytest.approx([48], rel=0.01)


@pytest.mark.parametrize(
    ("nic", "device"),
    [(25e9, ""), (None, "NVIDIA A100-SXM4-80GB"), (None, "")],
    ids=["said", "by the device", "by the fastest there is"],
)
def test_what_is_above_a_network_interface_is_refused(nic, device):
    # Two machines of which a rank moves 110 GB/s or more to the other, within machines of 900.
    tables = [
        a_table(8, 1, 2000.0, fixed=5.0, device=device),
        a_table(16, 2, 1900.0, fixed=9.0, device=device),
    ]
    with pytest.raises(InputError, match="faster than network interfaces of"):
        calibrate(tables, nic=nic)
    assert max(rates(calibrate(tables, nic=200e9))) > 500
    racks = "NVIDIA GB200"
    joined = [Table(t.collective, t.ranks, t.hosts, racks, t.rows, t.source) for t in tables]
    assert calibrate(joined).fabric["dimensions"]


def test_large_sizes_alone_tell_no_latency_however_they_scatter():
    """Noise looked like fixed time: 166 us a step, from sizes of a GiB and more."""
    scatter = (0.97, 1.06, 1.02, 0.98, 0.94)

    def table(ranks, hosts, busbw):
        around = AROUND["all_reduce"](ranks)
        rows = tuple(
            Row(1 << power, (100 + around * (1 << power) / busbw / 1e3) * off)
            for power, off in enumerate(scatter, 30)
        )
        return Table("all_reduce", ranks, hosts, "", rows, f"{ranks}.txt")

    made = calibrate([table(8, 1, 370), table(32, 4, 350)])
    assert [one["latency"] for one in made.fabric["dimensions"]] == ["3.4 us", "9.6 us"]
    assert sum("no small sizes" in one for one in made.unknown) == 2


def test_messages_carry_the_error_of_messages():
    made = calibrate([a_table(16, 2, 48.0, name="sendrecv")])
    assert made.fabric["error"] < 0.05


def test_what_only_a_faster_interface_explains_is_refused_by_its_name():
    """Held below an interface's rate, tables seemed to contradict each other."""

    def table(part):
        rows = tuple(
            Row(
                size,
                library.time_us("all_reduce", part, [2e6, 400e3], [3.4, 7.7], size, between=1),
            )
            for size in SIZES
        )
        return Table("all_reduce", math.prod(part), part[1], "", rows, f"{math.prod(part)}.txt")

    tables = [table(part) for part in ((4, 1), (4, 2), (4, 4), (4, 16))]
    with pytest.raises(InputError, match=r"faster than network interfaces of 100 GB/s") as error:
        calibrate(tables)
    assert "--nic" in str(error.value.hint)
    assert rates(calibrate(tables, nic=500e9)) == pytest.approx([2000, 400], rel=0.05)


def test_a_rate_that_slows_nothing_is_said_to_be_unknown():
    # Of 16 ranks no slower than a machine's own stages: what joins machines is only known to do.
    slow = a_table(8, 1, 20.0)
    rows = tuple(Row(row.bytes, row.time_us * 1.001) for row in slow.rows)
    made = calibrate([slow, Table("all_reduce", 16, 2, "", rows, "16.txt")])
    assert any("it slows no table" in one for one in made.unknown)
    assert rates(made)[1] < 20


def of_library(part, name="all_reduce", algorithms=library.ALGORITHMS):
    times = {
        size: library.time_us(
            name, part, [370e3, 22e3], [2.5, 9.0], size, between=1, algorithms=algorithms
        )
        for size in SIZES
    }
    noise = random.Random(math.prod(part))
    rows = tuple(Row(size, us * math.exp(noise.gauss(0, 0.02))) for size, us in times.items())
    return Table(name, math.prod(part), part[1], "", rows, f"{part}.txt")


def test_several_numbers_of_machines_tell_a_librarys_own_algorithms(tmp_path):
    made = calibrate([of_library(part) for part in ((8, 1), (8, 2), (8, 8))])
    assert made.ran == NCCL
    assert rates(made) == pytest.approx([370, 22], rel=0.05)
    # The default schedule is another one, and the file says by how much it misses.
    off = [one for each in made.judged for one in each.off]
    assert made.fabric["error"] > made.ran_error
    assert sum(one <= made.fabric["error"] for one in off) >= 0.9 * len(off)
    for name, part in (("all_reduce", (8, 4)), ("all_gather", (8, 8))):
        for size in (1 << 15, 1 << 25, 1 << 31):
            real = library.time_us(name, part, [370e3, 22e3], [2.5, 9.0], size, between=1)
            assert made.predict_us(name, part, size) == pytest.approx(real, rel=0.1)


def test_a_ring_over_all_ranks_is_written_as_rings_where_these_are_nearer():
    made = calibrate([of_library(part, algorithms=("ring",)) for part in ((8, 1), (8, 2), (8, 8))])
    assert made.ran == RING
    dimensions = made.fabric["dimensions"]
    assert all("fastest" in one for one in dimensions)
    usual = [{key: one[key] for key in one if key != "fastest"} for one in dimensions]
    off = [
        abs(default_us("all_reduce", each.part, usual, row.bytes) / row.time_us - 1)
        for each in made.judged
        for row in each.table.rows
    ]
    assert sum(one <= made.rows_error for one in off) < 0.8 * len(off)


@pytest.mark.parametrize("ran", [DEFAULT, RINGS])
def test_several_numbers_of_machines_tell_stages_and_their_steps(ran, tmp_path):
    dimensions = [
        {"kind": "switch", "size": 8, "bandwidth": "370 GB/s", "latency": "3 us"},
        {"kind": "switch", "size": 8, "bandwidth": "30 GB/s", "latency": "9 us"},
    ]
    if ran == RINGS:
        ring = [{"from": "1 B", "algorithm": "ring"}]
        dimensions = [{**one, "fastest": {"all_reduce": ring}} for one in dimensions]
    noise = random.Random(3)
    tables = []
    for part in ((8, 1), (8, 2), (8, 8)):
        rows = tuple(
            Row(
                size,
                default_us("all_reduce", part, dimensions, size) * math.exp(noise.gauss(0, 0.02)),
            )
            for size in SIZES
        )
        tables.append(Table("all_reduce", math.prod(part), part[1], "", rows, f"{part}.txt"))
    made = calibrate(tables)
    assert made.ran == ran
    assert made.fabric["error"] < 0.1
    assert rates(made) == pytest.approx([370, 30], rel=0.04)
    told = default_us("all_reduce", (8, 4), made.fabric["dimensions"], 1 << 14)
    assert told == pytest.approx(default_us("all_reduce", (8, 4), dimensions, 1 << 14), rel=0.06)
    # Scenarios that name no algorithm follow what was measured.
    path = tmp_path / "measured.yaml"
    path.write_text(yaml.safe_dump(made.fabric))
    result = simulate(
        {
            "schema_version": 1,
            "fabric": str(path),
            "collective": {"kind": "all_reduce", "size": "1 MiB"},
        }
    )
    usual = "ring" if ran == RINGS else "halving_doubling"
    assert {one.algorithm for one in result.dimensions} == {usual}


@pytest.mark.parametrize("ran", TURNS)
def test_stages_in_turn_are_told_from_stages_that_overlap(ran):
    algorithms = library_of(ran)
    made = calibrate([of_library(part, algorithms=algorithms) for part in ((8, 1), (8, 2), (8, 8))])
    assert made.ran == ran
    assert rates(made) == pytest.approx([370, 22], rel=0.05)
    for name, part in (("all_reduce", (8, 4)), ("all_gather", (8, 8))):
        for size in (1 << 15, 1 << 25, 1 << 31):
            real = library.time_us(
                name, part, [370e3, 22e3], [2.5, 9.0], size, between=1, algorithms=algorithms
            )
            assert made.predict_us(name, part, size) == pytest.approx(real, rel=0.1)


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("algorithm", "turns"), [("ring", 0), ("halving_doubling", 1)])
def test_stages_in_turn_are_the_simulators_with_one_chunk(name, algorithm, turns):
    """The formula is a closed form of `schedule: {chunks: 1}`."""
    rates_of, steps, part = [370e3, 22e3, 9e3], [2.5, 9.0, 12.0], (8, 4, 2)
    dimensions = [
        {"kind": "switch", "size": size, "bandwidth": f"{rate / 1e3} GB/s", "latency": f"{us} us"}
        for size, rate, us in zip(part, rates_of, steps, strict=True)
    ]
    for size in (1 << 12, 1 << 20, 1 << 28):
        told = run(name, dimensions, size, algorithms=[algorithm] * 3)
        mine = library.time_us(
            name, part, rates_of, steps, size, between=1, algorithms=library.TURNS[turns:][:1]
        )
        assert mine == pytest.approx(told, rel=1e-3)


def test_a_fabric_predicts_by_the_nearest_table():
    """Protocols switch by size: what a table shows there counts for its neighbours, too."""
    slow = [1.0 if size < 1 << 20 or size > 1 << 26 else 1.6 for size in SIZES]
    plain = a_table(8, 1, 370.0)
    rows = tuple(
        Row(row.bytes, row.time_us * more) for row, more in zip(plain.rows, slow, strict=True)
    )
    made = calibrate([Table("all_reduce", 8, 1, "", rows, "t.txt")])
    for row in rows:
        assert predict_us(made.fabric, "all_reduce", (8,), row.bytes) == pytest.approx(
            row.time_us, rel=0.12
        )


@posted
@pytest.mark.parametrize("given", [1, 2, 3])
def test_posted_p4d_tell_other_numbers_of_machines(given):
    tables = read_tables(REFERENCE / "nccl" / "issue_nccl527_p4d_1to4nodes_allreduce_1GiB.txt")
    made = calibrate([tables[0], tables[given]])
    for place in {1, 2, 3} - {given}:
        [row] = tables[place].rows
        told = made.predict_us("all_reduce", (8, place + 1), row.bytes)
        assert told == pytest.approx(row.time_us, rel=0.1)


@posted
@pytest.mark.parametrize("begin", [0, 1])
def test_posted_b200_tell_the_other_half_of_the_sizes(begin):
    tables = read_tables(REFERENCE / "nccl" / "torchdist_b200_1node_vs_4nodes.txt")
    half = [Table(t.collective, t.ranks, t.hosts, "", t.rows[begin::2], t.source) for t in tables]
    made = calibrate(half)
    off = sorted(
        abs(made.predict_us("all_reduce", part, row.bytes) / row.time_us - 1)
        for table, part in zip(tables, ((8, 1), (8, 4)), strict=True)
        for row in table.rows[1 - begin :: 2]
    )
    assert off[len(off) // 2] < 0.1


def test_expect_predicts_other_ranks_of_a_calibrated_fabric(tmp_path, allrail_cli):
    made = calibrate([of_library(part) for part in ((8, 1), (8, 2), (8, 8))])
    path = tmp_path / "measured.yaml"
    path.write_text(yaml.safe_dump(made.fabric))
    told = allrail_cli("expect", str(path), "--ranks", "32", "--collective", "all_gather", "--json")
    rows = {row["bytes"]: row["expected_us"] for row in json.loads(told.stdout)["rows"]}
    for size in (1 << 16, 1 << 26, 1 << 30):
        real = library.time_us("all_gather", (8, 4), [370e3, 22e3], [2.5, 9.0], size, between=1)
        assert rows[size] == pytest.approx(real, rel=0.1)


def test_simulate_and_compare_say_what_the_tool_takes_that_was_measured(tmp_path, allrail_cli):
    """The default schedule is another one, and its error tells nothing of the tool's."""
    made = calibrate([of_library(part) for part in ((8, 1), (8, 2), (8, 8))])
    (tmp_path / "measured.yaml").write_text(yaml.safe_dump(made.fabric))
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "schema_version: 1\nfabric: measured.yaml\ncollective: {kind: all_gather, size: 64 MiB}\n"
    )
    real = library.time_us("all_gather", (8, 8), [370e3, 22e3], [2.5, 9.0], 1 << 26, between=1)
    told = allrail_cli("simulate", str(scenario)).stdout.splitlines()
    [line] = [one for one in told if one.startswith("# as the tables were measured it takes ")]
    assert float(line.split()[8]) == pytest.approx(real, rel=0.1)
    assert told[-1].startswith("# error: network ")
    told = allrail_cli("compare", str(scenario), "--policy", "baseline,nccl").stdout
    [row] = [one.split() for one in told.splitlines() if one.startswith("nccl ")]
    assert row[1] == "measured"
    assert float(row[2]) == pytest.approx(float(line.split()[8]), abs=0.001)
    assert "# nccl: as the tables that the fabric is calibrated from, within" in told


def a_step(tmp_path, dp, **more):
    """A measured fabric of 8 x 8, and a step of one layer whose gradients nothing hides."""
    made = calibrate([of_library(part) for part in ((8, 1), (8, 2), (8, 8))])
    (tmp_path / "measured.yaml").write_text(yaml.safe_dump(made.fabric))
    layer = {"name": "only", "forward": "1 ms", "backward": "2 ms"}
    layer |= {"parameters": 32_000_000, "output": 1}
    tree = {
        "schema_version": 1,
        "fabric": "measured.yaml",
        "workload": {
            "model": {"layers": [layer]},
            "precision": "fp16",
            "batch_per_replica": 1,
            "parallelism": {"dp": dp},
        },
        **more,
    }
    path = tmp_path / "step.yaml"
    path.write_text(yaml.safe_dump(tree))
    return made, path


@pytest.mark.parametrize("policy", ["baseline", "themis"])
def test_a_step_is_told_as_the_tables_were_measured(tmp_path, allrail_cli, policy):
    """Of one exposed all-reduce it is the step without, and what the library takes."""
    made, path = a_step(tmp_path, 64, schedule={"policy": policy})
    told = allrail_cli("simulate", str(path))
    assert told.status == 0, told.stderr
    lines = told.stdout.splitlines()
    [line] = [one for one in lines if one.startswith("# as the tables were measured the step ")]
    step = float(line.split()[9])
    step_as_it_is = json.loads(allrail_cli("simulate", str(path), "--json").stdout)["step_time_us"]
    real = made.predict_us("all_reduce", (8, 8), 64_000_000)
    exposed = step - 3000
    assert exposed == pytest.approx(real, rel=0.02)
    longer = float(line.split("take ")[-1].split()[0])
    assert longer == pytest.approx(exposed / (step_as_it_is - 3000), rel=0.02)
    assert lines[-1].startswith("# error: computing ")


def test_a_step_without_a_library_or_collectives_has_no_such_line(tmp_path, allrail_cli):
    made, path = a_step(tmp_path, 1)
    told = allrail_cli("simulate", str(path))
    assert told.status == 0, told.stderr
    assert "as the tables were measured" not in told.stdout
    made.fabric.pop("library")
    (tmp_path / "measured.yaml").write_text(yaml.safe_dump(made.fabric))
    told = allrail_cli("simulate", str(path), "--set", "workload.parallelism.dp=64")
    assert told.status == 0, told.stderr
    assert "as the tables were measured" not in told.stdout


def test_groups_of_a_step_lie_where_the_layout_has_them():
    degrees = {"tp": 2, "cp": 1, "ep": 1, "pp": 2, "dp": 16}
    parts = parts_of(degrees, (8, 8))
    assert parts[:5] == [(2, 1), (1, 1), (1, 1), (2, 1), (2, 8)]
    # Replicas of pp 2 and dp 16 together.
    assert (4, 8) in parts
    assert parts_of({**degrees, "dp": 200}, (8, 8)) == []


@pytest.mark.parametrize("kind", ["nominal", "measured"])
def test_what_is_expected_ends_with_its_error(kind, tmp_path, allrail_cli):
    fabric = "dgx-h100"
    if kind == "measured":
        fabric = str(tmp_path / "measured.yaml")
        made = calibrate([of_library(part) for part in ((8, 1), (8, 2))])
        Path(fabric).write_text(yaml.safe_dump(made.fabric))
    told = allrail_cli("expect", fabric, "--ranks", "16").stdout.splitlines()
    assert told[-1].startswith("# error: network ")
    assert ("nobody measured it" in told[-1]) == (kind == "nominal")


@pytest.mark.parametrize(("busbw", "fixed"), [(0.0004, 30.0), (0.5, 4e5), (3000.0, 0.01)])
def test_quantities_of_any_size_are_written_as_files_take_them(busbw, fixed, tmp_path):
    made = calibrate([a_table(8, 1, busbw, fixed=fixed)])
    path = tmp_path / "measured.yaml"
    path.write_text(yaml.safe_dump(made.fabric))
    told = simulate(
        {
            "schema_version": 1,
            "fabric": str(path),
            "collective": {"kind": "all_reduce", "size": "1 GiB"},
        }
    )
    [row] = [row for row in made.table.rows if row.bytes == 1 << 30]
    assert told.time_us == pytest.approx(row.time_us, rel=0.25)
