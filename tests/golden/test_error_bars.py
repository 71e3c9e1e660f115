"""A fabric that says how far off it is gives every prediction an error bar."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allrail
from allrail import accuracy
from allrail.accuracy import of_device
from allrail.api import simulate_many
from allrail.training import simulate_training_many

TABLE = Path(accuracy.__file__).with_name("accuracy.csv")


def fabric(**keys: Any) -> dict[str, Any]:
    return {
        "dimensions": [
            {"kind": "ring", "size": 4, "links": 2, "bandwidth": "100 Gb/s", "latency": "1 us"},
            {"kind": "switch", "size": 4, "bandwidth": "50 Gb/s", "latency": "3 us"},
        ],
        "calibrated": True,
        **keys,
    }


def collective(**keys: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "fabric": fabric(**keys),
        "collective": {"kind": "all_reduce", "size": "64 MiB"},
        "schedule": {"policy": "themis", "chunks": 8},
    }


def training(**keys: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "fabric": fabric(**keys),
        "workload": {
            "model": "resnet152",
            "batch_per_replica": 4,
            "precision": "fp16",
            "parallelism": {"dp": 16},
            "compute": {"device": "a100", "efficiency": 0.5},
        },
    }


def test_times_of_collectives_are_off_by_it_and_by_no_more() -> None:
    result = allrail.simulate(collective(error=0.25))
    assert result.error_low_us == pytest.approx(result.time_us / 1.25, rel=1e-6)
    assert result.error_high_us == pytest.approx(result.time_us * 1.25, rel=1e-6)


def test_computing_is_not_off_by_it() -> None:
    result = allrail.simulate_training(training(error=0.5))
    assert result.error_low_us is not None
    assert result.error_high_us is not None
    assert result.error_low_us < result.step_time_us < result.error_high_us
    assert result.error_low_us > result.compute_us
    assert result.error_high_us < 1.5 * result.step_time_us


def test_a_larger_error_makes_a_wider_bar() -> None:
    bars = [allrail.simulate_training(training(error=error)) for error in (0.05, 0.1, 0.4)]
    lows, highs = [one.error_low_us for one in bars], [one.error_high_us for one in bars]
    assert lows == sorted(lows, reverse=True)  # type: ignore[type-var]
    assert highs == sorted(highs)  # type: ignore[type-var]


def test_none_is_made_up() -> None:
    for result in (allrail.simulate(collective()), allrail.simulate_training(training())):
        assert result.error_low_us is None
        assert result.error_high_us is None
        assert "error_low_us" not in result.raw


def test_many_say_the_same_as_one() -> None:
    some = [collective(), collective(error=0.1), collective(), collective(error=0.3)]
    for one, result in zip(some, simulate_many(some), strict=True):
        alone = allrail.simulate(one)
        assert (result.time_us, result.error_low_us, result.error_high_us) == (
            alone.time_us,
            alone.error_low_us,
            alone.error_high_us,
        )
    steps = [training(error=0.2), training()]
    for one, step in zip(steps, simulate_training_many(steps), strict=True):
        told = allrail.simulate_training(one)
        assert (step.error_low_us, step.error_high_us) == (told.error_low_us, told.error_high_us)


def test_what_calibrate_writes_says_its_error(
    tmp_path: Path, allrail_cli: Callable[..., Any]
) -> None:
    lines = ["# all_reduce_perf", "#  size count type redop root time algbw busbw #wrong"]
    for size in (1 << power for power in range(13, 31)):
        time = 20 + size / 40e3
        algbw = size / time / 1e3
        lines.append(f"{size} {size // 4} float sum -1 {time:.2f} {algbw:.2f} {1.75 * algbw:.2f} 0")
    table, out, scenario = (tmp_path / name for name in ("table.txt", "made.yaml", "run.yaml"))
    table.write_text("\n".join(lines))
    made = allrail_cli("calibrate", "network", str(table), "--ranks", "8", "-o", str(out))
    assert made.status == 0, made.stderr
    scenario.write_text(
        "schema_version: 1\nfabric: made.yaml\ncollective: {kind: all_reduce, size: 1 GiB}\n"
    )
    shown = allrail_cli("simulate", str(scenario))
    assert "as far as the fabric's `error` is measured" in shown.stdout
    tree = json.loads(allrail_cli("simulate", str(scenario), "--json").stdout)
    assert tree["calibrated"] is True
    assert tree["error_low_us"] < tree["time_us"] < tree["error_high_us"]


@pytest.mark.parametrize("value", [0, -0.1, "7 %", True, float("inf")])
def test_an_error_is_a_number_above_nothing(value: Any) -> None:
    with pytest.raises(allrail.InputError) as caught:
        allrail.simulate(collective(error=value))
    assert caught.value.field == "fabric.error"


def test_reports_say_it(tmp_path: Path, allrail_cli: Callable[..., Any]) -> None:
    for name, tree in (("collective", collective(error=0.2)), ("step", training(error=0.2))):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(tree))
        out = tmp_path / name
        told = allrail_cli("simulate", str(tmp_path / f"{name}.yaml"), "--out", str(out))
        assert told.status == 0, told.stderr
        words = "Error bar: from -" if name == "collective" else "Error: computing "
        assert words in (out / "report.html").read_text()
        assert any("error_high_us" in table.read_text() for table in out.glob("*.csv"))


def step(**compute: Any) -> dict[str, Any]:
    tree = training()
    work = tree["workload"]
    work |= {"model": "gpt2_xl", "sequence_length": 1024, "precision": "bf16"}
    work["compute"] = {"device": "a100", "launch": "fused", **compute}
    return tree


def compared(device: str, precision: str, launch: str) -> list[float]:
    """What the packaged table has of runs, as parts of the predicted time."""
    return sorted(
        float(row["ratio"]) - 1
        for row in csv.DictReader(TABLE.read_text().splitlines())
        if (row["device"], row["precision"], row["launch"]) == (device, precision, launch)
    )


def test_a_step_says_what_is_known_of_its_own_error() -> None:
    known = allrail.simulate_training(step()).known
    assert known is not None
    off = compared("a100", "16 bits", "fused")
    assert known.computing.runs == len(off) >= 10
    assert known.computing.bar is not None
    inside = [one for one in off if known.computing.bar.low <= one <= known.computing.bar.high]
    assert 0.85 <= len(inside) / len(off) <= 0.95
    assert known.network is None
    assert known.told.startswith(f"error: computing {known.computing.bar.told} (nine of ten of ")
    assert "network unknown, nobody measured it; together" in known.told
    assert known.told.endswith("or more")


def test_a_measured_network_is_one_part_of_three() -> None:
    one = step()
    one["fabric"]["error"] = 0.25
    result = allrail.simulate_training(one)
    known = result.known
    assert known is not None
    assert known.network is not None
    assert known.together is not None
    assert known.computing.bar is not None
    assert result.error_high_us == pytest.approx((1 + known.network.high) * result.step_time_us)
    # Never less than either part, and never more than both.
    share = 1 - result.exposed_communication_us / result.step_time_us
    part = share * known.computing.bar.high
    assert max(part, known.network.high) <= known.together.high <= part + known.network.high


@pytest.mark.parametrize(
    ("compute", "why"),
    [
        ({"efficiency": 0.5}, "its `compute` gives figures of its own"),
        ({"device": None, "peak": "312 TFLOP/s"}, "its times are given, not those of a device"),
        ({"device": "mi300x"}, "no run on mi300x was compared"),
    ],
)
def test_where_no_run_was_compared_nothing_is_made_up(compute: dict[str, Any], why: str) -> None:
    known = allrail.simulate_training(step(**compute)).known
    assert known is not None
    assert (known.computing.runs, known.computing.bar, known.together) == (0, None, None)
    assert known.told.startswith(f"error: computing unknown, {why}; ")


@pytest.mark.parametrize("device", ["a100", "h100", "gb200", "b200"])
@pytest.mark.parametrize("precision", ["16 bits", "fp8", "mxfp8", "fp32"])
@pytest.mark.parametrize("launch", ["eager", "fused", "compiled", "graph"])
def test_a_bar_is_of_runs_that_are_named(device: str, precision: str, launch: str) -> None:
    found = of_device(device, precision, launch)
    rows = [
        row for row in csv.DictReader(TABLE.read_text().splitlines()) if row["device"] == device
    ]
    mine = [row for row in rows if row["precision"] == precision]
    if found.bar is None:
        assert len(mine) < 5
        assert device in found.what
        return
    assert 5 <= found.runs <= len(mine)
    assert f"of {found.runs} measured runs on {device}" in found.what
    assert -1 < found.bar.low <= found.bar.high
    same = [row for row in rows if (row["precision"], row["launch"]) == (precision, launch)]
    if len(same) >= 5:
        assert found.runs == len(same)
        assert f"launched `{launch}`" in found.what


def test_predictions_that_are_alike_share_a_line(
    tmp_path: Path, allrail_cli: Callable[..., Any]
) -> None:
    file = tmp_path / "step.yaml"
    file.write_text(json.dumps(step()))

    def told(*arguments: str) -> list[str]:
        output = allrail_cli(*arguments).stdout.splitlines()
        return [line for line in output if line.startswith("# error: ")]

    assert len(told("simulate", str(file))) == 1
    assert len(told("compare", str(file))) == 1
    both = told("compare", str(file), "--each", "workload.compute.launch=fused,eager")
    assert len(both) == 2
    tree = json.loads(allrail_cli("simulate", str(file), "--json").stdout)
    assert tree["known_error"]["computing"]["runs"] >= 10


def test_the_packaged_ratios_are_those_of_the_comparison(
    tmp_path: Path, allrail_cli: Callable[..., Any]
) -> None:
    out = tmp_path / "ratios.csv"
    assert allrail_cli("reproduce", "runs", "--ratios", str(out)).status == 0
    packaged = {row["id"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}
    found = list(csv.DictReader(out.read_text().splitlines()))
    assert len(found) >= 3
    shared = [row for row in found if row["id"] in packaged]
    assert len(shared) >= 3
    for row in shared:
        kept = packaged[row["id"]]
        assert float(kept["ratio"]) == pytest.approx(float(row["ratio"]), abs=0.02), row["id"]
        assert {**kept, "ratio": ""} == {**row, "ratio": ""}
