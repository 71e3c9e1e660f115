"""`allrail launch`: what ranks print, how they end, and that nothing of them is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PYTHON = sys.executable


@pytest.fixture
def launched(allrail_cli):
    """Runs a script as ranks, in this process; returns the outcome, lines in the ranks' order."""

    def run(script, *arguments, ranks=2):
        outcome = allrail_cli("launch", "-n", str(ranks), PYTHON, "-c", script, *arguments)
        return outcome, sorted(outcome.stdout.splitlines())

    return run


def is_running(pid):
    """Whether a process is there; one that has ended and is nobody's child any more is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_lines_stand_behind_their_rank(launched):
    script = """
import os, sys
print(os.environ["ALLRAIL_RANK"], os.environ["ALLRAIL_RANKS"], os.environ["ALLRAIL_LOCAL_RANK"])
print("wrong", file=sys.stderr)
print(sys.argv[1:])
sys.stdout.write("no end")
"""
    outcome, lines = launched(script, "-n", "--json", ranks=3)
    assert outcome.status == 0
    each = ["['-n', '--json']", "no end"]
    assert lines == sorted(f"[{r}] {line}" for r in range(3) for line in [f"{r} 3 {r}", *each])
    assert sorted(outcome.stderr.splitlines()) == ["[0] wrong", "[1] wrong", "[2] wrong"]


def test_ranks_find_each_other(launched):
    script = """
import allrail, numpy
with allrail.Communicator() as group:
    print(group.all_reduce(numpy.array([group.rank + 1]), name="x").wait())
"""
    outcome, lines = launched(script)
    assert (outcome.status, lines) == (0, ["[0] [3]", "[1] [3]"]), outcome.stderr


def test_many_and_long_lines_are_whole(launched):
    script = "import os\nfor i in range(2000): print(os.environ['ALLRAIL_RANK'] * (i % 700))"
    outcome, _ = launched(script)
    lines = outcome.stdout.splitlines()
    assert len(lines) == 4000
    assert all(re.fullmatch(r"\[(\d)\] \1*", line) for line in lines)


def test_who_fails_first_ends_all(launched, tmp_path):
    script = """
import os, subprocess, sys, time
rank = os.environ["ALLRAIL_RANK"]
helper = subprocess.Popen(["sleep", "60"])
open(sys.argv[1] + "/" + rank, "w").write(f"{os.getpid()} {helper.pid}")
if rank == "1":
    while len(os.listdir(sys.argv[1])) < 3: time.sleep(0.01)
    time.sleep(0.05)
    sys.exit(7)
time.sleep(60)
"""
    began = time.monotonic()
    outcome, _ = launched(script, str(tmp_path), ranks=3)
    assert outcome.status == 7
    assert time.monotonic() - began < 5
    assert "rank 1 has ended with status 7; ending the others" in outcome.stderr
    pids = " ".join((tmp_path / name).read_text() for name in "012").split()
    assert len(pids) == 6
    assert not [pid for pid in pids if is_running(pid)]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_who_is_killed_is_named_with_the_signal(launched):
    outcome, _ = launched("import os; os.kill(os.getpid(), 9)", ranks=1)
    assert outcome.status == 137
    assert "rank 0 has ended by SIGKILL" in outcome.stderr


DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60 if os.environ["ALLRAIL_RANK"] == "0" else 0.3)
sys.exit(3)
"""


def test_who_does_not_listen_is_killed(launched, monkeypatch):
    monkeypatch.setattr("allrail.runtime.launch._GRACE", 0.3)
    began = time.monotonic()
    outcome, _ = launched(DEAF)
    assert outcome.status == 3
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on(number, tmp_path):
    script = """
import os, signal, sys, time
def told(number, _):
    print("told", number, flush=True)
    sys.exit(0)
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, told)
print("ready", os.getpid(), flush=True)
time.sleep(60)
"""
    command = [PYTHON, "-m", "allrail", "launch", "-n", "2", "--", PYTHON, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        ready = [process.stdout.readline() for _ in range(2)]
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
    assert sorted(said.splitlines()) == [f"[{rank}] told {int(number)}" for rank in (0, 1)]
    assert process.returncode == 128 + number
    assert not [line for line in ready if is_running(line.split()[-1])]


def test_what_cannot_be_started(allrail_cli):
    outcome = allrail_cli("launch", "-n", "2", "no-such-program")
    assert outcome.status == 2
    assert "`no-such-program`: it cannot be started: No such file" in outcome.stderr
    assert "allrail launch -n 4 python train.py" in outcome.stderr


@pytest.mark.parametrize("words", [["python"], ["-n", "0", "python"], ["-n", "2"]])
def test_mistakes_in_its_options(words, allrail_cli):
    outcome = allrail_cli("launch", *words)
    assert outcome.status == 2
    assert outcome.stderr.startswith("error: allrail launch: ")
