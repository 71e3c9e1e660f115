"""`allrail compare --astra-sim`: what ASTRA-sim printed beside ours, of one version."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from allrail.base.errors import InputError
from allrail.formats.astra_sim.printed import EXPOSED, TOTAL, check_versions, read_printed
from allrail_reproduce.astra_sim import FOLDER

HEADER = "Name,TotalTime(us),ComputeTime(us),ExposedCommunicationTime(us),TotalMessageSize(MB)\n"
THEMIS = "themis,13635.871,0.000,13635.871,2044.00\n"
CASE = ["--network", "3d_switch.json", "--workload", "all_reduce.txt", "--comm-scale", "1024"]


@pytest.fixture
def files(folder):
    for entry in FOLDER.iterdir():
        shutil.copy(entry, folder / entry.name)
    (folder / "result.csv").write_text(HEADER + THEMIS)
    return folder


def compare(cli, *options, system="3d_switch_themis.txt"):
    return cli("compare", "--astra-sim", *options, *CASE, "--system", system)


@pytest.mark.usefixtures("files")
def test_each_column_stands_beside_ours(allrail_cli):
    told = compare(allrail_cli, "result.csv")
    assert told.status == 0, told.stderr
    lines = [line.split() for line in told.stdout.splitlines()]
    assert lines[0] == ["column", "astra_sim", "allrail", "difference_%"]
    assert ["TotalTime(us)", "13635.871", "13635.871", "+0.000"] in lines
    assert ["TotalMessageSize(MB)", "2044.000", "2044.000", "+0.000"] in lines
    assert "# ASTRA-sim 1.0: `result.csv`, themis" in told.stdout
    tree = json.loads(compare(allrail_cli, "result.csv", "--json").stdout)
    assert tree["rows"][0]["column"] == TOTAL
    assert tree["rows"][0]["difference"] == pytest.approx(0, abs=1e-6)


def test_a_difference_is_shown_and_written(files, allrail_cli):
    told = compare(allrail_cli, "result.csv", "--out", "out", system="3d_switch_baseline.txt")
    assert told.status == 0, told.stderr
    assert "+156.7" in told.stdout
    rows = list(csv.DictReader((files / "out" / "astra_sim.csv").read_text().splitlines()))
    assert [row[TOTAL] for row in rows] == ["13635.871", "35008.129"]
    assert (files / "out" / "report.html").exists()


def test_simulate_writes_its_columns(files, allrail_cli):
    options = ["simulate", "--astra-sim", *CASE, "--system", "3d_switch_themis.txt"]
    told = allrail_cli(*options, "--out", "out")
    assert told.status == 0, told.stderr
    [row] = csv.DictReader((files / "out" / "astra_sim.csv").read_text().splitlines())
    assert (row["Name"], row[TOTAL]) == ("3d_switch-all_reduce", "13635.871")
    assert row["dim1 util(%)"]
    # A later run of something else leaves none of it.
    assert allrail_cli("simulate", "scenario.yaml", "--out", "out").status == 0
    assert not (files / "out" / "astra_sim.csv").exists()


LOGS = {
    "sys[0] finished, 35008129 cycles, exposed communication 35008129 cycles.\n": 35008.129,
    (
        "[2025-02-28 10:00:00.000] [workload] [info] sys[1] finished, 12 cycles, exposed "
        "communication 2 cycles.\n[..] sys[0] finished, 9 cycles, exposed communication 9 cycles.\n"
    ): 0.012,
    "ring of node 0\nsys[62] finished, 187442108 cycles\nsys[61] finished, 5 cycles\n": 187442.108,
    "sys[3] iteration 2 finished, 77 cycles, exposed communication 7 cycles.\n": 0.077,
}


@pytest.mark.parametrize(("text", "total"), LOGS.items())
def test_outputs_of_2x_are_read(tmp_path, text, total):
    (tmp_path / "log.txt").write_text(text)
    found = read_printed(tmp_path / "log.txt")
    assert (found.version, found.values[TOTAL]) == ("2.x", total)
    assert (EXPOSED in found.values) is ("exposed" in text)


def test_the_last_npu_counts(tmp_path):
    (tmp_path / "log").write_text(
        "sys[0] finished, 10 cycles, exposed communication 10 cycles.\n"
        "sys[1] finished, 3000 cycles, exposed communication 1000 cycles.\n"
    )
    values = read_printed(tmp_path / "log").values
    assert list(values.values()) == [3.0, 2.0, 1.0]


BAD = {
    "of two versions": (
        "sys[0] finished, 5 cycles\n",
        (),
        "it is of ASTRA-sim 1.0, and `result` of 2.x",
    ),
    "empty": ("", (), "no result of ASTRA-sim"),
    "a table of layers": ("layer_name,run,fwd compute\nconv1,x,1\n", (), "table of layers"),
    "no run": (HEADER, (), "it has no run"),
    "no number": (HEADER + "a,fast,0,0,0\n", (), "not a finite number"),
    "not finite": (HEADER + "a,nan,0,0,0\n", (), "not a finite number"),
    "several": (HEADER + THEMIS + THEMIS.replace("themis", "other"), (), "it has 2 runs"),
    "two versions": (HEADER + THEMIS + "sys[0] finished, 5 cycles\n", (), "ASTRA-sim 1.0 and 2.x"),
    "one name": (HEADER + THEMIS * 2, (), "the line of one run in a file of its own"),
    "one name asked": (HEADER + THEMIS * 2, ("--run", "themis"), "2 runs of this name"),
    "below 0": (HEADER + THEMIS.replace("13635.871", "-1", 1), (), "it is below 0"),
    "two logs": ("sys[0] finished, 5 cycles\nsys[0] finished, 6 cycles\n", (), "finished twice"),
    "another run": (HEADER + THEMIS, ("--run", "themes"), "did you mean `themis`?"),
    "variants": (HEADER + THEMIS, ("--chunks", "4,8"), "means nothing beside a result"),
    "overrides": (HEADER + THEMIS, ("--set", "seed=1"), "means nothing beside a result"),
    "two backends": (
        HEADER + THEMIS,
        ("--network-model", "dims,links", "--network-model", "x"),
        "one backend",
    ),
    "no backend": (
        HEADER + THEMIS,
        ("--network-model", "packets"),
        "not a network model of dimensions",
    ),
}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", BAD)
def test_bad_input(allrail_cli, folder, name):
    text, options, why = BAD[name]
    (folder / "result").write_text(text)
    told = compare(allrail_cli, "result", *options)
    assert told.status == 2, told.stdout
    assert told.stdout == ""
    assert why in told.stderr
    assert told.stderr.startswith("error: ")
    assert len(told.stderr.strip().splitlines()) <= 4


@pytest.mark.usefixtures("files")
def test_other_commands_name_the_flag(allrail_cli):
    told = allrail_cli("compare", "scenario.yaml", "--network", "3d_switch.json")
    assert (told.status, "add `--astra-sim`" in told.stderr) == (2, True)
    told = allrail_cli("compare", "--astra-sim", "result.csv")
    assert (told.status, "`--network` is missing" in told.stderr) == (2, True)
    told = allrail_cli("compare", "--astra-sim", *CASE, "--system", "3d_switch_themis.txt")
    assert (told.status, "one result of ASTRA-sim" in told.stderr) == (2, True)


def test_which_version_each_file_is_of(tmp_path):
    csv_file, log = tmp_path / "a.csv", tmp_path / "b.log"
    csv_file.write_text(HEADER + THEMIS)
    # The same line on the terminal and in the log is one run.
    log.write_text("sys[0] finished, 5 cycles\n" * 2)
    first, second = read_printed(csv_file), read_printed(log)
    (tmp_path / "w.0.et").write_bytes(b"")
    trace, layers = tmp_path / "w", tmp_path / "w.txt"
    systems = {"1.0": tmp_path / "s.txt", "2.x": tmp_path / "s.json"}
    assert check_versions([first], {"system": systems["1.0"], "workload": layers}) == "1.0"
    assert check_versions([second], {"system": systems["2.x"], "workload": trace}) == "2.x"
    for printed, inputs in (
        ([first], {"system": systems["2.x"]}),
        ([first], {"workload": trace}),
        ([second], {"system": systems["1.0"]}),
        ([second], {"workload": layers}),
        ([first, second], {}),
    ):
        with pytest.raises(InputError, match=r"it is of ASTRA-sim .* and"):
            check_versions(printed, inputs)
