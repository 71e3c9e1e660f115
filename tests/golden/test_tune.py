"""Tuning: the knobs that a scenario has, a search that repeats, goes on and never ends slower."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.search.tuning.run import search
from allrail.search.tuning.space import Knob, knobs, size

pytest.importorskip("optuna", reason="`allrail[tune]`")

if find_spec("torch") is not None:
    import torch

    # A Gaussian process computes with it; OpenMP's threads do not survive the forks of other tests.
    torch.set_num_threads(1)

SCENARIO = Path(__file__).parents[2] / "examples/07-compare-tensor-schedulers/scenario.yaml"
SPACE = (Knob("a", tuple(range(10))), Knob("b", tuple(range(12))))


def bowl(sets):
    """Smallest at a=7, b=3; the start is 60 % above it."""
    return 100 + (sets["a"] - 7) ** 2 + (sets["b"] - 3) ** 2 if sets else 160.0


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        ("fifo", []),
        ("bytescheduler", ["partition", "credit"]),
        ("ddp", ["bucket"]),
        ("fusion", ["threshold", "cycle"]),
    ],
)
def test_the_knobs_are_what_the_schedulers_read(tensor, expected):
    loaded = allrail.load_scenario(
        SCENARIO, sets={"schedule.tensor": tensor, "schedule.coordination": "central"}
    )
    names = [f"schedule.tensor.{name}" for name in expected]
    assert [knob.path for knob in knobs(loaded)] == [
        *names,
        "schedule.coordination.cycle",
        "schedule.chunks",
    ]
    for knob in knobs(loaded):
        for value in (knob.values[0], knob.values[-1]):
            allrail.load_scenario(loaded, sets={knob.path: value})


def test_finds_the_bottom_of_a_bowl():
    found = [search(SPACE, bowl, seed=seed) for seed in range(3)]
    assert all(len(one.trials) == 12 for one in found)
    assert all(one.trials[0].sets == {} for one in found)
    assert sorted(one.best.step_time_us for one in found)[1] <= 102
    assert search(SPACE, bowl, seed=1) == found[1]


def test_never_ends_slower_than_it_began():
    best = search(SPACE, lambda sets: 200.0 if sets else 100.0, trials=5)
    assert (best.best.sets, best.gain) == ({}, 0)


def test_what_cannot_be_simulated_is_passed_over():
    def simulate(sets):
        if sets and sets["a"] > 4:
            raise InputError("no")
        return bowl(sets)

    found = search(SPACE, simulate, trials=10)
    assert found.best.step_time_us < 160
    assert len(found.trials) == 10


def test_tries_nothing_twice_and_ends_with_the_ladders():
    space = (Knob("a", (6, 7)), Knob("b", (3,)))
    found = search(space, bowl, trials=12)
    assert size(space) == 2
    assert [one.sets for one in found.trials if one.sets] in (
        [{"a": 6, "b": 3}, {"a": 7, "b": 3}],
        [{"a": 7, "b": 3}, {"a": 6, "b": 3}],
    )


def test_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = search(SPACE, bowl, trials=8)
    file = tmp_path / "tune.journal"
    count = [0]

    def counted(sets):
        count[0] += 1
        return bowl(sets)

    search(SPACE, counted, trials=5, study=file)
    again = search(SPACE, counted, trials=8, study=file)
    assert again.trials == whole.trials
    assert count[0] == 8


def test_on_the_command_line(allrail_cli, tmp_path):
    told = allrail_cli(
        "tune", str(SCENARIO), "--set", "schedule.tensor=ddp", "--trials", "5", "--seed", "1"
    )
    assert told.status == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0].split() == [
        "trial",
        "schedule.tensor.bucket",
        "schedule.chunks",
        "step_time_us",
        "gain_%",
    ]
    assert len(lines) == 9
    assert lines[8].startswith("# error: computing ")
    times = [float(line.split()[3]) for line in lines[1:6]]
    sets = shlex.split(lines[6].partition("best: ")[2])[1::2]
    best = allrail.simulate(SCENARIO, sets=["schedule.tensor=ddp", *sets])
    assert round(best.step_time_us, 3) == min(times)


class TestBadInput:
    def refused(self, told, *parts):
        assert (told.status, told.stdout) == (2, "")
        assert "\n\nhint: " in told.stderr
        for part in parts:
            assert part in told.stderr

    def test_no_optuna(self, allrail_cli, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        self.refused(allrail_cli("tune", str(SCENARIO)), "Optuna is not installed")

    def test_a_file_of_another_search(self, allrail_cli, tmp_path):
        file = str(tmp_path / "tune.journal")
        command = ("tune", str(SCENARIO), "--trials", "2", "--study", file)
        assert allrail_cli(*command).status == 0
        self.refused(allrail_cli(*command, "--seed", "1"), "another scenario, seed")
