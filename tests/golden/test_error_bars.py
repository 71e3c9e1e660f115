"""A fabric that says how far off it is gives every prediction an error bar."""

from __future__ import annotations

import csv
import html
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allrail
from allrail import load_fabric, preset_names
from allrail.output import write_results
from allrail.results import accuracy, network_accuracy
from allrail.results.accuracy import of_device
from allrail.results.network_accuracy import NetworkError, network_error, network_lines
from allrail.scenario import load_scenario
from allrail.scenario.presets import read_fabric
from allrail.simulation.api import simulate_many
from reference import needs


def _bench() -> Any:
    path = Path(__file__).parents[2] / "benches" / "network_accuracy.py"
    spec = importlib.util.spec_from_file_location("network_accuracy_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bench = _bench()
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
    result = allrail.simulate(training(error=0.5))
    assert result.error_low_us is not None
    assert result.error_high_us is not None
    assert result.error_low_us < result.step_time_us < result.error_high_us
    assert result.error_low_us > result.compute_us
    assert result.error_high_us < 1.5 * result.step_time_us


def test_a_larger_error_makes_a_wider_bar() -> None:
    bars = [allrail.simulate(training(error=error)) for error in (0.05, 0.1, 0.4)]
    lows, highs = [one.error_low_us for one in bars], [one.error_high_us for one in bars]
    assert lows == sorted(lows, reverse=True)  # type: ignore[type-var]
    assert highs == sorted(highs)  # type: ignore[type-var]


def test_none_is_made_up() -> None:
    for result in (allrail.simulate(collective()), allrail.simulate(training())):
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
    for one, step in zip(steps, simulate_many(steps), strict=True):
        told = allrail.simulate(one)
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
    known = allrail.simulate(step()).known
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
    result = allrail.simulate(one)
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
    known = allrail.simulate(step(**compute)).known
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


NETWORK = Path(network_accuracy.__file__).with_name("network_accuracy.csv")


def on_preset(kind: str, size: str, **fabric: Any) -> dict[str, Any]:
    tree, _ = read_fabric("dgx-a100")
    one = {"kind": kind, "size": size}
    return {"schema_version": 1, "fabric": {**tree, **fabric}, "collective": one}


def told(tree: dict[str, Any]) -> str | None:
    found = network_error(load_scenario(tree))
    return None if found is None else found.told


def test_a_collective_s_error_is_that_of_tables_of_its_kind_machines_and_size() -> None:
    machine = [read_fabric("dgx-a100")[0]["dimensions"][0]]
    line = told(on_preset("all_gather", "1 MiB", dimensions=machine))
    rows = [
        float(one["ratio"]) - 1
        for one in csv.DictReader(NETWORK.read_text().splitlines())
        if (one["fabric"], one["collective"], one["ranks"]) == ("dgx-a100", "all_gather", "8")
        and 1 << 18 <= int(one["bytes"]) <= 1 << 22
    ]
    assert len(rows) == 5
    assert line is not None
    low, high = (float(word) / 100 for word in re.findall(r"[-+]\d+\.\d", line))
    assert min(rows) - 1e-3 <= low <= high <= max(rows) + 1e-3
    assert "5 rows of 1 measured table of all_gather" in line
    assert "256 KiB to 4 MiB over 8 ranks" in line
    # Over several machines there is none, nor of a broadcast, nor with other links.
    assert told(on_preset("all_gather", "1 MiB")) == (
        "error: network unknown: no measured all_gather on `dgx-a100` was compared at such a size"
        " over so many ranks"
    )
    other = [{**machine[0], "bandwidth": "26 GB/s"}]
    for tree in (
        on_preset("broadcast", "1 MiB", dimensions=machine),
        on_preset("all_gather", "1 MiB", dimensions=other),
        on_preset("all_gather", "1 MiB", name="mine", dimensions=machine),
    ):
        assert str(told(tree)).startswith("error: network unknown: no measured ")
    # A fabric that was measured says its own.
    assert told(on_preset("all_gather", "1 MiB", error=0.1)) is None


@pytest.mark.parametrize(
    ("verb", "job", "line"),
    [
        (
            "simulate",
            "collective: {kind: all_reduce, size: 1 GiB}",
            "# error: network +",
        ),
        (
            "simulate",
            "traffic: {pattern: all_to_all, size: 64 KiB}",
            "# error: network unknown: no measured traffic was compared",
        ),
        (
            "simulate",
            "workload: {model: gpt2, parallelism: {dp: 8}, compute: {device: a100}}",
            "# error: computing ",
        ),
        ("compare", "collective: {kind: all_reduce, size: 1 GiB}", "# error: network +"),
    ],
)
def test_every_prediction_ends_with_what_is_known_of_its_error(
    verb: str, job: str, line: str, folder: Path, allrail_cli: Any
) -> None:
    fabric = "{topology: torus, shape: [2, 4]}"
    if "traffic" not in job:
        one = load_fabric("dgx-a100").dimensions[0].model_dump(exclude_defaults=True)
        fabric = json.dumps({"name": "dgx-a100", "dimensions": [one]})
    (folder / "s.yaml").write_text(f"schema_version: 1\nfabric: {fabric}\n{job}\n")
    outcome = allrail_cli(verb, "s.yaml", *(["--policy", "themis"] if verb == "compare" else []))
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.splitlines()[-1].startswith(line)


def test_the_compared_tables_are_of_presets_and_no_ratio_is_without_sense() -> None:
    rows = list(csv.DictReader(NETWORK.read_text().splitlines()))
    assert {one["fabric"] for one in rows} <= set(preset_names())
    assert all(0.1 < float(one["ratio"]) < 200 for one in rows)
    assert len({(one["table"], one["fabric"], one["ranks"], one["bytes"]) for one in rows}) == len(
        rows
    )


@needs("nccl")
def test_the_ratios_are_what_the_bench_writes() -> None:
    """Of two tables; all of them by `python benches/network_accuracy.py`."""
    names = ("a100x4_nvswitch_allreduce.txt", "gb200_2racks_allreduce.txt")
    kept = [
        one for one in csv.DictReader(NETWORK.read_text().splitlines()) if one["table"] in names
    ]
    assert bench.rows({name: bench.TABLES[name] for name in names}) == kept


def test_a_report_says_what_is_known_of_the_error_too(tmp_path: Path) -> None:
    dimensions = [read_fabric("dgx-a100")[0]["dimensions"][0]]
    scenario = load_scenario(on_preset("all_reduce", "1 GiB", dimensions=dimensions))
    write_results(
        tmp_path, results={"one": allrail.simulate(scenario)}, scenarios={"one": scenario}
    )
    found = network_error(scenario)
    assert found is not None
    line = found.told
    assert line.startswith("error: network +")
    # What stands in backquotes is code there.
    assert line[1:].split("`")[0] in html.unescape((tmp_path / "report.html").read_text())


SLOW = {"fat-tree-16k-taper50", "fat-tree-16k-taper75"}
"""Presets that take half a minute, whose siblings of 1k differ from them in size alone."""


class TestOneErrorLine:
    """Every prediction ends with what is known of its error, a comparison too."""

    @staticmethod
    def lines(printed: str) -> list[str]:
        return [line for line in printed.splitlines() if line.startswith("# error: ")]

    def test_unknown_ones_share_a_line_with_all_their_fabrics(self) -> None:
        unknown = [NetworkError(None, "no measured all_reduce", (name,)) for name in "abab"]
        assert network_lines(unknown) == [
            "error: network unknown: no measured all_reduce on `a` or `b` was compared"
        ]

    def test_known_and_unknown_ones_have_a_line_each(self) -> None:
        known = NetworkError(accuracy.Bar(-0.1, 0.2), "rows of tables")
        unknown = NetworkError(None, "no measured all_reduce", ("a",))
        told = network_lines([known, None, unknown, known])
        assert told == ["error: network -10.0 to +20.0 %: rows of tables", unknown.told]

    @pytest.mark.parametrize(
        "fabric",
        [
            pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
            for name in preset_names()
        ],
    )
    def test_on_every_fabric(
        self, fabric: str, tmp_path: Path, allrail_cli: Callable[..., Any]
    ) -> None:
        tree = {"schema_version": 1, "fabric": fabric}
        tree["collective"] = {"kind": "all_reduce", "size": "64 KiB"}
        file = tmp_path / "scenario.yaml"
        file.write_text(json.dumps(tree))
        for verb in (("simulate",), ("compare", "--policy", "baseline")):
            ran = allrail_cli(*verb, str(file))
            if ran.status == 0:  # some have no dimensions
                assert ran.stdout.splitlines()[-1] == self.lines(ran.stdout)[-1]

    def test_measured_beside_nominal_fabrics(
        self, tmp_path: Path, allrail_cli: Callable[..., Any]
    ) -> None:
        """A fabric that has an `error` does not hide that another has none."""
        tree, _ = read_fabric("dgx-a100")
        (tmp_path / "mine.yaml").write_text(
            json.dumps({**tree, "name": "mine", "error": 0.1, "calibrated": True})
        )
        file = tmp_path / "scenario.yaml"
        one = {"kind": "all_to_all", "size": "64 KiB"}
        file.write_text(json.dumps({"schema_version": 1, "fabric": "tpu", "collective": one}))
        fabrics = f"{tmp_path / 'mine.yaml'},tpu"
        told = self.lines(allrail_cli("compare", str(file), "--fabric", fabrics).stdout)
        assert len(told) == 2
        assert "`tpu`" in told[1]
