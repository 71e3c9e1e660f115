"""Tensor schedulers in Python that are wrong: one error each, with the plugin's file and line."""

from __future__ import annotations

import json
import threading
import time

import pytest

import allrail
from allrail.simulation import plugins

HEAD = """\
import allrail

@allrail.tensor_scheduler("mine", time_limit="60 s")
def mine(tasks):
"""
HASTY = HEAD.replace("60 s", "300 ms")
"""For what never answers; whatever does may take longer on a machine that is busy."""
CHOOSE = "    def choose(core):\n        {}\n    return choose"

STEP = {
    "schema_version": 1,
    "fabric": {
        "dimensions": [{"kind": "switch", "size": 4, "bandwidth": "10 Gb/s", "latency": "1 us"}]
    },
    "workload": {
        "model": {
            "layers": [
                {
                    "name": f"layer{place}",
                    "flops": 0,
                    "parameters": 250_000,
                    "output": 1,
                    "forward": "1 ms",
                    "backward": "2 ms",
                }
                for place in range(4)
            ]
        },
        "batch_per_replica": 1,
        "precision": "fp32",
        "iterations": 2,
        "compute": {"peak": "1 TFLOP/s", "memory_bandwidth": "1 TB/s"},
    },
    "schedule": {"chunks": 1, "tensor": "mine"},
}
NAMES = [f"layer{place} gradient" for place in range(4)]


def plugin(rest):
    never = any(word in rest for word in ("while True", "sleep("))
    return f"{HASTY if never else HEAD}{rest}\n"


@pytest.fixture(autouse=True)
def _none_is_left(folder):
    (folder / "step.json").write_text(json.dumps(STEP))
    yield
    for name in plugins.registered():
        plugins.forget(name)


# The rest of the function, the line that is named, a part of why, a part of the hint.
ANSWERS = [
    # raises
    ("    return 1 / 0", 5, "it raised ZeroDivisionError: division by zero", ""),
    ("    raise SystemExit(3)", 5, "it raised SystemExit: 3", ""),
    ("    raise KeyboardInterrupt", 5, "it raised KeyboardInterrupt", ""),
    ("    tasks[0].partition('soon')", 5, "ValueError: `soon` is no size", ""),
    ("    tasks[0].partition(0)", 5, "ValueError: a partition of 0 bytes", ""),
    ("    tasks[0].partition(-1)", 5, "ValueError: a partition of -1 bytes", ""),
    (CHOOSE.format("return 1 / 0"), 6, "it raised ZeroDivisionError: division by zero", ""),
    (CHOOSE.format("return core.ready[9]"), 6, "it raised IndexError", ""),
    # loses a part
    ("    return tasks[1:]", 3, f"it lost 1 of 4 tasks: `{NAMES[0]}`", "the most urgent first"),
    ("    return []", 3, f"it lost 4 of 4 tasks: `{NAMES[0]}`, `{NAMES[1]}`", "urgent first"),
    ("    return tasks[:1] * 4", 3, f"`{NAMES[0]}` stands twice", "the most urgent first"),
    ("    return tasks + tasks", 3, f"`{NAMES[0]}` stands twice", "the most urgent first"),
    (
        "    tasks[1].partition([400_000, 500_000])",
        5,
        f"ValueError: partitions of `{NAMES[1]}` hold 900000 of its 1000000 bytes",
        "",
    ),
    ("    tasks[1].partition([])", 5, f"partitions of `{NAMES[1]}` hold 0 of", ""),
    (CHOOSE.format("return None"), 3, "it starts nothing, and nothing is in flight", "core.ready"),
    (
        CHOOSE.format("return None if core.ready[0].place == 1 else core.ready[0]"),
        3,
        f"and nothing is in flight: 1 task waits: `{NAMES[1]}`",
        "core.ready",
    ),
    # lies about a task
    ("    tasks[0].bytes = 1", 5, "AttributeError: `bytes` of a task cannot be set", ""),
    ("    tasks[0].priority = 7", 5, "AttributeError: `priority` of a task cannot be set", ""),
    ("    tasks[0]._sizes = ()", 5, "AttributeError: `_sizes` of a task cannot be set", ""),
    (
        CHOOSE.format("core.ready[0].partition('1 MiB')"),
        6,
        "ValueError: `layer3 gradient` is cut already: cut it before the function returns",
        "",
    ),
    # returns rubbish
    ("    pass", 3, "`None` is no list of the tasks", "the most urgent first"),
    ("    return 42", 3, "`42` is no list of the tasks", "the most urgent first"),
    ("    return 'tasks'", 3, "`tasks` is no list of the tasks", "the most urgent first"),
    ("    return {task: 1 for task in tasks}", 3, "is no list of the tasks", "urgent first"),
    ("    return [task.name for task in tasks]", 3, f"`{NAMES[0]}` is none of the tasks", ""),
    ("    return [allrail.CommTask('a', 1, 0)]", 3, "`CommTask('a', 1)` is none of the tasks", ""),
    ("    import itertools; return itertools.count()", 3, "`0` is none of the tasks", ""),
    ("    import itertools; return itertools.cycle(tasks)", 3, "stands twice", ""),
    (CHOOSE.format("return 'layer0'"), 3, "`layer0` is none of `core.ready`", "core.ready"),
    (CHOOSE.format("return core.ready"), 3, "is none of `core.ready`", "core.ready"),
    (CHOOSE.format("return tasks[0]"), 3, f"no partition of `{NAMES[0]}` waits", "core.ready"),
    (CHOOSE.format("return allrail.CommTask('a', 1, 0)"), 3, "is none of `core.ready`", ""),
    # loops
    ("    while True: pass", 3, "it has not answered for 0.3 s", 'time_limit="3 s"'),
    ("    while True: tasks = sorted(tasks, key=id)", 3, "it has not answered for 0.3 s", ""),
    ("    import time; time.sleep(30)", 3, "it has not answered for 0.3 s", ""),
    (CHOOSE.format("while True: pass"), 3, "it has not answered for 0.3 s", "tensor_scheduler"),
]


class TestAnswers:
    """What a function may return, and what happens if it does not."""

    @pytest.mark.parametrize(("rest", "line", "why", "hint"), ANSWERS)
    def test_one_error_with_file_and_line(self, rest, line, why, hint, folder, allrail_cli):
        (folder / "mine.py").write_text(plugin(rest))
        started = time.monotonic()
        outcome = allrail_cli("simulate", "step.json", "--plugin", "mine.py")
        assert time.monotonic() - started < 20
        assert outcome.status == 2
        assert outcome.stdout == ""
        head = f"error: mine.py:{line}: `schedule.tensor.policy` is `mine`: it "
        assert outcome.stderr.startswith(head)
        assert why in outcome.stderr
        assert hint in outcome.stderr.partition("hint: ")[2]
        assert "Traceback" not in outcome.stderr

    @pytest.mark.parametrize("rest", ["    return tasks[1:]", CHOOSE.format("return None")])
    @pytest.mark.parametrize(
        "sets",
        [
            {"network_model": "links"},
            {"schedule.tensor": {"policy": "mine", "exchange": "parameter_server"}},
        ],
    )
    def test_in_other_models(self, rest, sets, folder):
        (folder / "mine.py").write_text(plugin(rest))
        allrail.load_plugin("mine.py")
        with pytest.raises(allrail.InputError) as caught:
            allrail.simulate("step.json", sets=sets)
        assert (caught.value.source, caught.value.line) == ("mine.py", 3)
        # What went wrong once is over: the same process goes on.
        assert allrail.simulate("step.json", sets={"schedule.tensor": "fifo"})

    @pytest.mark.parametrize("rest", ["    return 1 / 0", CHOOSE.format("return None")])
    def test_in_a_comparison(self, rest, folder, allrail_cli):
        (folder / "mine.py").write_text(plugin(rest))
        given = ("compare", "step.json", "--plugin", "mine.py", "--tensor", "fifo,mine,tac")
        outcome = allrail_cli(*given)
        assert outcome.status == 2
        assert "(mine.py):" in outcome.stderr
        assert "`schedule.tensor.policy` is `mine`: it " in outcome.stderr

    def test_a_function_that_is_stopped_ends(self, folder):
        (folder / "mine.py").write_text(plugin(CHOOSE.format("while True: pass")))
        allrail.load_plugin("mine.py")
        before = set(threading.enumerate())
        with pytest.raises(allrail.InputError, match="it has not answered"):
            allrail.simulate("step.json")
        until = time.monotonic() + 60
        while not set(threading.enumerate()) <= before and time.monotonic() < until:
            time.sleep(0.01)
        assert set(threading.enumerate()) <= before

    def test_one_that_cuts_otherwise_for_each_worker(self, folder):
        (folder / "mine.py").write_text(
            plugin(
                "    turns.append(1)\n    tasks[0].partition(10_000 + len(turns))\n    return tasks"
            )
            + "\nturns = []\n"
        )
        allrail.load_plugin("mine.py")
        sets = {"schedule.tensor": {"policy": "mine", "exchange": "parameter_server"}}
        with pytest.raises(allrail.InputError, match="otherwise for another worker"):
            allrail.simulate("step.json", sets=sets)


# The file, the line that is named, a part of why, a part of the hint.
FILES = [
    (HEAD.replace('"mine"', '"fifo"'), 3, "`name` is `fifo`: allrail has a tensor", "another name"),
    (HEAD.replace('"mine"', '"a,b"'), 3, "`name` is `a,b`: it is not a name", "letters"),
    (HEAD.replace("60 s", "0 s"), 3, "`time_limit` is `0 s`: it is zero", "10 s"),
    (HEAD.replace("time_limit=", 'credit="much", time_limit='), 3, "`credit` is `much`", "MiB"),
    (HEAD.replace("time_limit=", 'credit="0 B", time_limit='), 3, "`credit` is `0 B`", "4 MiB"),
    (HEAD.replace("time_limit=", "partition=4, time_limit="), 3, "`partition` is `4`", "4 MiB"),
    (HEAD.replace("time_limit=", "barrier=1, time_limit="), 3, "`barrier` is `1`", "True"),
    (
        'import allrail\nallrail.tensor_scheduler("mine")(3)\n',
        2,
        "`3`: it is not a function",
        "def",
    ),
]


class TestFiles:
    """What `--plugin` names."""

    @pytest.mark.parametrize(("text", "line", "why", "hint"), FILES)
    def test_one_error_with_file_and_line(self, text, line, why, hint, folder, allrail_cli):
        (folder / "mine.py").write_text(f"{text}    return tasks\n" if text[-2] == ":" else text)
        outcome = allrail_cli("simulate", "step.json", "--plugin", "mine.py")
        assert outcome.status == 2
        assert outcome.stderr.startswith(f"error: mine.py:{line}: ")
        assert why in outcome.stderr
        assert hint in outcome.stderr.partition("hint: ")[2]
        assert plugins.registered() == []

    def test_one_name_may_be_of_both_kinds(self, folder):
        both = (
            f"{HEAD}    return tasks\n\n"
            '@allrail.chunk_scheduler("mine")\ndef chunks(problem):\n'
            "    return [problem.visit(problem.dimensions) for _ in problem.chunks]\n"
        )
        (folder / "mine.py").write_text(both)
        assert allrail.load_plugin("mine.py") == ["mine", "mine"]
        sets = {"schedule.policy": "mine"}
        assert allrail.simulate("step.json", sets=sets).policy == "mine"
