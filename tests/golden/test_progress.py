"""The line of progress, on a terminal of the test's own: what long work says of itself.

Nothing here depends on how fast a machine is: a command is heard until it has said what it must,
long before it is over, and then interrupted.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from allrail.cli.progress import Progress
from computing import wait_until_computing

PATIENCE_S = 240
STEP = {
    "schema_version": 1,
    "fabric": "dgx-h100",
    "workload": {
        "model": "gpt3_175b",
        "global_batch": 1024,
        "compute": {"device": "h100"},
        "parallelism": {"tp": 8, "pp": 8, "dp": 16, "microbatches": 64},
    },
    "network_model": "links",
}
TRAFFIC = {
    "schema_version": 1,
    "fabric": "hx2mesh-1k",
    "network_model": "packets",
    "traffic": {"pattern": "all_to_all", "size": "64 MiB"},
}
SEARCH = {
    "schema_version": 1,
    "fabric": "tutorial-8x8x8",
    "collective": [
        {"kind": "all_reduce", "size": f"{size} GiB", "start": f"{size} s"} for size in range(1, 99)
    ],
    "schedule": {"policy": "search", "chunks": 2048},
    "network_model": "dims",
}
MESH = {
    "schema_version": 1,
    "name": "large",
    "topology": "hammingmesh",
    "board": [2, 2],
    "grid": [128, 128],
    "switch_radix": 64,
    "planes": 4,
    "link": {"bandwidth": "400 Gb/s", "latency": "20 ns"},
    "board_link": {"bandwidth": "400 Gb/s", "latency": "1 ns"},
}
FILES = {
    "step.yaml": STEP,
    "traffic.yaml": TRAFFIC,
    "search.yaml": SEARCH,
    "mesh.yaml": MESH,
    "export.yaml": {**STEP, "network_model": "dims"},
    "study.yaml": {
        "schema_version": 1,
        "scenario": STEP,
        "axes": {"workload.parallelism.microbatches": [32, 64]},
    },
}
LONG = {
    "simulate step.yaml": "simulating",
    "simulate traffic.yaml": "simulating",
    "simulate search.yaml --no-cache": "simulating",
    "compare step.yaml --each workload.parallelism.microbatches=32,64": "comparing",
    "sweep study.yaml --workers 2": "sweeping",
    "export export.yaml --chakra out": "writing nodes",
    "fabric show mesh.yaml": "measuring distances",
    "reproduce horovod": "reproducing Horovod",
    "reproduce bytescheduler": "reproducing ByteScheduler",
}
"""What takes minutes, and what it says that it does."""
ESTIMATE = re.compile(r": \d+(\.\d+)? %( \([\d,]+ of [\d,]+\))?, [\d ,dhmins]+ left")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, tree in FILES.items():
        (tmp_path / name).write_text(yaml.safe_dump(tree))
    return tmp_path


def lines(process: subprocess.Popen[bytes], terminal: int) -> Iterator[str]:
    """What is drawn on a terminal, until the process has ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                drawn = os.read(terminal, 1 << 16).decode()
            except OSError:  # nobody holds the other end
                return
            yield from filter(None, re.split(r"\r\x1b\[K|\r?\n", drawn))
        elif process.poll() is not None:
            return


@pytest.mark.parametrize(("words", "doing"), LONG.items())
def test_long_work_says_how_far_it_is_and_how_long_the_rest_takes(words, doing, folder):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "allrail", *shlex.split(words)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "RAYON_NUM_THREADS": "1"},
    )
    os.close(theirs)
    seen = []
    try:
        for line in lines(process, ours):
            seen.append(line)
            if line.startswith(doing) and ESTIMATE.search(line):
                break
        else:
            pytest.fail(f"no estimate: {seen[-9:]}")
        process.send_signal(signal.SIGINT)
        rest = list(lines(process, ours))
        assert process.wait(PATIENCE_S) == 130
        assert rest[-1] == "interrupted"
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_nothing_of_it_is_in_a_pipe(folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "allrail", "simulate", "traffic.yaml"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until_computing(process, 1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("", "interrupted\n")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TestLine:
    def test_short_work_has_none(self):
        clock = Clock()
        progress = Progress("simulating", clock=clock)
        progress(1, 2)
        clock.now = 0.4
        assert progress.line() is None

    def test_work_that_counts_nothing_says_for_how_long_it_goes(self):
        clock = Clock()
        progress = Progress("allrail import", after=1.0, clock=clock)
        clock.now = 75
        assert progress.line() == "allrail import: 1 min 15 s so far"

    def test_an_estimate_comes_with_the_first_step(self):
        clock = Clock()
        progress = Progress("simulating", clock=clock)
        progress(0, 400)
        clock.now = 2
        assert progress.line() == "simulating: 0 % (0 of 400), 2 s so far"
        progress(1, 400)
        assert progress.line() == "simulating: 0.2 % (1 of 400), 13 min 18 s left"

    def test_a_piece_under_way_counts_by_how_far_it_is(self):
        clock = Clock()
        progress = Progress("sweeping", clock=clock)
        progress(0, 2)
        clock.now = 10
        progress(0.5, 2)
        assert progress.line() == "sweeping: 25 % (0 of 2), 30 s left"

    def test_without_counts_the_share_stays(self):
        clock = Clock()
        progress = Progress("simulating", counts=False, clock=clock)
        progress(0, 1 << 40)
        clock.now = 3600
        progress(1 << 30, 1 << 40)
        assert progress.line() == "simulating: 0.09 %, 42 d 15 h left"
