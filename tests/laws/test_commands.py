"""Every command is a function of `allrail` with the same options, and its `--json` that answer."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

import allrail
from allrail.cli.function import RENAMED, TERMINAL, found, parameter_of
from functions import COMMANDS, MISSING

PYTHON_ONLY = {
    "progress": "the command line has a line of its own",
    "compare failed": "the command line prints variants that are wrong, and goes on",
}
"""Parameters that no option has, each with why."""


FUNCTIONS = {name: one for name, one in COMMANDS.items() if name not in MISSING}


def options_of(command):
    """The parameters of a command that are the function's, by name."""
    return {
        one.name: one
        for one in command.params
        if one.expose_value and _long(one).lstrip("-") not in TERMINAL
    }


def _long(parameter):
    return next((one for one in parameter.opts if one.startswith("--")), parameter.opts[-1])


def test_every_command_is_a_function():
    lacking = {name for name, one in COMMANDS.items() if not hasattr(one.callback, "function")}
    assert lacking == MISSING


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_has_the_name_of_the_command(name):
    typed = name.replace(" ", ".")
    assert FUNCTIONS[name].callback.function in (typed, f"{typed}_")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_are_named_as_they_are_typed(name):
    """What is typed as `--global-batch` is `global_batch`; words of Python end in `_`."""
    for one in options_of(FUNCTIONS[name]).values():
        if isinstance(one, click.Option):
            assert one.name == parameter_of(_long(one))


AXIS = inspect.Parameter("values", inspect.Parameter.KEYWORD_ONLY, default=())


def parameters_of(name):
    """The parameters of a function by name, those of its `**axes` each, with their defaults."""
    function = found(FUNCTIONS[name].callback.function)
    known = {}
    for key, one in inspect.signature(function).parameters.items():
        if one.kind is inspect.Parameter.VAR_KEYWORD:
            [names] = get_args(get_type_hints(inspect.unwrap(function))[key])
            known |= dict.fromkeys(names.__annotations__, AXIS)
        else:
            known[key] = one
    return known


def is_python_only(name, key):
    return key in PYTHON_ONLY or f"{name} {key}" in PYTHON_ONLY


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_and_defaults_are_those_of_the_command(name):
    options = options_of(FUNCTIONS[name])
    parameters = {
        key: one for key, one in parameters_of(name).items() if not is_python_only(name, key)
    }
    assert parameters.keys() == options.keys()
    for key, one in parameters.items():
        typed = options[key]
        if typed.required:
            assert one.default is inspect.Parameter.empty
            continue
        default = typed.get_default(click.Context(FUNCTIONS[name]))
        if not isinstance(default, (str, int, float)):  # click has a word of its own for nothing
            default = () if typed.multiple or typed.nargs == -1 else None
        assert (one.default, type(one.default)) == (default, type(default))
        keyword = one.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert not keyword or isinstance(typed, click.Option)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_they_take_give_and_raise(name):
    text = inspect.getdoc(found(FUNCTIONS[name].callback.function))
    parameters = parameters_of(name)
    parts = ["Returns:", "Example:", *(["Args:", "Raises:"] if parameters else [])]
    assert [part for part in parts if f"\n{part}\n" not in text] == []
    assert [one for one in parameters if f"\n    {one}: " not in text] == []


def test_exceptions_are_used():
    """No exception stands in a list that nothing needs."""
    typed = {_long(one).lstrip("-") for command in COMMANDS.values() for one in command.params}
    assert typed >= {*TERMINAL, *RENAMED}
    taken = {key for name in FUNCTIONS for key in parameters_of(name)}
    taken |= {f"{name} {key}" for name in FUNCTIONS for key in parameters_of(name)}
    assert taken >= PYTHON_ONLY.keys()


ROOT = Path(__file__).parents[2] / "examples"
COLLECTIVE = str(ROOT / "01-simulate-themis" / "scenario.yaml")
TRAFFIC = str(ROOT / "04-simulate-traffic" / "scenario.yaml")
STEP = str(ROOT / "06-simulate-a-training-step" / "scenario.yaml")
TENSORS = str(ROOT / "07-compare-tensor-schedulers" / "scenario.yaml")
MEASURED = str(ROOT / "18-the-loop-in-a-notebook" / "all_reduce.txt")
TRACE = str(ROOT / "12-import-a-trace" / "rank0.json")
RECORDED = str(ROOT / "13-close-the-loop" / "recorded")
GPT2 = ["--model", "gpt2", "--fabric", "dgx-a100", "--npus", "8"]
GPT2_HERE = {"model": "gpt2", "fabric": "dgx-a100", "npus": 8}
STUDY = """\
schema_version: 1
scenario: {schema_version: 1, fabric: today, collective: {kind: all_reduce, size: 1 MB}}
axes: {schedule.chunks: [1, 2]}
"""

EXAMPLES = {
    "simulate": (
        ["simulate", COLLECTIVE, "--set", "schedule.chunks=8", "--network-model", "links"],
        lambda: allrail.simulate(COLLECTIVE, sets={"schedule.chunks": 8}, network_model="links"),
    ),
    "simulate a step": (
        ["simulate", STEP, "--what-if", "no_straggler,infinite_bandwidth"],
        lambda: allrail.simulate(STEP, what_if=["no_straggler", "infinite_bandwidth"]),
    ),
    "simulate traffic": (["simulate", TRAFFIC], lambda: allrail.simulate(TRAFFIC)),
    "compare": (
        ["compare", COLLECTIVE, "--chunks", "4,8", "--policy", "nccl,themis"],
        lambda: allrail.compare(COLLECTIVE, chunks=[4, 8], policy=["nccl", "themis"]),
    ),
    "compare steps": (
        ["compare", STEP, "--each", "schedule.chunks=4,8", "--policy", "themis"],
        lambda: allrail.compare(STEP, policy=["themis"], each={"schedule.chunks": [4, 8]}),
    ),
    "compare traffic": (
        ["compare", TRAFFIC, "--each", "traffic.size=64 KiB,128 KiB"],
        lambda: allrail.compare(TRAFFIC, each={"traffic.size": ["64 KiB", "128 KiB"]}),
    ),
    "cost": (
        ["cost", "hx2mesh-1k", "fat-tree-1k", "--prices", "hammingmesh"],
        lambda: allrail.cost(["hx2mesh-1k", "fat-tree-1k"], prices="hammingmesh"),
    ),
    "fabric list": (["fabric", "list"], allrail.fabric.list),
    "fabric show": (["fabric", "show", "today"], lambda: allrail.fabric.show("today")),
    "fabric show graph": (
        ["fabric", "show", "hx2mesh-1k"],
        lambda: allrail.fabric.show("hx2mesh-1k"),
    ),
    "fabric advise": (["fabric", "advise", "today"], lambda: allrail.fabric.advise("today")),
    "place": (
        ["place", "--fabric", "hx2mesh-1k", "--count", "3", "--sort", "--failed", "2"],
        lambda: allrail.place("hx2mesh-1k", count=3, sort=True, failed=2),
    ),
    "place queue": (
        ["place", "--fabric", "hx2mesh-1k", "--jobs", "9", "--load", "0.5"],
        lambda: allrail.place("hx2mesh-1k", jobs=9, load=0.5),
    ),
    "tune": (
        ["tune", TENSORS, "--trials", "2", "--seed", "3"],
        lambda: allrail.tune(TENSORS, trials=2, seed=3),
    ),
    "sweep": (
        ["sweep", "study.yaml", "--out", "typed", "--workers", "1"],
        lambda: allrail.sweep("study.yaml", "called", workers=1),
    ),
    "plan": (
        ["plan", COLLECTIVE, "--set", "schedule.chunks=4"],
        lambda: allrail.plan(COLLECTIVE, sets={"schedule.chunks": 4}),
    ),
    "plan layouts": (
        ["plan", *GPT2, "--top", "2", "--schedules", "0", "--fix", "tp=1,pp=1"],
        lambda: allrail.plan(**GPT2_HERE, top=2, schedules=0, fix="tp=1,pp=1"),
    ),
    "require": (
        ["require", STEP, "--throughput", "0.5x-ideal", "--fabrics", "today,dgx2"],
        lambda: allrail.require(STEP, throughput="0.5x-ideal", fabrics=["today", "dgx2"]),
    ),
    "expect": (
        ["expect", "dgx-h100", "--ranks", "16", "--collective", "all_gather"],
        lambda: allrail.expect("dgx-h100", ranks=16, collective="all_gather"),
    ),
    "calibrate network": (
        ["calibrate", "network", MEASURED, "--ranks", "8"],
        lambda: allrail.calibrate.network(MEASURED, ranks=8),
    ),
    "apply": (
        ["apply", STEP, "--out", "job", "--for", "allrail,ddp"],
        lambda: allrail.apply(STEP, out="job", for_=["allrail", "ddp"]),
    ),
    "import": (
        ["import", TRACE, "--step", "3", "-o", "out"],
        lambda: allrail.import_(TRACE, step=3, out="out"),
    ),
    "export": (
        ["export", STEP, "--chakra", "out", "--ranks", "representative"],
        lambda: allrail.export(STEP, chakra="out", ranks="representative"),
    ),
    "verify": (["verify", RECORDED], lambda: allrail.verify(RECORDED)),
}
"""A command line, and the same in Python."""
NO_EXAMPLE = {
    "run": "it starts processes",
    "calibrate live": "the processes of a job call it",
    "calibrate device": "it measures this machine, which never repeats",
}
"""Commands with `--json` whose answers are compared in tests of their own."""


def test_every_command_with_json_has_an_example():
    with_json = {
        name for name, one in FUNCTIONS.items() if any(_long(p) == "--json" for p in one.params)
    }
    typed = {" ".join(words) for words, _ in EXAMPLES.values()}
    lacking = {
        name
        for name in with_json
        if not any(one.startswith(f"{name} ") for one in (f"{words} " for words in typed))
    }
    assert lacking == NO_EXAMPLE.keys()


def repeats(tree):
    """What of an answer repeats: all but what was measured of this machine."""
    if isinstance(tree, dict):
        return [(key, repeats(one)) for key, one in tree.items() if key != "host"]
    return [repeats(one) for one in tree] if isinstance(tree, list) else tree


@pytest.mark.parametrize("name", EXAMPLES)
def test_json_is_the_answer(name, allrail_cli, tmp_path, monkeypatch):
    if name == "tune":
        pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    typed, called = EXAMPLES[name]
    outcome = allrail_cli(*typed, "--json")
    assert outcome.status == 0, outcome.stderr
    assert repeats(json.loads(outcome.stdout)) == repeats(json.loads(called().to_json()))
