"""`allrail calibrate network`: tables of every form, the fit, the fabric; and what was posted."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from statistics import median

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from allrail import simulate
from allrail.base.errors import InputError
from allrail.measure.calibrate.fit import fit
from allrail.measure.calibrate.network import calibrate, held_out
from allrail.measure.calibrate.predict import run
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.table import AROUND, Row, Table, ranks_of
from reference import REFERENCE, needs

POSTED = REFERENCE / "nccl"
posted = needs("nccl")

SIZES = [1 << power for power in range(12, 32)]


def time_us(size, *, ranks=8, rate=200.0, fixed=30.0):
    return fixed + AROUND["all_reduce"](ranks) * size / rate / 1e3


def row(size, time, ranks=8, name="all_reduce", wrong="0", *, columns="sum  -1"):
    algbw = size / time / 1e3
    half = f"{time:.2f} {algbw:.2f} {algbw * AROUND[name](ranks):.2f} {wrong}"
    return f"{size} {size // 4} float {columns} {half} {half}"


def output(*, ranks=8, name="all_reduce", wrong="0", sizes=SIZES, rate=200.0, fixed=30.0):
    lines = [f"# Collective test starting: {name}_perf", "# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid 10 on node{rank // 8} device {rank % 8} [0000:1b:00] GPU"
        for rank in range(ranks)
    ]
    lines += [
        "#                       out-of-place                 in-place",
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)",
    ]
    for size in sizes:
        lines.append(
            row(size, time_us(size, ranks=ranks, rate=rate, fixed=fixed), ranks, name, wrong)
        )
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 100"])


def tables(tmp_path, text):
    path = tmp_path / "posted.txt"
    path.write_text(text)
    return read_tables(path)


WAYS = {
    "as it is": lambda line: line,
    "mpirun's tags": lambda line: f"[1,0]<stdout>:{line}",
    "srun's labels": lambda line: f"0: {line}",
    "quoted": lambda line: f"    {line}",
    "without comment signs": lambda line: line.lstrip("# "),
    "with underscores": lambda line: line.replace("1048576 ", "1_048_576 "),
    "a container's log": lambda line: f"2025-03-01T10:11:12.123456789Z stdout F {line}",
    "a logger's time": lambda line: f"2025-03-01 10:11:12,123 INFO {line}",
    "mpirun's times": lambda line: f"Wed Apr 10 10:11:12 2024[1,0]<stdout>: {line}",
    "docker compose": lambda line: f"worker-0  | {line}",
    "numbered": lambda line: f"   7  {line}",
    "Ray's names": lambda line: f"(Worker pid=1234, ip=10.0.0.2) {line}",
    "colours": lambda line: re.sub(r"(\d+\.\d+)", "\x1b[1;32m\\1\x1b[0m", line),
    "tabs": lambda line: line.replace(" ", "\t"),
    "decimal commas": lambda line: re.sub(r"(\d)\.(\d)", r"\1,\2", line),
    "commas between columns": lambda line: ",".join(line.split()) if line[0] != "#" else line,
    "markdown": lambda line: f"| {' | '.join(line.split())} |" if line[0] != "#" else line,
}


@pytest.mark.parametrize("way", WAYS)
def test_however_it_was_pasted_it_is_the_same_table(tmp_path, way):
    [plain] = tables(tmp_path, output())
    text = "\n".join(
        [*map(WAYS[way], output().splitlines()), "NCCL INFO comm 0x1 rank 0 nranks 8 - Done"]
    )
    [found] = tables(tmp_path, text)
    assert found.rows == plain.rows
    assert (found.collective, found.ranks) == ("all_reduce", 8)
    assert found.device == "GPU"


def test_a_windows_shell_writes_utf_16(tmp_path):
    path = tmp_path / "posted.txt"
    path.write_text(output(), encoding="utf-16")
    assert read_tables(path) == [
        replace(one, source=str(path)) for one in tables(tmp_path, output())
    ]


def test_tests_of_osu_in_one_file_are_tables_of_their_own(tmp_path):
    text = (
        "# OSU MPI-CUDA Allreduce Latency Test v7.0\n[1,0]<stdout>: 1024 10.0\n2048 11.0\n"
        "# OSU MPI-CUDA Bandwidth Test v7.0\n1024 900.0\n2048 1200.0\n"
        "# OSU MPI Allgather Latency Test v7.0\n1024 20.0\n2048 21.0\n"
    )
    first, second = tables(tmp_path, text)
    assert (first.collective, second.collective) == ("all_reduce", "all_gather")
    assert [row.time_us for row in first.rows] == [10.0, 11.0]
    assert [row.time_us for row in second.rows] == [20.0, 21.0]


def test_old_versions_tell_milliseconds_and_errors(tmp_path):
    lines = ["# bytes N type op time algbw busbw delta"]
    for size in SIZES[8:]:
        time = time_us(size)
        algbw = size / time / 1e3
        part = f"{time / 1e3:.3f} {algbw:.2f} {algbw * 1.75:.2f} 2e-06"
        lines.append(f"{size} {size // 4} float sum {part} {part}")
    [found] = tables(tmp_path, "\n".join(lines))
    assert found.ranks == 8
    assert all(
        abs(row.time_us / time_us(row.bytes) - 1) < 0.02 for row in found.rows if row.bytes > 1e7
    )


def test_a_json_of_any_version_is_the_same_table(tmp_path):
    def half(size):
        time = time_us(size)
        return {
            "time": time,
            "alg_bw": size / time / 1e3,
            "bus_bw": 1.75 * size / time / 1e3,
            "nwrong": 0,
        }

    results = [{"size": size, "out_of_place": half(size), "in_place": half(size)} for size in SIZES]
    tree = {"version": 1, "args": ["./all_reduce_perf", "-g", "8"], "results": results}
    [found] = tables(tmp_path, json.dumps(tree))
    assert (found.collective, found.ranks, len(found.rows)) == ("all_reduce", 8, len(SIZES))
    results[3]["out_of_place"]["nwrong"] = 4
    with pytest.raises(InputError, match="4 of its values are wrong"):
        tables(tmp_path, json.dumps(tree))


def test_the_bandwidths_count_where_the_list_of_ranks_says_otherwise(tmp_path):
    lines = [line for line in output(ranks=16).splitlines() if "Rank 15" not in line]
    [found] = tables(tmp_path, "\n".join(lines))
    assert found.ranks == 16
    assert "listed: 15 ranks" in found.notes[0]


def test_a_shortened_list_of_ranks_says_how_many_but_not_where(tmp_path):
    lines = [line for line in output(ranks=16).splitlines() if "Rank" not in line or "15" in line]
    [found] = tables(tmp_path, "\n".join(lines))
    assert (found.ranks, found.hosts, found.notes) == (16, None, ())
    [whole] = tables(tmp_path, output(ranks=16))
    assert (whole.ranks, whole.hosts) == (16, 2)


def test_two_runs_in_one_file_are_two_tables(tmp_path):
    found = tables(tmp_path, output() + "\n" + output(name="reduce_scatter"))
    assert [one.collective for one in found] == ["all_reduce", "reduce_scatter"]


def test_a_run_has_its_own_list_of_ranks(tmp_path):
    runs = [output(ranks=8), output(ranks=16)]
    unnamed = "\n".join(run.split("\n", 1)[1] for run in runs)
    assert [(one.ranks, one.hosts) for one in tables(tmp_path, unnamed)] == [(8, 1), (16, 2)]


def test_sweeps_under_one_header_are_one_table_only_if_they_agree(tmp_path):
    rows = [line for line in output().splitlines() if line[0].isdigit()]
    [found] = tables(tmp_path, "\n".join([output(), *rows]))
    assert "2 sweeps" in found.notes[0]
    slow = [line for line in output(rate=50, fixed=90).splitlines() if line[0].isdigit()]
    found = tables(tmp_path, "\n".join([output(), *slow]))
    assert [len(one.rows) for one in found] == [len(SIZES)] * 2
    assert all("differ" in one.notes[0] for one in found)


def test_tiny_sizes_alone_have_no_bandwidth_to_tell_ranks_by(tmp_path):
    [found] = tables(tmp_path, "8 2 float sum -1 35.20 0.00 0.00 0 34.05 0.00 0.00 0\n")
    assert (found.collective, found.ranks) == (None, None)


def test_a_column_that_was_left_out_is_no_count_of_mistakes(tmp_path):
    rows = []
    for size in SIZES[12:]:
        time = round(time_us(size))
        rows.append(f"{size} {time} {size / time / 1e3:.2f} {1.75 * size / time / 1e3:.2f} " * 2)
    text = "\n".join(row.replace(f" {row.split()[0]} ", " ") for row in rows)
    [found] = tables(tmp_path, text)
    assert found.rows[-1].in_place_us == found.rows[-1].time_us


def test_what_is_cut_off_is_read_as_far_as_it_goes(tmp_path):
    text = output()
    [found] = tables(tmp_path, text[: text.index("1073741824") + 30])
    assert found.rows[-1].bytes == 536870912
    assert "cut off" in found.notes[0]


@given(
    ranks=st.sampled_from([2, 4, 8, 16, 24, 32, 64, 128, 256]),
    rate=st.floats(20, 900),
    name=st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
)
def test_ranks_follow_from_rounded_bandwidths(ranks, rate, name):
    ratio = AROUND[name](ranks)
    rates = [(round(rate * share, 2), round(rate * share * ratio, 2)) for share in (1, 0.9, 0.7)]
    assert ranks_of(name, rates, ranks) == ranks
    # Without a list the same comes out where the digits tell.
    if ranks <= 32 and rate > 50:
        assert ranks_of(name, rates) == ranks


@given(
    fixed=st.floats(5, 500),
    rate=st.floats(1, 900),
    jumps=st.sampled_from([(), (1 << 20,), (1 << 18, 1 << 25)]),
)
def test_a_fit_finds_lines_and_where_they_end(fixed, rate, jumps):
    def truth(size):
        piece = sum(size >= jump for jump in jumps)
        return fixed * 3**piece + size / (rate * 2**piece) / 1e3

    made = fit([Row(size, truth(size)) for size in SIZES])
    assert made.error < 0.02
    assert all(abs(made.time_us(size) / truth(size) - 1) < 0.1 for size in SIZES)


def test_an_outlier_is_left_out_and_said():
    rows = [Row(size, time_us(size) * (8 if size == 1 << 20 else 1)) for size in SIZES]
    made = fit(rows)
    assert made.left_out == (1 << 20,)
    assert abs(made.time_us(1 << 20) / time_us(1 << 20) - 1) < 0.05


def test_what_a_table_cannot_tell_is_said():
    one = fit([Row(1 << 30, 5000.0)])
    assert "one size" in one.unknown[0]
    large = fit([Row(size, time_us(size, fixed=1.0)) for size in SIZES[-4:]])
    assert "the fixed time" in large.unknown[0]
    small = fit([Row(size, time_us(size)) for size in SIZES[:4]])
    assert "the rate" in small.unknown[0]


def a_table(ranks=8, **sizes):
    rows = tuple(Row(size, time_us(size, ranks=ranks, **sizes)) for size in SIZES)
    return Table("all_reduce", ranks, ranks // 8, "", rows, f"{ranks}.txt")


def test_the_fabric_simulates_to_what_was_measured(tmp_path):
    made = calibrate([a_table()])
    # Chunks hide half of the latency at large sizes: a fixed time and a rate is not quite theirs.
    assert made.error < 0.04
    [dimension] = made.fabric["dimensions"]
    assert dimension["size"] == 8
    assert float(dimension["bandwidth"].split()[0]) == pytest.approx(200, rel=0.02)
    path = tmp_path / "measured.yaml"
    path.write_text(yaml.safe_dump(made.fabric))
    size = 1 << 28
    told = simulate(
        {
            "schema_version": 1,
            "fabric": str(path),
            "collective": {"kind": "all_reduce", "size": f"{size} B"},
        }
    )
    assert told.time_us == pytest.approx(time_us(size), rel=0.02)
    assert told.calibrated


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1}', "no `results`"),
        (output(wrong="1e+05"), "100000 of its values are wrong"),
        ("\n".join(row(size, time_us(size), wrong="2") for size in SIZES), "2 of its values"),
        ("1048576 262144 float sum -1 inf 0.00 0.00 0 inf 0.00 0.00 0\n", "no form"),
        ('{"results": [1, {"out_of_place": 5}, {"size": "x"}]}', "no result with a time"),
        ('{"results": [{"size": 8, "out_of_place": {"time": "nan"}}]}', "no result with a time"),
        ('{"results": [{"size": 8, "out_of_place": {"time": Infinity}}]}', "no result"),
        ('{"results": [{"size": 8, "in_place": {"nwrong": 2}}]}', "2 of its values are wrong"),
        ('{"results": [], "out_of_bounds": {"count": 9}}', "9 of its values are wrong"),
        ("# size count type redop root time algbw busbw #wrong\n", "no row with a size"),
        ("# size time algbw busbw\n1048576 nan nan nan\n", "no row with a size"),
        ("# size time algbw busbw\n1048576 -5.0 0.21 0.37\n", "no row with a size"),
        ("# OSU MPI Allreduce Latency Test v7\n# Size Avg\n", "no row of a size and a latency"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(tmp_path, text, why):
    with pytest.raises(InputError, match=why):
        tables(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("\n".join(output(ranks=ranks) for ranks in (8, 16, 8)), 16),
        ("# OSU MPI-CUDA Allreduce Latency Test v7.0\n1024 10.0\n2048 11.0\n", 4),
    ],
    ids=["one of several", "not said"],
)
def test_ranks_say_which_table_is_meant(text, ranks, tmp_path, allrail_cli):
    file = tmp_path / "tables.txt"
    file.write_text(text)
    assert "--ranks" in allrail_cli("calibrate", "network", str(file)).stderr
    told = allrail_cli("calibrate", "network", str(file), "--ranks", str(ranks), "--json")
    assert json.loads(told.stdout)["ranks"] == ranks


def test_of_tables_that_are_alike_a_number_says_which(tmp_path, allrail_cli):
    file = tmp_path / "tables.txt"
    file.write_text("\n".join(output(rate=rate) for rate in (200.0, 20.0)))
    told = allrail_cli("calibrate", "network", str(file))
    assert told.status == 2
    assert "2 is all_reduce over 8 ranks" in told.stderr
    assert "--table" in told.stderr
    for command in (
        ("calibrate", "network", str(file)),
        ("expect", "dgx-a100", "--measured", file),
    ):
        told = allrail_cli(*map(str, command), "--table", "2", "--json")
        assert json.loads(told.stdout)["ranks"] == 8
    assert "1 to 2" in allrail_cli("calibrate", "network", str(file), "--table", "3").stderr


def test_the_command_writes_a_fabric(tmp_path, allrail_cli):
    file, out = tmp_path / "table.txt", tmp_path / "measured.yaml"
    file.write_text(output())
    told = allrail_cli("calibrate", "network", str(file), "--out", str(out))
    assert told.status == 0
    assert "every second size" in told.stdout
    fabric = yaml.safe_load(out.read_text())
    assert fabric["calibrated"] is True
    assert str(tmp_path) not in out.read_text()
    found = json.loads(allrail_cli("calibrate", "network", str(file), "--json").stdout)
    assert len(found["rows"]) == len(SIZES)
    assert found["error"] < 0.04


def of(name, *, ranks=16, rate="25 GB/s", latency="5 us", sizes=SIZES):
    """The table of an algorithm that takes what the simulator says, a row a hundredth off."""
    dimension = {"kind": "switch", "size": ranks, "bandwidth": rate, "latency": latency}
    noise = [1.0, 1.01, 0.99]
    rows = tuple(
        Row(size, run("all_reduce", [dimension], size, algorithms=[name]) * noise[place % 3])
        for place, size in enumerate(sizes)
    )
    return Table("all_reduce", ranks, 2, "", rows, f"{name}.txt")


@pytest.mark.parametrize("latency", ["2 us", "20 us"])
def test_tables_of_several_algorithms_say_where_they_switch(latency):
    """Tree and ring of 16 ranks: 23 steps of 2 s bytes and a fill, 30 of 15/8 s."""
    names = ["ring", "double_binary_tree"]
    made = calibrate([of(name, latency=latency) for name in names], algorithms=names)
    [dimension] = made.fabric["dimensions"]
    assert float(dimension["bandwidth"].split()[0]) == pytest.approx(25, rel=0.02)
    assert float(dimension["latency"].split()[0]) == pytest.approx(float(latency[:-3]), rel=0.03)
    points = dimension["fastest"]["all_reduce"]
    assert [point["algorithm"] for point in points] == ["double_binary_tree", "ring"]
    assert points[0]["from"] == "1 B"
    tree, ring = (of(name, latency=latency) for name in reversed(names))
    crossed = [
        slow.bytes
        for fast, slow in zip(tree.rows, ring.rows, strict=True)
        if slow.time_us < fast.time_us
    ]
    at = int(points[1]["from"].split()[0])
    assert min(crossed) / 2 <= at <= min(crossed) * 2
    for size, name in [(at - 1, "double_binary_tree"), (at, "ring")]:
        scenario = {
            "schema_version": 1,
            "fabric": {"dimensions": [dimension]},
            "collective": {"kind": "all_reduce", "size": f"{size} B"},
            "schedule": {"algorithms": "auto"},
        }
        assert simulate(scenario).dimensions[0].algorithm == name
    assert made.error < 0.03


def test_an_algorithm_that_is_always_faster_has_no_switch():
    names = ["ring", "direct"]
    made = calibrate([of(name) for name in names], algorithms=names)
    [dimension] = made.fabric["dimensions"]
    assert dimension["fastest"] == {"all_reduce": [{"from": "1 B", "algorithm": "direct"}]}


def test_tables_that_are_no_comparison_are_refused(tmp_path, allrail_cli):
    def refused(tables, names):
        with pytest.raises(InputError) as caught:
            calibrate(tables, algorithms=names)
        return caught.value.why

    ring, few = of("ring"), of("ring", ranks=8)
    assert "1 names for 2" in refused([ring, ring], ["ring"])
    assert "named twice" in refused([ring, ring], ["ring", "ring"])
    assert "over 8 ranks, beside" in refused([ring, few], ["ring", "direct"])
    assert "not an algorithm" in refused([ring, ring], ["ring", "rng"])
    flat = Table("all_reduce", 16, 2, "", tuple(Row(size, 9.0) for size in SIZES), "flat.txt")
    assert "rate cannot be told" in refused([ring, flat], ["ring", "direct"])
    file = tmp_path / "table.txt"
    file.write_text(output())
    twice = allrail_cli(
        "calibrate", "network", str(file), "--algorithm", "ring", "--algorithm", "direct"
    )
    assert "2 names for 1 tables" in twice.stderr
    one = allrail_cli("calibrate", "network", str(file), "--algorithm", "ring")
    assert "from 1 B ring" in one.stdout


@posted
def test_every_posted_table_is_read():
    with (POSTED / "index.csv").open(encoding="utf-8") as file:
        index = {row["file"]: row for row in csv.DictReader(file)}
    files = sorted(POSTED.glob("*.txt"))
    assert len(files) >= 40
    for path in files:
        found = read_tables(path)
        said = index[path.name]
        best = [one.best_busbw for one in found if one.best_busbw is not None]
        if said["max_busbw_oop"]:
            assert max(best) == pytest.approx(float(said["max_busbw_oop"]), rel=0.01), path.name


@posted
def test_posted_tables_are_predicted_from_every_second_size():
    with (POSTED / "index.csv").open(encoding="utf-8") as file:
        healthy = [row["file"] for row in csv.DictReader(file) if "healthy" in row["verdict"]]
    off = [
        error
        for name in healthy
        for table in read_tables(POSTED / name)
        if (error := held_out(table, 1)) is not None
    ]
    assert len(off) > 15
    assert median(off) < 0.1
    assert max(off) < 0.1


def test_where_nothing_depends_on_the_size_no_rate_is_told():
    rows = tuple(Row(1 << power, 40.0) for power in range(3, 12))
    table = Table("all_reduce", 8, 1, "", (*rows, Row(1 << 12, 30.0)), "flat.txt")
    with pytest.raises(InputError, match="its rate cannot be told"):
        calibrate([table])
