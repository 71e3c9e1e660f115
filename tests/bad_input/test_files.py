"""Mistakes in files, options and plans: one message, a hint, exit status 2, no output file."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REFERENCE = "fabric: tutorial-8x8x8"

# A name, the file's content, what the message names.
TEXTS = [
    ("empty", "", ["empty"]),
    ("only a comment", "# nothing\n", ["empty"]),
    ("a list", "[1, 2]\n", ["scenario.yaml:1", "mapping"]),
    ("a word", "hello\n", ["scenario.yaml:1", "mapping"]),
    ("open bracket", "schema_version: 1\nfabric: {dimensions: [\n", ["scenario.yaml:3", "YAML"]),
    ("bad indentation", "schema_version: 1\n fabric: today\n", ["scenario.yaml:2", "YAML"]),
    ("a tab", "schema_version: 1\ncollective:\n\tkind: x\n", ["scenario.yaml:3", "YAML"]),
    ("a control character", "schema_version: 1\nfabric: \x07\n", ["scenario.yaml", "YAML"]),
    (
        "a duplicate key",
        "seed: 1\nnetwork_model: dims\nseed: 2\n",
        ["scenario.yaml:3", "`seed`", "twice"],
    ),
    ("two documents", "seed: 1\n---\nseed: 2\n", ["scenario.yaml:2", "second document"]),
    ("a tag", "seed: !!python/object:os.system 1\n", ["scenario.yaml:1", "`seed`", "tag"]),
    ("an unknown alias", "seed: *one\n", ["scenario.yaml:1"]),
    ("an alias of itself", "seed: &a [*a]\n", ["scenario.yaml:1"]),
    ("deep", "seed: " + "[" * 5000 + "]" * 5000, ["scenario.yaml:1", "nested"]),
    (
        "an alias bomb",
        "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 12)),
        ["scenario.yaml:", "values"],
    ),
    ("no schema version", f"{REFERENCE}\n", ["`schema_version`", "missing"]),
    ("no collective", f"schema_version: 1\n{REFERENCE}\n", ["`collective`", "missing"]),
    ("a key that is a list", "? [1, 2]\n: 3\n", ["scenario.yaml:1", "key"]),
    ("null", "schema_version: 1\nfabric: ~\ncollective: ~\n", ["scenario.yaml:2", "`fabric`"]),
]


def check(outcome, folder: Path, before: set[str]) -> None:
    """One message, a hint, and nothing else."""
    assert outcome.status == 2, outcome
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.count("error:") == 1
    assert "\n\nhint: " in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert {path.name for path in folder.iterdir()} - {".allrail.json"} == before


@pytest.mark.parametrize(("name", "text", "told"), TEXTS, ids=lambda value: str(value)[:24])
def test_text_that_is_no_scenario(folder, allrail_cli, name, text, told):
    (folder / "scenario.yaml").write_text(text)
    outcome = allrail_cli("simulate", "scenario.yaml", "--out", "out")
    check(outcome, folder, {"scenario.yaml"})
    assert outcome.stderr.startswith("error: scenario.yaml")
    for part in told:
        assert part in outcome.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "scenario.json:1"),
        ('{"seed": 1,}', "scenario.json:1"),
        ('{"seed": 1, "seed": 2}', "`seed`"),
        ("{'seed': 1}", "scenario.json:1"),
        ('{"schema_version": 1,\n "seeed": 2}', "scenario.json:2"),
        ('{"schema_version": 1,\n\t"seeed": 2}', "did you mean `seed`?"),
        ("[" * 100_000, "nested"),
        ('{"schema_version": 1, "fabric": "today", "collective": NaN}', "`collective`"),
    ],
)
def test_json_that_is_no_scenario(folder, allrail_cli, text, told):
    (folder / "scenario.json").write_text(text)
    outcome = allrail_cli("simulate", "scenario.json")
    check(outcome, folder, {"scenario.yaml", "scenario.json"})
    assert told in outcome.stderr


def test_bytes_that_are_no_text(folder, allrail_cli):
    (folder / "scenario.yaml").write_bytes(b"fabric: \xff\xfe\n")
    outcome = allrail_cli("simulate", "scenario.yaml")
    check(outcome, folder, {"scenario.yaml"})
    assert "UTF-8" in outcome.stderr


# The arguments, what the message names.
COMMANDS = [
    (["simulate", "scenari.yaml"], ["scenari.yaml", "did you mean `scenario.yaml`?"]),
    (["simulate", "no/such/file.yaml"], ["no/such/file.yaml", "`no/such`"]),
    (["simulate", "."], [".: it cannot be read"]),
    (["simulate"], ["file is missing"]),
    (["simulat", "scenario.yaml"], ["`simulat`", "did you mean `simulate`?"]),
    (["simulate", "scenario.yaml", "--jsn"], ["`--jsn`", "did you mean `--json`?"]),
    (["simulate", "scenario.yaml", "extra"], ["extra"]),
    (["simulate", "scenario.yaml", "--set"], ["--set"]),
    (["simulate", "scenario.yaml", "--set", "policy"], ["--set", "`policy`", "no `=`"]),
    (["simulate", "scenario.yaml", "--set", "=3"], ["--set", "path"]),
    (["simulate", "scenario.yaml", "--set", "a..b=3"], ["--set", "`a..b`"]),
    (["simulate", "scenario.yaml", "--set", "schedule.polic=x"], ["--set", "mean `policy`?"]),
    (["simulate", "scenario.yaml", "--set", "schedul.policy=x"], ["mean `schedule`?"]),
    (["simulate", "scenario.yaml", "--set", "schedule.policy=[x"], ["--set", "YAML"]),
    (["simulate", "scenario.yaml", "--set", "seed.x=1"], ["--set", "`seed` has no keys"]),
    (
        ["simulate", "scenario.yaml", "--set", "fabric.dimensions[3].size=2"],
        ["--set", "the list has 3"],
    ),
    (["simulate", "scenario.yaml", "--set", "fabric=3D-SW"], ["`3D-SW`", "no such preset"]),
    (["simulate", "scenario.yaml", "--set", "fabric=today2"], ["did you mean `today`?"]),
    (["simulate", "scenario.yaml", "--set", "fabric=mine.yaml"], ["mine.yaml", "no such file"]),
    (["simulate", "scenario.yaml", "--network-model", "link"], ["`link`", "did you mean `links`?"]),
    (["simulate", "scenario.yaml", "--comm-scale", "2"], ["--comm-scale", "--astra-sim"]),
    (["simulate", "scenario.yaml", "--comm-scale", "x"], ["--comm-scale", "x"]),
    (["simulate", "--astra-sim", "--network", "n.json"], ["`--system`", "missing"]),
    (["simulate", "scenario.yaml", "--astra-sim"], ["not both"]),
    (["simulate", "scenario.yaml", "--plan", "none.json"], ["none.json", "no such file"]),
    (["simulate", "scenario.yaml", "--plan", "scenario.yaml"], ["scenario.yaml"]),
    (["simulate", "scenario.yaml", "--out", "scenario.yaml"], ["--out", "it is a file"]),
    (["compare", "scenario.yaml", "--policy", "themsi"], ["--policy", "did you mean `themis`?"]),
    (["compare", "scenario.yaml", "--policy", ","], ["--policy", "no value"]),
    (["compare", "scenario.yaml", "--each", "x"], ["--each", "`x`"]),
    (["compare", "scenario.yaml", "--each", "sed=1,2"], ["--each", "did you mean `seed`?"]),
    (["compare", "scenario.yaml", "--chunks", "0,0"], ["--chunks", "`0`"]),
    (["plan", "scenario.yaml", "--out", "."], ["--out"]),
    (["fabric", "show", "dgx3"], ["`dgx3`", "did you mean `dgx2`?"]),
    (["fabric", "advise", "none.yaml"], ["none.yaml", "no such file"]),
    (["fabric", "lst"], ["`lst`", "did you mean `list`?"]),
    (["schema", "scenari"], ["scenari"]),
]


@pytest.mark.parametrize(("arguments", "told"), COMMANDS, ids=lambda value: " ".join(value)[:60])
def test_a_command_that_is_no_command(folder, allrail_cli, arguments, told):
    outcome = allrail_cli(*arguments)
    check(outcome, folder, {"scenario.yaml"})
    for part in told:
        assert part in outcome.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dimensions: []\n", "fabric.yaml:1: `dimensions`"),
        ("dimensions: [{kind: ring, size: 8}]\n", "fabric.yaml:1: `dimensions[0].bandwidth`"),
        ("[]\n", "fabric.yaml"),
        ("dimension: []\n", "did you mean `dimensions`?"),
        ("fabric: today\n", "fabric.yaml:1: `fabric`"),
    ],
)
def test_a_fabric_file(folder, allrail_cli, text, told):
    (folder / "fabric.yaml").write_text(text)
    before = {"scenario.yaml", "fabric.yaml"}
    outcome = allrail_cli("simulate", "scenario.yaml", "--set", "fabric=fabric.yaml")
    check(outcome, folder, before)
    assert told in outcome.stderr
    outcome = allrail_cli("fabric", "show", "fabric.yaml")
    check(outcome, folder, before)
    assert told in outcome.stderr


class TestPlans:
    """Plan files that are broken, edited, or made for something else."""

    @pytest.fixture
    def plan(self, folder, allrail_cli) -> Path:
        path = folder / "plan.json"
        assert allrail_cli("plan", "scenario.yaml", "--out", str(path)).status == 0
        return path

    def run(self, folder, allrail_cli, *more: str):
        outcome = allrail_cli("simulate", "scenario.yaml", "--plan", "plan.json", *more)
        check(outcome, folder, {"scenario.yaml", "plan.json"})
        assert outcome.stderr.startswith("error: plan.json"), outcome.stderr
        return outcome

    @pytest.mark.usefixtures("plan")
    def test_a_plan_for_another_fabric(self, folder, allrail_cli):
        outcome = self.run(folder, allrail_cli, "--set", "fabric=3D-SW_SW_SW_homo")
        assert "fabric" in outcome.stderr

    @pytest.mark.usefixtures("plan")
    def test_a_plan_for_another_size(self, folder, allrail_cli):
        self.run(folder, allrail_cli, "--set", "collective.size=2 GiB")

    def test_a_plan_outside_its_range_of_sizes(self, folder, allrail_cli, plan):
        tree = json.loads(plan.read_text())
        tree["plans"][0]["sizes"] = {"from": "1 MiB", "to": "1536 MiB"}
        plan.write_text(json.dumps(tree))
        outcome = self.run(folder, allrail_cli, "--set", "collective.size=2 GiB")
        assert "1 MiB to 1536 MiB" in outcome.stderr
        assert "2 GiB" in outcome.stderr
        inside = ("--set", "collective.size=512 MiB")
        told = allrail_cli("simulate", "scenario.yaml", "--plan", "plan.json", *inside)
        assert told.status == 0, told.stderr

    def test_a_plan_whose_range_lacks_its_own_size(self, folder, allrail_cli, plan):
        tree = json.loads(plan.read_text())
        tree["plans"][0]["sizes"] = {"from": "1 MiB", "to": "2 MiB"}
        plan.write_text(json.dumps(tree))
        assert "sizes" in self.run(folder, allrail_cli).stderr

    def test_a_plan_that_lost_a_stage(self, folder, allrail_cli, plan):
        tree = json.loads(plan.read_text())
        tree["plans"][0]["chunks"][5]["stages"].pop(1)
        plan.write_text(json.dumps(tree))
        outcome = self.run(folder, allrail_cli)
        assert "chunk" in outcome.stderr
        assert "5" in outcome.stderr

    def test_a_plan_with_an_unknown_key(self, folder, allrail_cli, plan):
        tree = json.loads(plan.read_text())
        tree["plans"][0]["polcy"] = "themis"
        plan.write_text(json.dumps(tree))
        assert "polcy" in self.run(folder, allrail_cli).stderr

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 9, "plans": []}'])
    def test_a_plan_that_is_none(self, folder, allrail_cli, plan, text):
        plan.write_text(text)
        self.run(folder, allrail_cli)


def run(folder, *arguments, limit=None, **streams):
    """Run the command line in a process of its own."""

    def no_more():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "allrail", *arguments],
        cwd=folder,
        text=True,
        stderr=subprocess.PIPE,
        check=False,
        preexec_fn=no_more if limit else None,
        **streams,
    )


@pytest.mark.parametrize(
    "command", ["simulate scenario.yaml", "--version", "--help", "plan --help"]
)
def test_a_full_standard_output_is_one_line(folder, command):
    with Path("/dev/full").open("w") as full:
        outcome = run(folder, *command.split(), stdout=full)
    assert (outcome.returncode, outcome.stderr.count("\n")) == (2, 1), outcome
    assert outcome.stderr.startswith("error: standard output: it cannot be written: No space")


def test_a_closed_standard_output_is_one_line(folder):
    command = f"exec {sys.executable} -m allrail simulate scenario.yaml >&-"
    outcome = subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, text=True, capture_output=True, check=False
    )
    assert (outcome.returncode, outcome.stderr) == (
        2,
        "error: standard output: it cannot be written: it is closed\n",
    )


@pytest.mark.parametrize("limit", [1_000, 30_000])
def test_a_full_disk_leaves_no_half_folder(folder, limit):
    before = {path.name for path in folder.iterdir()}
    outcome = run(
        folder, "simulate", "scenario.yaml", "--out", "out", limit=limit, stdout=subprocess.DEVNULL
    )
    assert outcome.returncode == 2, outcome
    assert outcome.stderr.startswith("error: --out: `out`: it cannot be written: "), outcome
    assert "Traceback" not in outcome.stderr
    assert {path.name for path in folder.iterdir()} == before


STEP = """schema_version: 1
fabric: dgx2
workload: {model: transformer_base, compute: {device: v100}}
"""


def test_a_trace_that_does_not_fit_on_the_disk_is_an_output_that_cannot_be_written(folder):
    (folder / "step.yaml").write_text(STEP)
    before = {path.name for path in folder.iterdir()}
    outcome = run(folder, "export", "step.yaml", "--chakra", "out", limit=10_000)
    assert outcome.returncode == 2, outcome
    assert outcome.stderr.startswith("error: --chakra: `out`: it cannot be written: File too large")
    assert {path.name for path in folder.iterdir()} == before


def test_a_file_that_is_a_device_is_written_and_not_replaced(folder, allrail_cli):
    outcome = allrail_cli("plan", "scenario.yaml", "--out", "/dev/full")
    check(outcome, folder, {"scenario.yaml"})
    assert "No space left" in outcome.stderr
    assert Path("/dev/full").is_char_device()


def test_values_of_an_option_may_be_mappings_of_several_keys(folder, allrail_cli):
    values = "{policy: themis},{policy: themis, chunks: 4},{policy: baseline, chunks: 4}"
    outcome = allrail_cli("compare", "scenario.yaml", "--each", f"schedule={values}", "--json")
    rows = json.loads(outcome.stdout)["rows"]
    assert [row["sets"]["schedule"].get("chunks") for row in rows] == [None, 4, 4]


def test_a_wrong_variant_is_a_row_and_the_others_run(folder, allrail_cli):
    outcome = allrail_cli("compare", "scenario.yaml", "--policy", "baseline,themiss,themis")
    assert outcome.status == 1
    rows = [line.split()[:2] for line in outcome.stdout.splitlines()[1:4]]
    assert [row[0] for row in rows] == ["baseline", "themis", "themiss"]
    assert rows[2][1] == "error_1"
    assert "# error_1: `schedule.policy` is `themiss`: it is not a policy" in outcome.stdout
    assert "did you mean `themis`?" in outcome.stdout
    told = json.loads(
        allrail_cli("compare", "scenario.yaml", "--policy", "themis,themiss", "--json").stdout
    )
    assert "result" in told["rows"][0]
    assert "not a policy" in told["rows"][1]["error"]["message"]


def test_a_second_run_into_a_folder_says_so(folder, allrail_cli):
    first = allrail_cli("simulate", "scenario.yaml", "--out", "out")
    second = allrail_cli("simulate", "scenario.yaml", "--out", "out", "--set", "seed=2")
    assert "held the results" not in first.stderr
    assert "warning: `out` held the results of another run; they are replaced" in second.stderr


MIXED_UP = {
    "scenario.yaml": "schema_version: 1\nfabric: today\nworkload: {model: gpt2}\n",
    "fabric.yaml": "schema_version: 1\ndimensions: [{kind: ring, size: 4, bandwidth: 1 GB/s}]\n",
    "config.json": '{"model_type": "llama", "hidden_size": 64}',
}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["simulate", "fabric.yaml"],
            ["this is a fabric, and a scenario", "`fabric: fabric.yaml`"],
        ),
        (["simulate", "config.json"], ["this is a model, and a scenario", "model: config.json"]),
        (["fabric", "show", "scenario.yaml"], ["this is a scenario, and a fabric"]),
        (["expect", "config.json"], ["this is a model, and a fabric"]),
        (
            ["plan", "--model", "scenario.yaml", "--fabric", "today", "--npus", "8"],
            ["this is a scenario, and a model", "`workload.model`"],
        ),
    ],
)
def test_a_file_of_another_kind_is_named(arguments, told, tmp_path, monkeypatch, allrail_cli):
    monkeypatch.chdir(tmp_path)
    for name, text in MIXED_UP.items():
        (tmp_path / name).write_text(text)
    outcome = allrail_cli(*arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    for part in told:
        assert part in outcome.stderr
