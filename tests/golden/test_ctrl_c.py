"""Ctrl-C, as a real signal, in every command: status 130, and nothing of it is left.

Two kinds of moment are told apart. A command *reads*: its input is a named pipe into which nobody
writes, so it waits there, however fast the machine is. A command *computes*: it has listened for
Ctrl-C and computed since. What a command needs to end is no test's business.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import termios
import time
import uuid
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
import yaml

from allrail.cli.main import cli
from computing import wait_until_computing

PATIENCE_S = 240
COLLECTIVE = {
    "schema_version": 1,
    "fabric": {
        "dimensions": [
            {"kind": "switch", "size": 64, "bandwidth": "400 Gb/s", "latency": "1 us"},
            {"kind": "switch", "size": 8, "bandwidth": "200 Gb/s", "latency": "2 us"},
        ]
    },
    "collective": {"kind": "all_reduce", "size": "1 GiB"},
    "schedule": {"policy": "themis", "chunks": 512},
    "network_model": "links",
}
STEP = {
    "schema_version": 1,
    "fabric": "dgx-h100",
    "workload": {
        "model": "gpt3_175b",
        "global_batch": 1024,
        "compute": {"device": "h100"},
        "parallelism": {"tp": 8, "pp": 8, "dp": 16, "microbatches": 64},
    },
}
FILES = {
    "collective.yaml": COLLECTIVE,
    "traffic.yaml": {
        "schema_version": 1,
        "fabric": "hx2mesh-1k",
        "network_model": "packets",
        "traffic": {"pattern": "all_to_all", "size": "64 MiB"},
    },
    "search.yaml": {
        **COLLECTIVE,
        "fabric": "tutorial-8x8x8",
        "schedule": {"policy": "search", "chunks": 2048},
        "network_model": "dims",
    },
    "step.yaml": STEP,
    "study.yaml": {
        "schema_version": 1,
        "scenario": COLLECTIVE,
        "axes": {"collective.size": [f"{size} MiB" for size in range(64, 96)]},
    },
}
"""Inputs whose simulation takes long."""

MODEL = "--model gpt3_175b --fabric dgx-h100 --npus 1024"
READS = {
    "simulate": "pipe.yaml",
    "compare": "pipe.yaml --policy baseline,themis",
    "sweep": "pipe.yaml",
    "tune": "pipe.yaml",
    "plan": "pipe.yaml",
    "report": "folder/",
    "require": "pipe.yaml --throughput 1s",
    "verify": "-",
    "apply": "pipe.yaml --for ddp --out new",
    "import": "- --out new",
    "export": "pipe.yaml --chakra new",
    "fabric advise": "pipe.yaml",
    "fabric show": "pipe.yaml",
    "calibrate network": "pipe.txt --out new.yaml",
    "expect": "dgx-h100 --measured pipe.txt",
    "cost": "pipe.yaml",
    "place": "--fabric hx2mesh-1k --mix pipe.yaml",
    "reproduce memory": "--table pipe.csv",
    "reproduce runs": "--table pipe.csv",
}
"""By command: what makes it read the pipe."""
COMPUTES = {
    "simulate": ["traffic.yaml --out new", "collective.yaml --out new"],
    "compare": ["collective.yaml --policy baseline,themis --out new"],
    "sweep": ["study.yaml --workers 2"],
    "tune": ["step.yaml --trials 500 --report new"],
    "plan": ["search.yaml --out new.json", f"{MODEL} --report new"],
    "require": [f"{MODEL} --throughput 0.9x-ideal --out new"],
    "place": ["--fabric hx2mesh-16k --mix alibaba-2020 --count 100000 --out new"],
    "reproduce astra-sim": ["--out new"],
    "reproduce bytescheduler": ["--out new"],
    "reproduce hammingmesh": ["--out new"],
    "reproduce horovod": ["--out new"],
    "reproduce themis": ["--out new"],
    "reproduce runs": [""],
}
"""By command: what it computes for seconds."""
OTHERS = {
    "launch": "passes the signal on: `test_a_job_is_told`",
    "run": "passes the signal on: `test_a_job_is_told`",
    "calibrate live": "runs as ranks of a job, which `launch` ends",
    "calibrate device": "tests/torch/test_calibrate_device.py",
    "reproduce verdicts": "reads tables as `expect` does, each in a moment",
    "fabric list": "prints a list that is part of the package",
    "schema": "prints a schema that is part of the package",
    "help": "prints a page",
}
"""By command: why it is none of them."""


def leaves(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[str]:
    """Every command, as it is typed."""
    context = click.Context(group, info_name="allrail")
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found += leaves(command, (*path, name))
        else:
            found.append(" ".join((*path, name)))
    return found


def test_every_command_is_tried_or_says_why_not():
    assert sorted(leaves()) == sorted({*READS, *COMPUTES, *OTHERS})
    assert not set(OTHERS) & {*READS, *COMPUTES}


@dataclass
class Command:
    """A command that runs, alone with its temporary files.

    Attributes:
        process: It.
        mark: What its environment says, and that of all that it starts.
        temporary: Its folder for temporary files.
    """

    process: subprocess.Popen
    mark: str
    temporary: Path

    def interrupted(self) -> tuple[int, str, str]:
        """Send it the signal; its status, and what it printed on stdout and stderr."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err

    def others(self) -> list[str]:
        """What runs with its mark; who was killed is given time to be gone."""
        until = time.monotonic() + PATIENCE_S
        while (found := list(self._marked())) and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def _marked(self):
        for one in Path("/proc").iterdir():
            try:
                if one.name.isdigit() and self.mark.encode() in (one / "environ").read_bytes():
                    yield (one / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it is gone, or another user's


@pytest.fixture
def begin(tmp_path):
    """Starts `allrail WORDS` in `tmp_path / "work"`."""
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()
    begun = []

    def started(words: str, stdin: int = subprocess.DEVNULL) -> Command:
        mark = f"ALLRAIL_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = mark.partition("=")
        env = {**os.environ, name: value, "TMPDIR": str(tmp_path / "tmp"), "RAYON_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "allrail", *shlex.split(words)],
            cwd=tmp_path / "work",
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        begun.append(process)
        return Command(process, mark, tmp_path / "tmp")

    yield started
    for process in begun:
        process.kill()
        process.communicate()


def held(folder: Path) -> dict[str, bytes | None]:
    """All that a folder holds, by path; None of what is no file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def needs_optuna(words: str) -> None:
    if words.startswith("tune") and find_spec("optuna") is None:
        pytest.skip("Optuna is not installed: `allrail[tune]`")


def named_pipe(folder: Path, name: str) -> Path | None:
    """Make what a command is to read and nobody writes to; None where it is stdin."""
    typed = next(
        one
        for one in shlex.split(READS[name])
        if one == "-" or one.startswith(("pipe.", "folder/"))
    )
    pipe = folder / typed
    if typed == "-":
        return None
    if typed == "folder/":
        pipe.mkdir()
        pipe /= "result.json"
    os.mkfifo(pipe)
    return pipe


def is_empty(pipe: int) -> bool:
    """Whether all that was written into a pipe has been read."""
    left = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return not int.from_bytes(left, sys.byteorder)


@pytest.mark.parametrize("name", READS)
def test_while_it_reads(name, begin, tmp_path):
    words = f"{name} {READS[name]}"
    needs_optuna(words)
    pipe = named_pipe(tmp_path / "work", name)
    before = held(tmp_path / "work")
    reader, writer = os.pipe()
    command = begin(words, reader)
    os.close(reader)
    os.write(writer, b"{")
    until = time.monotonic() + PATIENCE_S
    while not (pipe is None and is_empty(writer)):
        assert command.process.poll() is None, command.process.communicate()
        assert time.monotonic() < until, "it does not read its input"
        try:  # nobody can before the command has
            named = None if pipe is None else os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.02)
            continue
        if named is not None:
            os.close(writer)
            writer = named
            break
    try:
        told = command.interrupted()
    finally:
        os.close(writer)
    assert told == (130, "", "interrupted\n")
    assert held(tmp_path / "work") == before
    assert held(command.temporary) == {}
    assert command.others() == []


@pytest.mark.parametrize(
    ("name", "more"),
    [(name, more) for name, several in COMPUTES.items() for more in several],
    ids=lambda one: one.partition(" --out")[0],
)
def test_while_it_computes(name, more, begin, tmp_path):
    words = f"{name} {more}"
    needs_optuna(words)
    for file in set(FILES) & set(shlex.split(more)):
        (tmp_path / "work" / file).write_text(yaml.safe_dump(FILES[file]))
    (tmp_path / "work" / "new").mkdir()
    (tmp_path / "work" / "new" / "another's.txt").write_text("it stays")
    before = held(tmp_path / "work")
    command = begin(words)
    wait_until_computing(command.process, 0.3)
    status, _, err = command.interrupted()
    assert status == 130, err
    assert err.endswith("interrupted\n"), err
    assert "Traceback" not in err
    after = held(tmp_path / "work")
    assert {path: data for path, data in after.items() if path in before} == before
    new = set(after) - set(before)
    assert new <= ({"study", "study/sweep.jsonl"} if name == "sweep" else set())
    assert held(command.temporary) == {}
    assert command.others() == []


WAITS = "import time; print('ready', flush=True); time.sleep(10**6)"


@pytest.mark.parametrize("words", ["launch -n 2 --", "run --trace new"], ids=["launch", "run"])
def test_a_job_is_told(words, begin, tmp_path):
    """Also where no terminal has told its processes already."""
    command = begin(f"{words} {sys.executable} -c {shlex.quote(WAITS)}")
    ready = 0
    while ready < (2 if words.startswith("launch") else 1):
        line = command.process.stdout.readline()
        assert line, command.process.communicate()
        ready += "ready" in line
    status, _, err = command.interrupted()
    assert status == 130, err
    assert "allrail/" not in err  # the script's own traceback is its own
    assert command.others() == []
