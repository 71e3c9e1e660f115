"""Arguments of the wrong kind: every public function answers with an `InputError`, never else.

Rubbish is given to every parameter of every function in `allrail.__all__`, the others being right.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allrail
from allrail.base.arguments import KINDS
from allrail.cli.function import found
from functions import COMMANDS

STEP = {
    "schema_version": 1,
    "fabric": {
        "name": "two",
        "dimensions": [
            {"kind": "switch", "size": 2, "bandwidth": "100 Gb/s", "latency": "1 us"},
        ],
    },
    "workload": {
        "model": {"layers": [{"name": "a", "dense": {"inputs": 64, "outputs": 64}}]},
        "batch_per_replica": 8,
        "compute": {"device": "a100"},
    },
}
COLLECTIVE = {
    "schema_version": 1,
    "fabric": STEP["fabric"],
    "collective": {"kind": "all_reduce", "size": "1 MB"},
}


class Evil:
    """An object that answers nothing."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


RUBBISH: list[Callable[[], Any]] = [
    *(lambda value=value: value for value in (3, -1, None, True, 3.5, math.nan, math.inf, 10**400)),
    *(lambda value=value: value for value in ("", "x", "\0", "a" * 5000, "\ud800", b"x")),
    *(lambda value=value: value for value in ([], {}, (), [3], [None], [[]], {"a": 3}, {3: 4})),
    *(lambda value=value: value for value in ({"seed": 3}, {"seed": [math.nan]}, {"": [1]})),
    *(lambda value=value: value for value in ({"schema_version": 1}, [("a", "b")])),
    *(lambda value=value: value for value in (Path("nope"), Path("a\0b"))),
    *(object, Evil, lambda: [Evil()], lambda: {"schema_version": Evil()}, lambda: iter([1])),
]
FUNCTIONS = [
    name
    for name in allrail.__all__
    if callable(getattr(allrail, name)) and not inspect.isclass(getattr(allrail, name))
]
FUNCTIONS += [
    command.callback.function
    for command in COMMANDS.values()
    if "." in getattr(command.callback, "function", "")
]
SLOW = {"tune", "sweep"}


def good(name: str) -> dict[str, Any]:
    """Arguments that are right."""
    base = STEP if name in ("simulate", "compare", "what_if", "tune") else COLLECTIVE
    given = {
        "scenario": base,
        "scenarios": [STEP, COLLECTIVE],
        "study": {"schema_version": 1, "scenario": COLLECTIVE, "axes": {"seed": [1]}},
        "each": {"seed": [1]},
        "out": "out",
        "fabric": "tutorial-8x8x8",
        "path": "plugin.py",
        "name": "tutorial-8x8x8",
        "fabrics": ["hx2mesh-1k"],
        "files": "trace.json",
        "chakra": "out",
        "command": ["true"],
        "ranks": 1,
        "throughput": "0.5x-ideal",
        "run": "rec",
        "trace": "rec",
        "seconds": 1,  # a minute if nothing is said
    }
    parameters = inspect.signature(found(name)).parameters.values()
    needed = {one.name for one in parameters if one.default is inspect.Parameter.empty}
    if name == "calibrate.device":
        needed.add("seconds")
    return {key: value for key, value in given.items() if key in needed}


def test_the_table_has_every_function():
    assert {"simulate", "sweep", "load_fabric", "what_if"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rubbish_is_an_input_error(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = found(name)
    for parameter in inspect.signature(function).parameters:
        if parameter == "ray":  # a cluster is waited for
            continue
        for make in RUBBISH:
            value = make()
            if (
                name in SLOW
                and parameter in ("scenario", "sets", "study")
                and value in ([], {}, ())
            ):
                continue  # they are right, and take long
            if name == "calibrate.device" and (value is None or value in (3, 3.5)):
                continue  # likewise: so many seconds
            try:
                function(**{**good(name), parameter: value})
            except (allrail.AllrailError, allrail.AllrailWarning) as error:
                str(error).encode()
            except (KeyboardInterrupt, TimeoutError):
                raise


EXAMPLES = [
    (lambda: allrail.simulate(3), "`scenario` is `3`: it is of type int, and must be a path,"),
    (lambda: allrail.simulate(COLLECTIVE, sets=3), "`sets` is `3`: it is of type int"),
    (lambda: allrail.simulate(COLLECTIVE, sets=[3]), "`sets` is `[3]`: it is of type list"),
    (lambda: allrail.compare(COLLECTIVE, each="policy"), "`each` is `policy`: it is of type str"),
    (lambda: allrail.compare(COLLECTIVE, each={"seed": 1}), '`each` is `{"seed": 1}`'),
    (
        lambda: allrail.compare(COLLECTIVE, each={"seed": "12"}),
        "must be a mapping of paths to lists",
    ),
    (lambda: allrail.simulate(COLLECTIVE, plan=3), "`plan` is `3`"),
    (lambda: allrail.simulate(COLLECTIVE, timeline=-1), "`timeline` is `-1`"),
    (lambda: allrail.simulate(COLLECTIVE, progress=3), "`progress` is `3`"),
    (lambda: allrail.simulate_many(COLLECTIVE), "`scenarios` is "),
    (lambda: allrail.simulate_many([3]), "scenario 0"),
    (lambda: allrail.simulate_many([COLLECTIVE], threads=1.5), "`threads` is `1.5`"),
    (lambda: allrail.load_fabric(3), "`fabric` is `3`"),
    (lambda: allrail.load_plugin(None), "`path` is `null`"),
    (lambda: allrail.sweep([1], "out"), "`study` is `[1]`"),
    (lambda: allrail.sweep("study.yaml", 3), "`out` is `3`"),
    (lambda: allrail.tune(STEP, trials="12"), "`trials` is `12`: it is of type str"),
    (lambda: allrail.tune(STEP, seed=None), "`seed` is `null`"),
    (lambda: allrail.what_if(STEP, result=3), "`result` is `3`"),
    (lambda: allrail.fabric.advise(3), "`fabric` is `3`"),
    (lambda: allrail.chunk_scheduler(3), "`name` is `3`"),
    (lambda: allrail.Communicator(job=3), "`job` is `3`"),
    (lambda: allrail.Communicator(timeout="x"), "`timeout` is `x`"),
    (lambda: allrail.Communicator(timeout=math.nan), "`timeout` is `NaN`"),
]


@pytest.mark.parametrize(("call", "told"), EXAMPLES, ids=[told for _, told in EXAMPLES])
def test_an_example_says_what_to_write(call, told):
    with pytest.raises(allrail.InputError) as raised:
        call()
    assert told in str(raised.value)
    assert raised.value.hint.startswith("for example `")


def test_right_arguments_are_taken_in_every_form(tmp_path):
    for scenario in (COLLECTIVE, allrail.load_scenario(COLLECTIVE)):
        for sets in ((), {}, {"seed": 1}, ["seed=1"], iter(["seed=1"]), {"seed=1"}):
            assert allrail.simulate(scenario, sets=sets).time_us > 0
    assert allrail.load_fabric(Path("tutorial-8x8x8")).name
    plan = allrail.plan(COLLECTIVE)
    plan.save(tmp_path / "plan.json")
    for given in (plan, str(tmp_path / "plan.json"), tmp_path / "plan.json"):
        assert allrail.simulate(COLLECTIVE, plan=given).time_us > 0


def test_every_kind_takes_its_own_example():
    for name, kind in KINDS.items():
        if kind.example not in ("print", "None"):
            assert kind.is_it(eval(kind.example)), name
