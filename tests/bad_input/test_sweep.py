"""Mistakes in studies: one message, a hint, exit status 2, nothing written."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

import allrail

SCENARIO = "{schema_version: 1, fabric: tutorial-8x8x8, collective: {kind: all_reduce, size: 1 GB}}"
HEAD = f"schema_version: 1\nscenario: {SCENARIO}\n"

# A name, the file's content, what the message names.
STUDIES = [
    ("empty", "", ["study.yaml", "empty"]),
    ("no YAML", "axes: {\n", ["study.yaml:", "YAML"]),
    ("a list", "[1]", ["study.yaml:1", "mapping"]),
    ("a scenario", SCENARIO, ["study.yaml", "not a study"]),
    ("no version", f"scenario: {SCENARIO}\naxes: {{seed: [1]}}\n", ["`schema_version`", "missing"]),
    ("no scenario", "schema_version: 1\naxes: {seed: [1]}\n", ["`scenario`", "missing"]),
    ("no axes", HEAD, ["`axes`", "missing"]),
    ("no points", HEAD + "axes: {}\n", ["study.yaml:3", "no points"]),
    ("no values", HEAD + "axes: {seed: []}\n", ["study.yaml:3", "no points"]),
    (
        "no drawn points",
        HEAD + "axes: {seed: [1]}\nsample: {method: random, points: 0}\n",
        ["no p"],
    ),
    (
        "10^9 points",
        HEAD
        + "axes:\n"
        + "".join(
            f"  {field}: {{from: 1, to: 1000, count: 1000}}\n"
            for field in ("seed", "schedule.chunks", "schedule.order")
        ),
        ["study.yaml:3", "1,000,000,000 points", "1,000,000 are taken"],
    ),
    (
        "10^9 drawn points",
        HEAD + "axes: {seed: [1]}\nsample: {method: random, points: 1000000000}\n",
        ["study.yaml:4", "`sample.points`", "1,000,000,000 points"],
    ),
    (
        "a range of 10^15",
        HEAD + "axes: {seed: {from: 0, to: 9, count: 1000000000000000}}\n",
        ["1,000,000,000,000,000"],
    ),
    ("an unknown key", HEAD + "axess: {}\n", ["study.yaml:3", "`axess`", "did you mean `axes`?"]),
    (
        "an unknown field",
        HEAD + "axes: {schedule.chunk: [1]}\n",
        ["study.yaml:3", "did you mean `chunks`?"],
    ),
    ("a word", HEAD + "axes: {speed: [1]}\n", ["study.yaml:3", "`speed`", "no such field"]),
    ("no path", HEAD + "axes: {'a..b': [1]}\n", ["study.yaml:3", "no such field"]),
    ("one value", HEAD + "axes: {seed: 1}\n", ["study.yaml:3", "`axes.seed`", "list"]),
    (
        "other fields",
        HEAD + "axes:\n  both: [{seed: 1, schedule.chunks: 2}, {seed: 2}]\n",
        ["study.yaml:4", "entry 1", "`schedule.chunks`"],
    ),
    ("empty entries", HEAD + "axes: {both: [{}]}\n", ["study.yaml:3", "empty"]),
    (
        "a field twice",
        HEAD + "axes:\n  seed: [1]\n  both: [{seed: 1, schedule.chunks: 2}]\n",
        ["study.yaml:5", "`seed`", "changes this field, too"],
    ),
    ("no count", HEAD + "axes: {seed: {from: 1, to: 2}}\n", ["study.yaml:3", "no `count`"]),
    (
        "backwards",
        HEAD + "axes: {seed: {from: 2, to: 1, count: 2}}\n",
        ["study.yaml:3", "ends before"],
    ),
    (
        "a log of zero",
        HEAD + "axes: {seed: {from: 0, to: 1, count: 2, scale: log}}\n",
        ["log scale"],
    ),
    ("a range of words", HEAD + "axes: {seed: {from: a, to: b, count: 2}}\n", ["no quantities"]),
    (
        "other units",
        HEAD + "axes: {collective.size: {from: 1 MB, to: 1 us, count: 2}}\n",
        ["no quantities of one kind"],
    ),
    ("no end", HEAD + "axes: {seed: {from: 1, count: 2}}\n", ["`axes.seed.to`", "missing"]),
    (
        "drawn and counted",
        HEAD + "axes: {seed: {from: 1, to: 2, count: 2}}\nsample: {method: random, points: 1}\n",
        ["study.yaml:3", "`count`"],
    ),
    (
        "no way to draw",
        HEAD + "axes: {seed: [1]}\nsample: {method: sobol, points: 1}\n",
        ["study.yaml:4", "`sobol`", "latin_hypercube"],
    ),
    ("no such result", HEAD + "axes: {seed: [1]}\nshow: time_u\n", ["did you mean `time_us`?"]),
    (
        "a missing scenario",
        "schema_version: 1\nscenario: no.yaml\naxes: {seed: [1]}\n",
        ["no.yaml"],
    ),
    ("a missing fabric", HEAD + "axes: {fabric: [no.yaml]}\n", ["no.yaml"]),
    (
        "a wrong scenario",
        HEAD.replace("1 GB", "1 parsec") + "axes: {seed: [1]}\n",
        ["study.yaml:2", "`collective.size`"],
    ),
]


def refused(outcome, folder, *told):
    assert outcome.status == 2, outcome
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ")
    assert "\n\nhint: " in outcome.stderr
    assert "Traceback" not in outcome.stderr
    for part in told:
        assert part in outcome.stderr
    assert {path.name for path in folder.iterdir()} == {"scenario.yaml", "study.yaml"}


@pytest.mark.parametrize(("name", "text", "told"), STUDIES, ids=lambda value: str(value)[:24])
def test_studies_that_are_refused(folder, allrail_cli, name, text, told):
    (folder / "study.yaml").write_text(text)
    computed = time.process_time()
    refused(allrail_cli("sweep", "study.yaml", "--out", "out"), folder, *told)
    # A tenth of a second; to go through 10^9 points takes minutes.
    assert time.process_time() - computed < 10


@pytest.fixture
def study(folder):
    (folder / "study.yaml").write_text(HEAD + "axes: {seed: [1]}\n")
    return folder


class TestFolders:
    def test_of_another_study(self, study, allrail_cli):
        allrail.sweep("study.yaml", "out", workers=1)
        before = {path.name: path.read_bytes() for path in (study / "out").iterdir()}
        (study / "study.yaml").write_text(HEAD + "axes: {seed: [2]}\n")
        outcome = allrail_cli("sweep", "study.yaml", "--out", "out")
        assert (outcome.status, outcome.stdout) == (2, "")
        assert "another study" in outcome.stderr
        assert {path.name: path.read_bytes() for path in (study / "out").iterdir()} == before

    def test_of_another_build(self, study, allrail_cli, monkeypatch):
        allrail.sweep("study.yaml", "out", workers=1)
        monkeypatch.setattr("allrail.search.sweeps.journal.core", lambda: "0.0.1 abc")
        outcome = allrail_cli("sweep", "study.yaml", "--out", "out")
        assert outcome.status == 2
        assert "another build" in outcome.stderr

    @pytest.mark.parametrize("text", ["hello\n", '{"point": 1}\n', "{}"])
    def test_of_another_program(self, study, allrail_cli, text):
        (study / "out").mkdir()
        (study / "out" / "sweep.jsonl").write_text(text)
        outcome = allrail_cli("sweep", "study.yaml", "--out", "out")
        assert outcome.status == 2
        assert "not written by allrail" in outcome.stderr
        assert (study / "out" / "sweep.jsonl").read_text() == text

    def test_in_use(self, study, allrail_cli):
        (study / "out").mkdir()
        with (study / "out" / "sweep.jsonl").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            outcome = allrail_cli("sweep", "study.yaml", "--out", "out")
        assert outcome.status == 2
        assert "another sweep writes" in outcome.stderr


class TestRay:
    def test_that_is_not_installed(self, study, allrail_cli, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        outcome = allrail_cli("sweep", "study.yaml", "--out", "out", "--ray", "auto")
        refused(outcome, study, "Ray is not installed", "install 'ray>=")

    @pytest.mark.parametrize("address", ["somewhere", "host:", ":1", "host:99999", "127.0.0.1:1"])
    def test_that_is_not_there(self, study, allrail_cli, monkeypatch, address):
        monkeypatch.setitem(sys.modules, "ray", json)  # which of them is never asked
        started = time.perf_counter()
        outcome = allrail_cli("sweep", "study.yaml", "--out", "out", "--ray", address)
        refused(outcome, study, "--ray", address)
        assert time.perf_counter() - started < 40

    def test_whose_address_is_another_program(self, study, allrail_cli):
        pytest.importorskip("ray", reason="`allrail[ray]`")
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            started = time.perf_counter()
            outcome = allrail_cli("sweep", "study.yaml", "--out", "out", "--ray", address)
        refused(outcome, study, address, "not Ray")
        assert time.perf_counter() - started < 120

    def test_whose_address_is_a_web_server(self, study, allrail_cli):
        """It answers, and not in HTTP/2: Ray's own check, slow to start, is not asked."""
        pytest.importorskip("ray", reason="`allrail[ray]`")

        def answer(server):
            with server.accept()[0] as connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=answer, args=(server,), daemon=True)
            thread.start()
            address = f"127.0.0.1:{server.getsockname()[1]}"
            outcome = allrail_cli("sweep", "study.yaml", "--out", "out", "--ray", address)
            thread.join(10)
        refused(outcome, study, address, "not Ray")


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv[1:] = ["sweep", "study.yaml", "--out", "out", "--workers", "1"]
from allrail.cli.main import main
main()
"""


@pytest.mark.long
def test_a_disk_without_room_names_the_file_and_the_sweep_goes_on(study):
    """A bound on the size of files stands for the disk: a write fails as it does on a full one."""
    (study / "study.yaml").write_text(HEAD + "axes: {schedule.chunks: [1, 2, 4, 8]}\n")
    done = subprocess.run(
        [sys.executable, "-c", FULL, "2000"], cwd=study, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    told = (
        "error: --out: `out`: it cannot be written: File too large (at `sweep.parquet`)\n\nhint: "
    )
    assert done.stderr.startswith(told)
    assert {one.name for one in (study / "out").iterdir()} == {"sweep.jsonl"}
    allrail.sweep("study.yaml", "out", workers=1)
    assert (study / "out" / "sweep.parquet").exists()


@pytest.mark.parametrize("room", [0, 200])
def test_a_journal_without_room_is_named(study, allrail_cli, monkeypatch, room):
    class Full(io.FileIO):
        def write(self, data):
            if self.tell() + len(data) > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    monkeypatch.setattr("allrail.search.sweeps.journal.FileIO", Full)
    outcome = allrail_cli("sweep", "study.yaml", "--out", "out", "--workers", "1")
    assert outcome.status == 2
    told = (
        "error: --out: `out/sweep.jsonl`: it cannot be written: No space left on device\n\nhint: "
    )
    assert outcome.stderr.startswith(told)
