"""Tensor schedulers in Python: known by name wherever the others are, and to the same ends."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import allrail
from allrail import CommTask
from allrail.simulation import plugins

LAYERS = ((1, 250_000), (2, 5_000_000), (3, 750_000), (1, 2_250_000))
"""ms of a forward pass, and parameters of four bytes."""

TWIN = '''\
import allrail

@allrail.tensor_scheduler("twin")
def twin(tasks):
    """What ByteScheduler does."""
    return sorted(tasks, key=lambda task: task.place)
'''
CORE = '''\
import allrail

@allrail.tensor_scheduler("core")
def core(tasks):
    """What ByteScheduler does, as it goes."""
    def choose(core):
        task = core.ready[0]
        size = task.partitions[len(task.partitions) - task.waiting]
        fits = not core.in_flight or core.in_flight + size <= core.credit
        return task if fits else None
    return choose
'''


def scenario(policy, **more):
    layers = [
        {
            "name": f"layer{place}",
            "flops": 0,
            "parameters": parameters,
            "output": 1,
            "forward": f"{ms} ms",
            "backward": f"{2 * ms} ms",
        }
        for place, (ms, parameters) in enumerate(LAYERS)
    ]
    given = {"policy": policy, "partition": "2 MB", "credit": "4 MB", **more}
    tensor = {key: value for key, value in given.items() if value is not None}
    return {
        "schema_version": 1,
        "fabric": {
            "dimensions": [{"kind": "switch", "size": 4, "bandwidth": "10 Gb/s", "latency": "1 us"}]
        },
        "workload": {
            "model": {"layers": layers},
            "batch_per_replica": 1,
            "precision": "fp32",
            "iterations": 3,
            "compute": {"peak": "1 TFLOP/s", "memory_bandwidth": "1 TB/s"},
        },
        "schedule": {"chunks": 1, "tensor": tensor},
    }


@pytest.fixture(autouse=True)
def _twins(folder):
    """ByteScheduler twice more, as plugins."""
    (folder / "twin.py").write_text(TWIN)
    (folder / "core.py").write_text(CORE)
    assert allrail.load_plugin("twin.py") == ["twin"]
    assert allrail.load_plugin("core.py") == ["core"]
    yield
    for name in plugins.registered():
        plugins.forget(name)


@pytest.mark.parametrize("network_model", ["dims", "links", "flows"])
@pytest.mark.parametrize("policy", ["twin", "core"])
def test_it_takes_the_time_of_its_twin(policy, network_model):
    ours, theirs = (
        allrail.simulate({**scenario(one), "network_model": network_model})
        for one in (policy, "bytescheduler")
    )
    assert ours.tensor_policy == policy
    # Who chooses as it goes has the order of its starts in the network, not priorities.
    assert ours.step_time_us == pytest.approx(theirs.step_time_us, rel=0.1 * (policy == "core"))


@pytest.mark.parametrize("policy", ["twin", "core"])
@pytest.mark.parametrize("colocated", [True, False])
def test_with_servers_each_worker_has_its_own(policy, colocated):
    more = {"exchange": "parameter_server", "servers": {"colocated": colocated}}
    ours, theirs = (
        allrail.simulate(scenario(one, **more)).step_time_us for one in (policy, "bytescheduler")
    )
    assert ours == pytest.approx(theirs, rel=0.1 * (policy == "core"))


def test_what_a_function_is_told():
    seen = []

    @allrail.tensor_scheduler("look")
    def look(tasks):
        seen.extend(tasks)
        return tasks

    allrail.simulate(scenario("look"))
    assert [task.place for task in seen[:4]] == [0, 1, 2, 3]
    assert [task.bytes for task in seen[:4]] == [4 * count for _, count in LAYERS]
    assert [task.needed_us for task in seen[:4]] == [0, 1000, 3000, 6000]
    # The backward pass begins at 7 ms, with the last layer.
    assert [task.ready_us for task in seen[:4]] == [21_000, 19_000, 15_000, 9000]
    # 2 × 3/4 of 1 MB at 1.25 GB/s, and 1 µs.
    assert seen[0].time_us == pytest.approx(1201)
    assert [task.priority for task in seen[:4]] == [0, 1, 2, 3]
    assert seen[1].partitions == (2_000_000,) * 10


def test_a_task_without_a_simulation():
    task = CommTask("fc", 10, 0)
    task.partition(4)
    assert task.partitions == (4, 4, 2)
    task.partition(["4 B", 6])
    assert task.partitions == (4, 6)
    for wrong, why in (
        ([4, 5], "hold 9 of its 10 bytes"),
        (0, "one byte at least"),
        ("soon", "is no size"),
        (1.5, "is no size"),
        (True, "is no size"),
    ):
        with pytest.raises((TypeError, ValueError), match=why):
            task.partition(wrong)
    with pytest.raises(ValueError, match="more than 1,048,576 partitions"):
        CommTask("fc", 2**40, 0).partition(1)
    # A scheduler may try things on copies.
    twin = copy.deepcopy(task)
    twin.partition(5)
    assert (twin.name, twin.partitions) == ("fc", (5, 5))


def test_partitions_of_several_sizes_lose_nothing():
    @allrail.tensor_scheduler("uneven")
    def uneven(tasks):
        for task in tasks:
            first = task.bytes // 3
            task.partition([first, task.bytes - first])
        return tasks

    result = allrail.simulate(scenario("uneven"))
    plain = allrail.simulate(scenario("fifo", partition=None, credit=None))
    assert result.dimensions[0].bytes_per_npu == plain.dimensions[0].bytes_per_npu
    servers = {"exchange": "parameter_server"}
    assert allrail.simulate(scenario("uneven", **servers)).step_time_us > 0


def test_the_order_matters():
    @allrail.tensor_scheduler("last_first", credit="1 B")
    def last_first(tasks):
        return tasks[::-1]

    @allrail.tensor_scheduler("first_first", credit="1 B")
    def first_first(tasks):
        return tasks

    ours, theirs = (
        allrail.simulate(scenario(name, credit=None)).step_time_us
        for name in ("last_first", "first_first")
    )
    assert ours > theirs * 1.05


def test_a_scenario_s_sizes_come_first():
    sizes = []

    @allrail.tensor_scheduler("sized", partition="3 MB", credit="5 MB", barrier=True)
    def sized(tasks):
        def choose(core):
            sizes.append((max(max(task.partitions) for task in tasks), core.credit))
            return core.ready[0]

        return choose

    allrail.simulate(scenario("sized", partition=None, credit=None))
    assert set(sizes) == {(3_000_000, 5_000_000)}
    sizes.clear()
    allrail.simulate(scenario("sized"))
    assert set(sizes) == {(2_000_000, 4_000_000)}


class TestCommands:
    """On the command line, by `--plugin`."""

    def write(self, policy="twin"):
        plugins.forget("twin")
        Path("step.json").write_text(json.dumps(scenario(policy)))

    def test_simulate(self, folder, allrail_cli):
        self.write()
        outcome = allrail_cli("simulate", "step.json", "--plugin", "twin.py")
        assert outcome.status == 0, outcome.stderr
        assert "tensors twin" in outcome.stdout

    def test_compare_has_it_beside_the_others(self, folder, allrail_cli):
        self.write("fifo")
        plugins.forget("core")
        step = {**scenario("x"), "schedule": {"chunks": 1, "tensor": "fifo"}}
        Path("step.json").write_text(json.dumps(step))
        outcome = allrail_cli("compare", "step.json", "--json", "--plugin", "twin.py")
        assert outcome.status == 0, outcome.stderr
        rows = json.loads(outcome.stdout)["rows"]
        assert [row["label"] for row in rows] == ["fifo", "bytescheduler", "twin"]

    def test_tune_turns_its_knobs(self, folder, allrail_cli):
        self.write()
        outcome = allrail_cli("tune", "step.json", "--plugin", "twin.py", "--trials", "2", "--json")
        assert outcome.status == 0, outcome.stderr
        assert "schedule.tensor.partition" in outcome.stdout
        assert "schedule.tensor.credit" in outcome.stdout

    def test_workers_of_a_sweep_have_it(self, folder, allrail_cli):
        self.write()
        study = {
            "schema_version": 1,
            "scenario": "step.json",
            "axes": {"schedule.tensor.policy": ["twin", "bytescheduler"]},
        }
        (folder / "study.json").write_text(json.dumps(study))
        given = ("study.json", "--plugin", "twin.py", "--workers", "2", "--out", "out")
        outcome = allrail_cli("sweep", *given)
        assert outcome.status == 0, outcome.stderr
        table = (folder / "out" / "sweep.csv").read_text().splitlines()
        times = {row.split(",")[table[0].split(",").index("step_time_us")] for row in table[1:]}
        assert len(table) == 3
        assert len(times) == 1

    def test_an_unknown_name_is_told_how_to_add_one(self, folder, allrail_cli):
        self.write("twim")
        outcome = allrail_cli("simulate", "step.json")
        assert outcome.status == 2
        assert "there is no such policy" in outcome.stderr
        assert "`--plugin FILE`" in outcome.stderr


LOOPS = {
    "at once": "    print('begun', flush=True)\n    while True: pass\n",
    "as it goes": (
        "    def choose(core):\n"
        "        print('begun', flush=True)\n"
        "        while True:\n"
        "            try: sum(range(1000))\n"
        "            except Exception: pass\n"
        "    return choose\n"
    ),
}


@pytest.mark.parametrize("verb", ["simulate", "compare"])
@pytest.mark.parametrize("loop", list(LOOPS))
def test_ctrl_c_ends_it(verb, loop, folder):
    head = '@allrail.tensor_scheduler("loop", time_limit="600 s")\ndef loop(tasks):\n'
    (folder / "loop.py").write_text(f"import allrail\n\n{head}{LOOPS[loop]}")
    (folder / "step.json").write_text(json.dumps(scenario("loop")))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "allrail", verb, "step.json", "--plugin", "loop.py"),
            *(("--tensor", "loop,fifo") if verb == "compare" else ()),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=200)
    assert process.returncode == 130, told
    assert told.endswith(b"interrupted\n")
    assert b"Traceback" not in told
    # Without load it takes half a second, most of it the end of the interpreter.
    assert time.monotonic() - started < 60
