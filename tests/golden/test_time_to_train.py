"""`workload.target`: steps, time, cost and energy of all of the training, by hand."""

from __future__ import annotations

import csv
import json
import math

import pytest
import yaml

import allrail
from allrail.base.errors import InputError
from allrail.base.units import show_duration

TARGET = {"samples": 1_000_000, "price_per_npu_hour": 2.5, "watts_per_npu": 700}
STEP = {
    "schema_version": 1,
    "fabric": {
        "name": "small",
        "dimensions": [{"kind": "switch", "size": 8, "bandwidth": "100 GB/s", "latency": "1 us"}],
    },
    "workload": {
        "model": "resnet50",
        "batch_per_replica": 32,
        "compute": {"device": "a100"},
        "target": TARGET,
    },
}
TOKENS = {
    "model": {
        "transformer": {
            "layers": 4,
            "hidden": 256,
            "heads": 8,
            "vocabulary": 1024,
            "sequence_length": 128,
        }
    },
    "compute": {"device": "a100"},
}


def with_(target, **workload):
    work = {**STEP["workload"], **workload, "target": target}
    return {**STEP, "workload": work}


def trained(target, **workload):
    return allrail.simulate(with_(target, **workload))


def test_by_hand():
    result = trained(TARGET)
    found = result.time_to_train
    # 256 samples a step: 3,906.25 of them are 3,907.
    assert found.steps == 3907
    assert found.samples == 3907 * 256
    assert found.tokens is None
    assert found.time_s == pytest.approx(3907 * result.step_time_us / 1e6)
    assert found.npu_hours == pytest.approx(8 * found.time_s / 3600)
    assert found.cost == pytest.approx(2.5 * found.npu_hours)
    assert found.energy_kwh == pytest.approx(0.7 * found.npu_hours)
    assert found.time_s == pytest.approx(1e6 / result.throughput.samples_per_s, rel=1e-3)


def test_tokens_and_steps():
    tokens = trained({"tokens": "1.5 G"}, **TOKENS).time_to_train
    assert tokens.steps == math.ceil(1_500_000_000 / (256 * 128))
    assert (tokens.cost, tokens.energy_kwh) == (None, None)
    assert tokens.tokens >= 1_500_000_000 > tokens.tokens - 256 * 128
    assert trained({"steps": 7}).time_to_train.steps == 7
    assert trained(None).time_to_train is None


@pytest.mark.parametrize(
    "short", ["15e12", 15e12, "15 T", "15T", "15_000_000_000_000", 15 * 10**12]
)
def test_amounts_may_be_short(short):
    loaded = allrail.load_scenario(with_({"tokens": short}, **TOKENS))
    assert loaded.workload.target.tokens == 15 * 10**12


@pytest.mark.parametrize("short", ["300B", "300 G", "0.3 T", 3e11])
def test_billions(short):
    loaded = allrail.load_scenario(with_({"tokens": short}, **TOKENS))
    assert loaded.workload.target.tokens == 300 * 10**9


BAD = {
    "nothing": ({}, "in one way"),
    "two": ({"samples": 1, "steps": 1}, "in one way"),
    "no tokens": ({"tokens": 10}, "does not say how many tokens a step has"),
    "zero": ({"steps": 0}, "it is below 1"),
    "less": ({"steps": -1}, "it is below 1"),
    "a part": ({"steps": 1.5}, "not a whole number"),
    "a part of a unit": ({"steps": "0.0001 K"}, "not a whole number"),
    "words": ({"samples": "many"}, "not a whole number"),
    "endless": ({"samples": float("inf")}, "not a whole number"),
    "no number": ({"samples": float("nan")}, "not a whole number"),
    "too large": ({"samples": "1e30"}, "it is above"),
    "larger": ({"samples": "99999999 T"}, "it is above"),
    "a price below nothing": ({"steps": 1, "price_per_npu_hour": -1}, "it is below 0"),
    "endless power": ({"steps": 1, "watts_per_npu": float("inf")}, "it is not finite"),
    "another key": ({"steps": 1, "price": 2}, "no such key"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_targets_are_refused(name):
    target, why = BAD[name]
    with pytest.raises(InputError, match=why):
        trained(target)


def test_a_hint_names_what_works():
    with pytest.raises(InputError) as caught:
        trained({"tokens": 10})
    assert caught.value.hint == "give `samples` or `steps` instead"
    assert trained({"samples": 10}).time_to_train.steps == 1


def test_simulate_compare_and_files_say_it(folder, allrail_cli):
    (folder / "step.yaml").write_text(yaml.safe_dump(STEP))
    told = allrail_cli("simulate", "step.yaml", "--out", "out")
    assert told.status == 0, told.stderr
    [line] = [line for line in told.stdout.splitlines() if line.startswith("time_to_train")]
    assert "(3,907 steps)" in line
    assert line.endswith("kWh")
    found = json.loads(allrail_cli("simulate", "step.yaml", "--json").stdout)["time_to_train"]
    assert set(found) == {
        *("steps", "samples", "tokens", "time_s", "npu_hours", "cost", "energy_kwh")
    }
    [cells] = csv.DictReader((folder / "out" / "training.csv").read_text().splitlines())
    assert float(cells["train_cost"]) == pytest.approx(found["cost"])
    assert float(cells["train_s"]) == pytest.approx(found["time_s"])
    assert "Time to train" in (folder / "out" / "report.html").read_text()
    told = allrail_cli("compare", "step.yaml", "--each", "workload.batch_per_replica=32,64")
    head, *rows = (line.split() for line in told.stdout.splitlines() if not line.startswith("#"))
    days = [float(row[head.index("train_days")]) for row in rows]
    costs = [float(row[head.index("train_cost")]) for row in rows]
    assert costs[0] / costs[1] == pytest.approx(days[0] / days[1], rel=1e-3)
    plain = {**STEP, "workload": {k: v for k, v in STEP["workload"].items() if k != "target"}}
    (folder / "plain.yaml").write_text(yaml.safe_dump(plain))
    told = allrail_cli("compare", "plain.yaml", "--each", "workload.batch_per_replica=32,64")
    assert "train_days" not in told.stdout


def test_plan_ranks_by_days(folder, allrail_cli):
    """The days of a row are those of the scenario that `plan` writes for it."""
    options = ("plan", "--model", "gpt2", "--fabric", "dgx-h100", "--npus", "8")
    options += ("--global-batch", "16", "--device", "h100", "--top", "2")
    options += ("--fix", "pp=2", "--set", "workload.target.tokens=300 G")
    told = allrail_cli(*options, "--json", "--out", "out")
    assert told.status == 0, told.stderr
    first = json.loads(told.stdout)["ranked"][0]
    steps = math.ceil(300e9 / (16 * 1024))
    assert first["train_s"] == pytest.approx(steps * first["step_s"], rel=1e-9)
    assert "train_days" in allrail_cli(*options).stdout


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.5 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (3600 * 47, "47 h"),
     (86400 * 2, "2 days"), (86400 * 400, "400 days")],
)  # fmt: skip
def test_durations(seconds, text):
    assert show_duration(seconds) == text
