"""What tired people type: each is one message with a hint, exit status 2, and no file is touched.

The table is `tired.txt`: wrong case, units that are missing or too many, options of other tools,
folders instead of files, files of other kinds. What is harmless is taken as it is. Mistakes of
meaning are in `loop.txt`.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TABLE = Path(__file__).with_name("tired.txt").read_text(encoding="utf-8")
ROWS = re.findall(r"^\$ allrail (.+)\n(error: .+\n\nhint: .+\n)", TABLE, re.MULTILINE)
SCENARIO = """\
schema_version: 1
fabric: tutorial-8x8x8
collective: {kind: all_reduce, size: 1 MiB}
schedule: {policy: baseline, chunks: 4}
"""
STEP = """\
schema_version: 1
fabric: {dimensions: [{kind: switch, size: 8, bandwidth: 100 GB/s, latency: 0 s}]}
workload:
  model: {layers: [{name: only, parameters: 500000000, flops: 1}]}
  batch_per_replica: 1
  compute: {forward: 10 ms, backward: 20 ms}
"""
HARMLESS = {
    "bom.yaml": b"\xef\xbb\xbf" + SCENARIO.encode(),
    "crlf.yaml": SCENARIO.replace("\n", "\r\n").encode(),
    "utf16.yaml": SCENARIO.encode("utf-16"),
    "json.yaml": json.dumps(yaml.safe_load(SCENARIO)).encode(),
    "tabbed.json": json.dumps(yaml.safe_load(SCENARIO), indent="\t").encode(),
}
FILES = {
    **HARMLESS,
    "s.yaml": SCENARIO.encode(),
    "step.yaml": STEP.encode(),
    "tab.yaml": SCENARIO.replace("collective: {", "collective:\n\tx: {").encode(),
    "empty.yaml": b"",
    "blank.yaml": b" \n\n# nothing\n",
    "bin.yaml": bytes(range(256)) * 8,
    "list.yaml": b"- 1\n- 2\n",
    "word.yaml": b"hello",
    "html.yaml": b"<!DOCTYPE html><html><body>404</body></html>",
    "latin.yaml": SCENARIO.encode() + b"# caf\xe9\n",
    "s.json": json.dumps(yaml.safe_load(SCENARIO)).encode(),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with all that the table names."""
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "d").mkdir()
    return tmp_path


def held(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_table_is_read_whole():
    assert len(ROWS) == TABLE.count("$ allrail") == TABLE.count("error: ") >= 180
    assert len({typed for typed, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("typed", "answered"), ROWS, ids=[typed for typed, _ in ROWS])
def test_a_message_and_a_hint(typed, answered, files, allrail_cli):
    before = held(files)
    told = allrail_cli(*shlex.split(typed))
    assert (told.stderr, told.stdout, told.status) == (answered, "", 2)
    assert held(files) == before


@pytest.mark.parametrize(
    "typed",
    [typed for typed, answered in ROWS if re.search(r"`--\S+ [^`]+`\?", answered)],
)
def test_an_option_that_is_meant_is_known(typed, files, allrail_cli):
    """The hint names an option with a value: both are taken by the command."""
    answered = dict(ROWS)[typed]
    option, value = re.findall(r"`(--\S+) ([^`]+)`\?", answered)[-1]
    words = shlex.split(typed)
    wrong = {option, words[words.index(option) + 1]} if option in words else {f"{value}"}
    kept = [word for word in words if word not in wrong]
    told = allrail_cli(*kept, option, value, "--help")
    assert told.status == 0
    assert option in told.stdout


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_is_taken(name, files, allrail_cli):
    told = allrail_cli("simulate", name, "--json")
    plain = allrail_cli("simulate", "s.yaml", "--json")
    assert told.status == plain.status == 0
    assert json.loads(told.stdout)["time_us"] == json.loads(plain.stdout)["time_us"]


def test_stdin_may_be_named_once(files, allrail_cli, monkeypatch):
    from allrail.base import stdin

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(STEP.encode())))
    stdin.forget()
    told = allrail_cli("apply", "-", "--for", "ddp", "--out", "new")
    assert told.status == 0, told.stderr
    stdin.forget()


def shell(line, folder, **more):
    """Run a line of a shell in which `allrail` is this one."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}
    line = re.sub(r"\ballrail ", f"{shlex.quote(sys.executable)} -m allrail ", line)
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


class TestInAShell:
    def test_nobody_reads_the_rest(self, files):
        done = shell("allrail fabric list | head -1", files)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("\n") == 1

    @pytest.mark.parametrize("words", ["fabric list", "simulate s.yaml", "schema scenario"])
    def test_the_disk_is_full(self, files, words):
        done = shell(f"allrail {words} > /dev/full", files)
        assert done.returncode == 2
        assert done.stderr.startswith("error: standard output: it cannot be written: ")
        assert "Traceback" not in done.stderr

    def test_no_colours_and_no_progress_without_a_terminal(self, files):
        done = shell("allrail simulate s.yaml", files, NO_COLOR="1", TERM="dumb", COLUMNS="80")
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert done.stderr == ""
