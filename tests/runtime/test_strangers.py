"""Whole jobs that start among strangers: on the store's port, on those of ranks, on local names.

One process connects to every port and name at which anything begins to listen, as often as it is
told, and comes again when it is hung up on. Both are in a network of their own, where nothing else
listens.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from testbed.namespaces import configure, enter_new

CROWD = r"""
import socket, sys, time
count = int(sys.argv[1])
words = [b"", b"a", b"GET / HTTP/1.1\r\n", b"\xff" * 999, b"arhs\x02", b"\x16\x03\x01\x02\x00"]

def listening():
    with open("/proc/net/tcp") as table:
        rows = [row.split() for row in table][1:]
    ports = {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}
    with open("/proc/net/unix") as table:
        names = {row.split(maxsplit=7)[7].rstrip("\n") for row in table if "@allrail" in row}
    return ports | names

def come(at, place):
    try:
        if isinstance(at, int):
            one = socket.create_connection(("127.0.0.1", at), timeout=0.5)
        else:
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            one.connect("\0" + at[1:])
        one.setblocking(False)
        one.send(words[place % len(words)])
        if place % 7 == 0 and isinstance(at, int):
            one.shutdown(socket.SHUT_WR)
        return one
    except OSError:
        return None

before, crowds, made = listening(), {}, 0
print("here", flush=True)
while True:
    for at in listening() - before:
        crowd = crowds.setdefault(at, [None] * count)
        for place, one in enumerate(crowd):
            try:
                if one is not None:
                    if place % 2:
                        one.send(b"x")
                    if one.recv(4096):
                        print("heard", flush=True)
            except BlockingIOError:
                continue
            except OSError:
                pass
            if one is not None:
                one.close()
            crowd[place] = come(at, place)
            if crowd[place] is None:
                break
            made += 1
            if made % 10 == 0:
                print(made, flush=True)
    time.sleep(0.001)
"""

JOB = """
import time
import numpy as np
import allrail
began = time.monotonic()
communicator = allrail.Communicator()
total = communicator.all_reduce(np.ones(10)).wait()
print(total[0], time.monotonic() - began)
"""
RANKS = 3


@contextlib.contextmanager
def crowd(count):
    """So many strangers at each door; yields a list of what they say, filled at the end."""
    said = []
    with subprocess.Popen(
        [sys.executable, "-c", CROWD, str(count)], stdout=subprocess.PIPE, text=True
    ) as strangers:
        try:
            assert strangers.stdout.readline() == "here\n"
            yield said
        finally:
            strangers.terminate()
            said += strangers.stdout.read().split()


def start(folder, count, **keys):
    """Seconds that ranks take from their first call to their first result; how many strangers."""
    (folder / "allrail.yaml").write_text(json.dumps({"schema_version": 1, **keys}))
    command = [sys.executable, "-m", "allrail", "launch", "-n", str(RANKS)]
    with crowd(count) as said:
        done = subprocess.run(
            [*command, sys.executable, "-c", JOB],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(line[1] for line in lines) == ["3.0"] * RANKS
    return max(float(line[2]) for line in lines), said


def apart(body):
    """What `body` returns, in a network namespace of its own that has a loopback interface."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            enter_new()
            configure("ip", ["link set lo up"])
            answer = {"said": body()}
        except (OSError, RuntimeError) as error:
            answer = {"skip": str(error)}
        except BaseException:  # noqa: BLE001 - the test says it
            answer = {"wrong": traceback.format_exc()}
        os.write(writes, json.dumps(answer).encode())
        os._exit(0)
    os.close(writes)
    with open(reads) as pipe:  # noqa: PTH123 - it has no name
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    if "skip" in answer:
        pytest.skip(f"no network of its own: {answer['skip']}")
    assert "wrong" not in answer, answer["wrong"]
    return answer["said"]


@pytest.mark.long
@pytest.mark.parametrize("keys", [{}, {"tls": True, "shared_memory": False}], ids=["plain", "tls"])
def test_a_job_starts_among_strangers_as_it_does_alone(keys, tmp_path):
    counts = (0, 70, 1000)
    alone, *others = apart(lambda: [start(tmp_path, count, **keys) for count in counts])
    for among, said in others:
        assert int(said[-1]) >= 50, "the strangers came"
        # A stranger may stay for 5 s, so waiting for any of them takes longer. What is left is the
        # processor that they take from the ranks.
        assert among < alone[0] + 4
