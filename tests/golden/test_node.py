"""The binding of the runtime: two ranks in one process, mistakes, and a parent that dies."""

from __future__ import annotations

import array
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from allrail._core import InputError, Memory, Node, RuntimeFault

DIMENSION = {"size": 2, "bandwidth": "10 Gb/s", "latency": "20 us"}
FORKING = """
import json, os, sys, time
from allrail._core import Node
node = Node(sys.argv[1])
os.register_at_fork(after_in_child=node.abandon)
print(json.dumps(node.addresses()), flush=True)
node.connect(json.loads(input()))
node.start()
if os.fork() == 0:
    # Until the test has seen enough.
    while os.read(0, 1):
        pass
    os._exit(0)
print("forked", flush=True)
time.sleep(120)
"""


def settings(rank: int) -> str:
    return json.dumps({"rank": rank, "ranks": 2, "dimensions": [DIMENSION]})


def pair() -> list[Node]:
    nodes = [Node(settings(rank)) for rank in range(2)]
    table = [node.addresses() for node in nodes]
    threads = [threading.Thread(target=node.connect, args=(table,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return nodes


def test_two_ranks_sum_gather_and_say_what_is_done() -> None:
    nodes = pair()
    buffers = [array.array("f", [rank + 1.0] * 1000) for rank in range(2)]
    keys = [node.register("weight", "float32", [10, 100], [100, 1], 0) for node in nodes]
    for node in nodes:
        node.start()
    for node, key, buffer in zip(nodes, keys, buffers, strict=True):
        assert node.submit(key, Memory.of_buffer(buffer)) == 0
    for node, key, buffer in zip(nodes, keys, buffers, strict=True):
        assert node.wait(key, 0, 30.0)
        assert node.is_done(key, 0)
        assert set(buffer) == {3.0}
        assert node.next_completions(1.0) == [(key, 0)]
    buffers[0][0] = 7.0
    tickets = [
        node.call("broadcast", Memory.of_buffer(buffer), "float32", root=0)
        for node, buffer in zip(nodes, buffers, strict=True)
    ]
    for node, ticket in zip(nodes, tickets, strict=True):
        assert node.wait_call(ticket, 30.0)
    assert buffers[1][0] == 7.0
    report = json.loads(nodes[0].report())
    assert report["fault"] is None
    assert report["tensors"] == [{"name": "weight", "bytes": 4000, "submitted": 1, "done": 1}]
    for node in nodes:
        node.close()
        assert node.next_completions(0.0) in ([], [(tickets[0], 0)])


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{}", "settings"),
        (json.dumps({"rank": 0, "ranks": 3, "dimensions": [DIMENSION]}), "ranks"),
        (
            json.dumps({"rank": 0, "ranks": 2, "dimensions": [DIMENSION | {"interface": "no"}]}),
            "dimensions[0].interface",
        ),
        (
            json.dumps({"rank": 0, "ranks": 2, "dimensions": [DIMENSION], "secret": "1"}),
            "secret",
        ),
        (
            json.dumps({"rank": 0, "ranks": 2, "dimensions": [DIMENSION], "policy": "best"}),
            "schedule.policy",
        ),
    ],
)
def test_settings_that_cannot_be_name_the_field(text: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        Node(text)
    error = json.loads(caught.value.args[0])
    assert error["field"] == field
    assert error["why"]
    assert error["hint"]


def test_a_rank_that_leaves_is_named() -> None:
    nodes = pair()
    buffer = array.array("d", [1.0] * 10)
    keys = [node.register("bias", "float64", [10], [], 0) for node in nodes]
    with pytest.raises(InputError):
        nodes[0].call("all_reduces", Memory.of_buffer(buffer), "float32")
    with pytest.raises(InputError):
        nodes[0].register("other", "complex64", [10], [], 0)
    for node in nodes:
        node.start()
    nodes[1].close()
    generation = nodes[0].submit(keys[0], Memory.of_buffer(buffer))
    with pytest.raises(RuntimeFault) as caught:
        nodes[0].wait(keys[0], generation, 30.0)
    fault = json.loads(caught.value.args[0])
    assert (fault["kind"], fault["rank"], fault["tensor"]) == ("left", 1, "bias")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="the runtime is for Linux")
def test_a_child_of_fork_does_not_hide_the_death_of_its_parent() -> None:
    command = [sys.executable, "-c", FORKING, settings(0)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin
        assert parent.stdout
        node = Node(settings(1))
        table = [json.loads(parent.stdout.readline()), node.addresses()]
        parent.stdin.write(json.dumps(table) + "\n")
        parent.stdin.flush()
        node.connect(table)
        key = node.register("weight", "float32", [10], [], 0)
        node.start()
        assert parent.stdout.readline() == "forked\n"
        buffer = array.array("f", [1.0] * 10)
        node.submit(key, Memory.of_buffer(buffer))
        parent.kill()
        parent.stdout.close()
        with pytest.raises(RuntimeFault) as caught:
            node.wait(key, 0, 10.0)
        fault = json.loads(caught.value.args[0])
        assert (fault["kind"], fault["rank"]) == ("died", 0)
        node.close()
