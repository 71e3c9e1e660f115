"""`make freeze` and `make frozen`: a planted change is found and named, what may change is not."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from frozen import compare, drawn, examples, kept, presets, run, trees
from frozen.cases import ROOT, Case
from frozen.trees import Renames

NAMED = "examples/01-simulate-themis"


@pytest.fixture(scope="module")
def entry():
    path = Path(__file__).with_name("__main__.py")
    spec = importlib.util.spec_from_file_location("frozen_entry", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def record(monkeypatch):
    """A record with a tree of its own, of which a test changes a copy."""
    tree = {
        "time_us": 1.5,
        "collectives": [{"algbw_GBps": 2.0, "tags": []}, {"algbw_GBps": 3.0, "tags": ["a"]}],
        "notes": ["a sentence"],
        "host": {"wall_ms": 3.0},
    }
    step = {"command": "simulate scenario.yaml", "status": 0, "json": tree}
    return {"case": "group/one", "made": {}, "steps": [step]}


def changed(record, change):
    other = copy.deepcopy(record)
    change(other["steps"][0])
    return other


def told(record, other, renames=()):
    return list(compare.differences(record, other, Renames(dict(renames))))


@pytest.mark.parametrize(
    ("change", "key", "values"),
    [
        (lambda step: step["json"].update(time_us=1.6), "time_us", ("1.5", "1.6")),
        (lambda step: step["json"].update(time_us=1), "time_us", ("1.5", "1")),
        (lambda step: step["json"].pop("time_us"), "time_us", ("1.5", "(absent)")),
        (lambda step: step["json"].update(more=None), "more", ("(absent)", "null")),
        (
            lambda step: step["json"]["collectives"][1].update(algbw_GBps=3.5),
            "collectives[1].algbw_GBps",
            ("3.0", "3.5"),
        ),
        (
            lambda step: step["json"]["collectives"][1].update(tags=["b"]),
            "collectives[1].tags[0]",
            ('"a"', '"b"'),
        ),
        (lambda step: step.update(status=2), "exit status", ("0", "2")),
        (lambda step: step.update(files={"a.json": {"x": 1}}), "a.json: x", ("(absent)", "1")),
    ],
    ids=str,
)
def test_a_planted_change_is_named(record, change, key, values):
    (found,) = told(record, changed(record, change))
    assert (found.case, found.command) == ("group/one", "simulate scenario.yaml")
    assert (found.key, (found.frozen, found.now)) == (key, values)


@pytest.mark.parametrize("key", sorted({*trees.PROSE, trees.HOST}))
def test_prose_and_the_host_are_not_compared(record, key):
    *above, last = key.split(".")
    for value in ("other", ["other", "words"], {"a": 1}, None):
        tree = {above[0]: [{last: value}]} if above else {last: value}
        assert not told(record, changed(record, lambda step, tree=tree: step["json"].update(tree)))
        deep = changed(record, lambda step, tree=tree: step["json"]["collectives"][0].update(tree))
        assert not told(record, deep)
    other = changed(record, lambda step: step["json"].update({f"{last}_us": 1}))
    assert len(told(record, other)) == 1


def test_digests_are_not_compared(record):
    one, other = (changed(record, lambda step, c=c: step["json"].update(key=c * 64)) for c in "ab")
    assert not told(one, other)


def test_an_order_of_keys_is_no_difference(record):
    turned = changed(
        record, lambda step: step.update(json=dict(reversed(list(step["json"].items()))))
    )
    assert not told(record, turned)


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ({"time_us": "time"}, ("time_us",), ("time",)),
        (
            {"collectives[].algbw_GBps": "collectives[].algbw"},
            ("collectives", 1, "algbw_GBps"),
            ("collectives", 1, "algbw"),
        ),
        (
            {"collectives[]": "result.collectives[]"},
            ("collectives", 1, "tags", 0),
            ("result", "collectives", 1, "tags", 0),
        ),
        ({"**.world": "**.network_model"}, ("rows", 3, "world"), ("rows", 3, "network_model")),
        ({"**.world": "**.network_model"}, ("world",), ("network_model",)),
        ({"world": "network_model"}, ("rows", 3, "world"), ("rows", 3, "world")),
        ({"a.b": "a.c"}, ("a",), ("a",)),
    ],
    ids=str,
)
def test_a_key_that_is_in_the_table_has_a_new_name(table, old, new):
    assert Renames(table).path(old) == new


@pytest.mark.parametrize("table", [{"a[].b": "a.b"}, {"a": "a[]"}, {"**.a": "b"}], ids=str)
def test_a_table_that_loses_places_is_refused(table):
    with pytest.raises(ValueError, match="both sides need"):
        Renames(table)


def test_a_renamed_key_is_no_difference_and_another_value_is(record):
    table = {"collectives[].algbw_GBps": "collectives[].algbw"}

    def rename(step, factor=1.0):
        for one in step["json"]["collectives"]:
            one["algbw"] = factor * one.pop("algbw_GBps")

    renamed = changed(record, rename)
    assert len(told(record, renamed)) == 4, "without the table"
    assert not told(record, renamed, table.items())
    scaled = changed(record, lambda step: rename(step, 2.0))
    assert [one.key for one in told(record, scaled, table.items())] == [
        "collectives[0].algbw",
        "collectives[1].algbw",
    ]
    assert told(record, record, table.items()), "a row of the table that is not true"


def test_scenarios_are_renamed_too(tmp_path):
    made = {"scenario.yaml": "world: links\nfabric: {dimensions: [{kind: ring}, {kind: switch}]}\n"}
    case = Case("a/b", (("simulate", "scenario.yaml"),), made)
    table = Renames(
        {"world": "network_model", "fabric.dimensions[].kind": "fabric.dimensions[].type"}
    )
    tree = yaml.safe_load(run.renamed(case, table).made["scenario.yaml"])
    dimensions = [{"type": "ring"}, {"type": "switch"}]
    assert tree == {"network_model": "links", "fabric": {"dimensions": dimensions}}
    (tmp_path / "one.yaml").write_text("world: dims\n")
    (tmp_path / "table.txt").write_text("world: dims\n")
    both = (tmp_path / "one.yaml", tmp_path / "table.txt")
    theirs = run.renamed(Case("a/c", (), {}, both, foreign=True), table)
    assert (theirs.made, theirs.copied) == ({"one.yaml": "network_model: dims\n"}, both[1:])
    assert run.renamed(Case("a/d", (), {}, both), table).copied == both, "ours are edited by hand"


def test_a_file_is_written_whole_and_alike(tmp_path, record):
    path = tmp_path / "deep" / "frozen.jsonl.gz"
    other = {**record, "case": "group/another"}
    kept.write(path, {"commit": "abc"}, [record, other])
    first = path.read_bytes()
    head, rows = kept.read(path)
    assert head["commit"] == "abc"
    assert rows == {one["case"]: one for one in (record, other)}
    kept.write(path, {"commit": "abc"}, [other, record])
    assert path.read_bytes() == first

    def broken():
        yield record
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.write(path, {"commit": "abc"}, broken())
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


def test_a_case_runs_in_this_process(monkeypatch):
    (case,) = (one for one in examples.cases() if one.name == NAMED)
    monkeypatch.setattr(run, "settle", lambda: None)
    one, again = (run.run(case) for _ in range(2))
    assert [step["status"] for step in one["steps"]] == [0, 0]
    assert one["steps"][0]["json"]["time_us"] == pytest.approx(13586.4498, abs=1e-3)
    assert not list(compare.differences(one, again, Renames({})))
    assert list(compare.differences({**one, "steps": one["steps"][::-1]}, again, Renames({})))


def test_an_error_is_its_status(monkeypatch):
    text = yaml.safe_dump({"schema_version": 1, "fabric": "tpu", "typo": 1})
    wrong = run.run(Case("a/b", (("simulate", "scenario.yaml"),), {"scenario.yaml": text}))
    assert [step["status"] for step in wrong["steps"]] == [2]
    assert not list(compare.differences(wrong, json.loads(json.dumps(wrong)), Renames({})))


def test_every_preset_and_example_is_a_case():
    names = {case.name for case in (*presets.cases(), *examples.cases())}
    assert len(names) == len([*presets.cases(), *examples.cases()]), "a name is there once"
    for folder, part in ((presets.FABRICS, "fabrics"), (presets.WORKLOADS, "workloads")):
        for path in folder.glob("*.yaml"):
            models = {name.split("/")[3] for name in names if f"{part}/{path.stem}/" in name}
            large = part == "fabrics" and presets.npus(path.stem) > presets.LARGEST
            assert models == ({"dims"} if large else set(presets.NETWORK_MODELS)), path.stem
    processes = {"09-train-with-numpy", "10-train-with-jax", "16-train-with-keras"}
    all_of_them = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    frozen = {name.split("/")[1] for name in names if name.startswith("examples/")}
    assert frozen == all_of_them - processes


def test_what_is_drawn_is_drawn_again(monkeypatch):
    monkeypatch.setattr(drawn, "COUNTS", {"collective": 2, "step": 1, "traffic": 1})
    one, again = (list(drawn.cases()) for _ in range(2))
    assert one == again
    assert len({case.made["scenario.yaml"] for case in one}) == 4


def test_the_commands_find_a_planted_number(entry, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALLRAIL_REFERENCE", str(tmp_path / "absent"))
    file = tmp_path / "frozen.jsonl.gz"
    only = ["--file", str(file), "--only", f"^{NAMED}$", "--workers", "1"]
    assert entry.main(["compare", *only]) == 2
    assert "make freeze" in capsys.readouterr().err
    assert entry.main(["write", *only]) == 0
    assert entry.main(["compare", *only]) == 0
    assert "0 of 1 cases differ" in capsys.readouterr().out
    head, rows = kept.read(file)
    rows[NAMED]["steps"][1]["json"]["time_us"] += 1.0
    kept.write(file, head, rows.values())
    assert entry.main(["compare", *only]) == 1
    printed = capsys.readouterr().out
    assert f"\n{NAMED}\n  `simulate scenario.yaml --set schedule.policy=baseline`: time_us: " in (
        printed
    )
    assert "1 of 1 cases differ, in 1 values" in printed
