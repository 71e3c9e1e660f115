"""Chunk schedulers in Python that are wrong: one error each, with the plugin's file and line."""

from __future__ import annotations

import threading
import time

import pytest

import allrail
from allrail.simulation import plugins

HEAD = """\
import allrail

@allrail.chunk_scheduler("mine", time_limit="60 s")
def mine(problem):
    good = [problem.visit(problem.dimensions) for _ in problem.chunks]
"""
HASTY = HEAD.replace("60 s", "300 ms")
"""For what never answers; whatever does may take longer on a machine that is busy."""


def plugin(rest):
    never = any(word in rest for word in ("while True", "sleep("))
    return f"{HASTY if never else HEAD}{rest}\n"


# The rest of the function, the line that is named, a part of why, a part of the hint.
ANSWERS = [
    # raises
    ("    return 1 / 0", 6, "it raised ZeroDivisionError: division by zero", ""),
    ("    return good[problem.chunks[0]]", 6, "it raised IndexError", ""),
    ("    raise SystemExit(3)", 6, "it raised SystemExit: 3", ""),
    ("    raise KeyboardInterrupt", 6, "it raised KeyboardInterrupt", ""),
    (
        "    return problem.visit([9]) and problem.times(8, problem.visit([9]))",
        6,
        "it raised ValueError: the collective spans no dimension 9: 0, 1, 2",
        "",
    ),
    ('    return problem.times(8, [("sort", 0)])', 6, "no stage of `all_reduce`", ""),
    # returns rubbish
    ("    return None", 3, "`None` is no list with the stages of each chunk", "problem.visit"),
    ("    return 42", 3, "`42` is no list", "problem.visit"),
    ("    return 'RS1'", 3, "`RS1` is no list", "problem.visit"),
    ("    return [7 for _ in good]", 3, "chunk 0: `7` is no list of stages", "problem.visit"),
    ("    return [[0, 1, 2] for _ in good]", 3, "chunk 0: `0` is no pair", "problem.visit"),
    ("    return [[('all_gather', 'x')]]", 3, "chunk 0: `('all_gather', 'x')` is no pair", "visit"),
    ("    return [[('all_gather', True)]]", 3, "is no pair", "problem.visit"),
    ("    return [[('all_gather', -1)]]", 3, "is no pair", "problem.visit"),
    ("    return [[(1, 1)]]", 3, "is no pair", "problem.visit"),
    ("    return [[('sort', 0)] for _ in good]", 3, "chunk 0: `sort` is no stage of", "visit"),
    ("    return [[('all_reduce', 0)] for _ in good]", 3, "`all_reduce` is no stage of", "visit"),
    ("    return [problem.visit([0, 1, 9])] * 4", 3, "chunk 0: the collective spans no", "visit"),
    # loses a stage, or has one too many
    ("    return good[1:]", 3, "there are 4 chunks and stages for 3", ""),
    ("    return good + good", 3, "there are 4 chunks and stages for 5", ""),
    ("    return []", 3, "there are 4 chunks and stages for 0", ""),
    ("    return [*good[1:], good[0][:-1]]", 3, "chunk 3 has no all_gather on dim1", "visit"),
    ("    return [*good[1:], good[0][1:]]", 3, "chunk 3", ""),
    ("    return [[]] * 4", 3, "chunk 0 has no reduce_scatter on dim1", ""),
    ("    return [stages + stages for stages in good]", 3, "after an all-gather has begun", ""),
    ("    return [stages[::-1] for stages in good]", 3, "no reduce-scatter before it", ""),
    # loops
    ("    while True: pass", 3, "it has not answered for 0.3 s", 'time_limit="3 s"'),
    (
        "    while True:\n        try: [i for i in range(10**5)]\n        except Exception: pass",
        3,
        "it has not answered for 0.3 s",
        "",
    ),
    ("    import time; time.sleep(30)", 3, "it has not answered for 0.3 s", ""),
    ("    import itertools; return itertools.count()", 3, "chunk 0: `0` is no list", ""),
    ("    import itertools; return [itertools.repeat(good[0][0])] * 4", 3, "twice", ""),
]

STEP = """\
schema_version: 1
fabric: 3D-SW_SW_SW_hetero
workload:
  model: resnet152
  batch_per_replica: 32
  parallelism: {dp: 1024}
  compute: {device: a100}
schedule: {chunks: 4, policy: mine, tensor: bytescheduler}
"""


@pytest.fixture(autouse=True)
def _none_is_left():
    yield
    for name in plugins.registered():
        plugins.forget(name)


class TestAnswers:
    """What a function may return, and what happens if it does not."""

    @pytest.mark.parametrize(("rest", "line", "why", "hint"), ANSWERS)
    def test_one_error_with_file_and_line(self, rest, line, why, hint, folder, allrail_cli):
        (folder / "mine.py").write_text(plugin(rest))
        four = ("--set", "schedule.chunks=4", "--set", "schedule.policy=mine")
        started = time.monotonic()
        outcome = allrail_cli("simulate", "scenario.yaml", *four, "--plugin", "mine.py")
        assert time.monotonic() - started < 20
        assert outcome.status == 2
        assert outcome.stdout == ""
        assert outcome.stderr.startswith(f"error: mine.py:{line}: `schedule.policy` is `mine`: it ")
        assert why in outcome.stderr
        assert hint in outcome.stderr.partition("hint: ")[2]
        assert "Traceback" not in outcome.stderr

    @pytest.mark.parametrize("rest", ["    return 1 / 0", "    while True: pass"])
    def test_in_a_plan(self, rest, folder, allrail_cli):
        (folder / "mine.py").write_text(plugin(rest))
        outcome = allrail_cli(
            *("plan", "scenario.yaml", "--set", "schedule.policy=mine", "--plugin", "mine.py")
        )
        assert outcome.status == 2
        assert outcome.stderr.startswith("error: mine.py:")

    @pytest.mark.parametrize("rest", ["    return 1 / 0", "    while True: pass"])
    def test_in_a_comparison_it_is_a_row_and_the_others_run(self, rest, folder, allrail_cli):
        (folder / "mine.py").write_text(plugin(rest))
        outcome = allrail_cli(
            *("compare", "scenario.yaml", "--set", "schedule.policy=mine", "--plugin", "mine.py")
        )
        assert outcome.status == 1
        rows = {line.split()[0]: line for line in outcome.stdout.splitlines()}
        assert "error_1" in rows["mine"]
        assert "error_1" not in rows["baseline"]
        assert "# error_1: mine.py:" in outcome.stdout

    @pytest.mark.parametrize("rest", ["    return 1 / 0", "    return good[1:]"])
    @pytest.mark.parametrize("network_model", ["dims", "links"])
    def test_in_a_training_step(self, rest, network_model, folder, allrail_cli):
        (folder / "mine.py").write_text(plugin(rest))
        (folder / "step.yaml").write_text(STEP)
        given = ("step.yaml", "--plugin", "mine.py", "--set", f"network_model={network_model}")
        if network_model == "links":
            given += (
                "--set",
                "fabric.dimensions[0].size=2",
                "--set",
                "fabric.dimensions[1].size=2",
            )
            given += ("--set", "fabric.dimensions[2].size=2", "--set", "workload.parallelism.dp=8")
        for verb in ("simulate", "compare"):
            outcome = allrail_cli(verb, *given)
            assert outcome.status == 2
            assert "mine.py" in outcome.stderr
            assert "`schedule.policy` is `mine`: it " in outcome.stderr

    def test_of_a_part_that_comes_late_in_a_step(self, folder):
        """8192 B is left of a gradient in parts of 4 MiB: nothing was planned for it before."""
        (folder / "mine.py").write_text(
            HEAD + "    if sum(problem.chunks) == 8192: return 1 / 0\n    return good\n"
        )
        (folder / "step.yaml").write_text(STEP)
        allrail.load_plugin("mine.py")
        with pytest.raises(allrail.InputError, match="division by zero") as caught:
            allrail.simulate("step.yaml")
        assert (caught.value.source, caught.value.line) == ("mine.py", 6)

    def test_of_several_scenarios_the_first_is_named(self, folder):
        (folder / "mine.py").write_text(
            HEAD + "    if len(good) > 4: raise ValueError(len(good))\n    return good\n"
        )
        allrail.load_plugin("mine.py")
        each = [
            allrail.load_scenario(
                "scenario.yaml", sets={"schedule.policy": "mine", "schedule.chunks": chunks}
            )
            for chunks in (2, 4, 5, 3, 6)
        ]
        with pytest.raises(allrail.InputError, match="ValueError: 5") as caught:
            allrail.simulate_many(each)
        assert caught.value.index == 2
        assert [one.chunks for one in allrail.simulate_many(each[:2])] == [2, 4]

    def test_a_function_that_is_stopped_ends(self, folder):
        (folder / "mine.py").write_text(plugin("    while True: pass"))
        allrail.load_plugin("mine.py")
        before = set(threading.enumerate())
        with pytest.raises(allrail.InputError, match="it has not answered"):
            allrail.plan("scenario.yaml", sets={"schedule.policy": "mine"})
        until = time.monotonic() + 60
        while not set(threading.enumerate()) <= before and time.monotonic() < until:
            time.sleep(0.01)
        assert set(threading.enumerate()) <= before


# The file, the line that is named, a part of why, a part of the hint.
FILES = [
    ("", None, "it registers no scheduler", "@allrail.chunk_scheduler"),
    ("import allrail\n1 / 0\n", 2, "it raised ZeroDivisionError: division by zero", ""),
    ("def f(:\n", 1, "it is not Python: invalid syntax", ""),
    ("import sys\nsys.exit(1)\n", 2, "it raised SystemExit: 1", ""),
    ("import no_such_module\n", 1, "ModuleNotFoundError", ""),
    (HEAD.replace('"mine"', '"themis"'), 3, "`name` is `themis`: allrail has a", "another name"),
    (HEAD.replace('"mine"', '"a,b"'), 3, "`name` is `a,b`: it is not a name", "letters"),
    (HEAD.replace('"mine"', "7"), 3, "`name` is `7`: it is of type int", "least_loaded"),
    (HEAD.replace("60 s", "0 s"), 3, "`time_limit` is `0 s`: it is zero", "10 s"),
    (HEAD.replace("60 s", "soon"), 3, "`time_limit` is `soon`", ""),
    (HEAD.replace('"60 s"', "10"), 3, "`time_limit` is `10`: it is of type int", "10 s"),
    (HEAD.replace("time_limit=", 'order="fast", time_limit='), 3, "`order` is `fast`", "fifo"),
    ('import allrail\nallrail.chunk_scheduler("mine")(3)\n', 2, "`3`: it is not a function", "def"),
]


class TestFiles:
    """What `--plugin` names."""

    @pytest.mark.parametrize(("text", "line", "why", "hint"), FILES)
    def test_one_error_with_file_and_line(self, text, line, why, hint, folder, allrail_cli):
        (folder / "mine.py").write_text(text)
        outcome = allrail_cli("plan", "scenario.yaml", "--plugin", "mine.py")
        assert outcome.status == 2
        place = "mine.py" if line is None else f"mine.py:{line}"
        assert outcome.stderr.startswith(f"error: {place}: ")
        assert why in outcome.stderr
        assert hint in outcome.stderr.partition("hint: ")[2]
        assert plugins.registered() == []

    def test_one_that_is_not_there(self, folder, allrail_cli):
        (folder / "mine.py").write_text(HEAD + "    return good\n")
        outcome = allrail_cli("plan", "scenario.yaml", "--plugin", "mina.py")
        assert outcome.status == 2
        assert outcome.stderr.startswith("error: mina.py: there is no such file\n\nhint: ")
        assert "mine.py" in outcome.stderr

    def test_two_with_one_name(self, folder, allrail_cli):
        for name in ("mine.py", "other.py"):
            (folder / name).write_text(HEAD + "    return good\n")
        both = ("--plugin", "mine.py", "--plugin", "other.py")
        outcome = allrail_cli("plan", "scenario.yaml", *both)
        assert outcome.status == 2
        assert outcome.stderr.startswith("error: other.py:3: `name` is `mine`: `mine.py` has a")

    def test_a_name_that_nobody_registered(self, folder, allrail_cli):
        outcome = allrail_cli("plan", "scenario.yaml", "--set", "schedule.policy=least_loaded")
        assert outcome.status == 2
        assert "`schedule.policy` is `least_loaded`: it is not a policy" in outcome.stderr
        assert "`--plugin FILE`" in outcome.stderr
