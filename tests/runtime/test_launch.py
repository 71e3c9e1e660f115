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

from ports import free_port

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
part = sys.argv[1] + "/" + rank + ".part"
open(part, "w").write(f"{os.getpid()} {helper.pid}")
os.rename(part, part.removesuffix(".part"))
if rank == "1":
    while not {"0", "1", "2"} <= set(os.listdir(sys.argv[1])): time.sleep(0.01)
    sys.exit(7)
time.sleep(60)
"""
    began = time.monotonic()
    outcome, _ = launched(script, str(tmp_path), ranks=3)
    assert outcome.status == 7
    assert time.monotonic() - began < 40
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
    assert time.monotonic() - began < 40


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
        said, _ = process.communicate(timeout=50)
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


TOKEN = "0123456789abcdef"
ACROSS = """
import allrail, numpy, os, time
with allrail.Communicator() as group:
    one = group.all_reduce(numpy.array([group.rank + 1]), name="x").wait()
    print(group.rank, group.ranks, os.environ["ALLRAIL_LOCAL_RANK"], one)
"""


def on_hosts(script, tmp_path, *, tokens=(TOKEN, TOKEN)):
    """Two launchers with two ranks each, as on two hosts."""
    port = free_port()
    launchers = []
    for number, token in enumerate(tokens):
        file = tmp_path / f"token{number}"
        file.write_text(f"{token}\n")
        words = ["launch", "-n", "2", "--nodes", "2", "--node-rank", str(number)]
        words += ["--rendezvous", f"127.0.0.1:{port}", "--token-file", str(file)]
        launchers.append(
            subprocess.Popen(
                [PYTHON, "-m", "allrail", *words, PYTHON, "-c", script],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [each.communicate(timeout=300) for each in launchers]
    return [(each.returncode, *one) for each, one in zip(launchers, said, strict=True)]


def test_launchers_of_two_hosts_make_one_job(tmp_path):
    first, second = on_hosts(ACROSS, tmp_path)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert sorted(first[1].splitlines()) == ["[0] 0 4 0 [10]", "[1] 1 4 1 [10]"]
    assert sorted(second[1].splitlines()) == ["[2] 2 4 0 [10]", "[3] 3 4 1 [10]"]


def test_a_host_with_another_token_is_refused(tmp_path, monkeypatch):
    (tmp_path / "allrail.yaml").write_text("schema_version: 1\ntimeouts: {connect: 5 s}\n")
    monkeypatch.setenv("ALLRAIL_JOB", str(tmp_path / "allrail.yaml"))
    impatient = """
from functools import partial
from allrail.runtime import store
store.Client = partial(store.Client, patience=2.0)
"""
    first, second = on_hosts(impatient + ACROSS, tmp_path, tokens=(TOKEN, TOKEN[::-1]))
    assert first[0] != 0
    assert second[0] != 0
    assert "it refuses this token" in second[2]


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        (["--node-rank", "1"], "`--node-rank` is `1`: it is for jobs on several", "--nodes"),
        (["--nodes", "2"], "`--node-rank`: it is not given", "from 0 on"),
        (["--nodes", "2", "--node-rank", "2"], "there are 2 hosts", "from 0 on"),
        (["--nodes", "2", "--node-rank", "0"], "`--rendezvous`: it is not given", "10.0.0.1"),
        (["--rendezvous", "here"], "`--rendezvous` is `here`: it is no address", "10.0.0.1"),
        (["--rendezvous", "0.0.0.0:29400"], "everyone could reach it", "one address"),
        (["--token-file", "missing"], "`--token-file` is `missing`: it cannot be read", "openssl"),
        (["--token-file", "short"], "no text of 16 characters", "openssl"),
        ([], "`ALLRAIL_STORE_TOKEN`: it is missing", "--token-file job.token"),
    ],
)
def test_hosts_that_cannot_be(options, said, hint, allrail_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("abc\n")
    monkeypatch.delenv("ALLRAIL_STORE_TOKEN", raising=False)
    if options[:1] in (["--rendezvous"], ["--token-file"], []):
        if options[:1] == ["--rendezvous"]:
            monkeypatch.setenv("ALLRAIL_STORE_TOKEN", TOKEN)
        else:
            options = ["--rendezvous", "127.0.0.1:29400", *options]
        options = ["--nodes", "2", "--node-rank", "0", *options]
    outcome = allrail_cli("launch", "-n", "1", *options, PYTHON, "-c", "")
    assert outcome.status == 2
    assert said in outcome.stderr
    assert hint in outcome.stderr.partition("hint: ")[2]
