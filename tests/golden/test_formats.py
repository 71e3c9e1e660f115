"""`allrail import` and `export`: what goes out comes in again, and what is left out is said."""

from __future__ import annotations

import json
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import allrail
from allrail.scenario.astra_sim.header import LOOPS
from allrail_reproduce.astra_sim import FOLDER
from reference import REFERENCE, needs

ROOT = Path(__file__).parents[2]
SCENARIO = """\
schema_version: 1
fabric:
  name: two
  dimensions:
    - {kind: switch, size: 4, bandwidth: 100 Gb/s, latency: 1 us}
    - {kind: switch, size: 2, bandwidth: 50 Gb/s, latency: 1 us}
workload:
  model:
    layers:
      - {name: a, dense: {inputs: 512, outputs: 512}}
      - {name: b, dense: {inputs: 512, outputs: 512}}
  batch_per_replica: 8
  compute: {device: a100}
schedule: {policy: baseline, chunks: 4}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a scenario in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


def traced(**trace):
    tree = yaml.safe_load(SCENARIO)
    tree["workload"] = {"model": {"trace": trace["path"] if len(trace) == 1 else trace}}
    return tree


def test_an_exported_step_takes_as_long(folder, allrail_cli):
    outcome = allrail_cli("export", "scenario.yaml", "--chakra", "out", "--json")
    assert outcome.status == 0, outcome.stderr
    told = json.loads(outcome.stdout)
    assert (told["files"], told["folder"], told["name"]) == (8, "out", "scenario")
    assert len(list((folder / "out").glob("scenario.*.et"))) == 8
    ours = allrail.simulate("scenario.yaml").to_dict()
    theirs = allrail.simulate(traced(path=str(folder / "out" / "scenario"))).to_dict()
    for key in ("step_time_us", "compute_us", "exposed_us"):
        assert theirs[key] == ours[key]


def test_ranks_that_are_alike_are_written_once(folder, allrail_cli):
    export = ("export", "scenario.yaml", "--chakra", "out", "--ranks", "representative")
    outcome = allrail_cli(*export, "--json")
    assert outcome.status == 0, outcome.stderr
    assert json.loads(outcome.stdout)["files"] == 1
    listed = json.loads((folder / "out" / "scenario.ranks.json").read_text())
    assert listed == {"0": list(range(8))}
    ours = allrail.simulate("scenario.yaml").to_dict()
    tree = traced(path=str(folder / "out" / "scenario"))
    theirs = allrail.simulate(tree).to_dict()
    for key in ("npus", "step_time_us", "compute_us", "exposed_us"):
        assert theirs[key] == ours[key]
    told = json.loads(allrail_cli("import", "out/scenario.0.et", "-o", "all", "--json").stdout)
    assert (told["npus"], told["files"]) == (8, 8)
    # All ranks' files in the same place are no longer one's.
    assert allrail_cli(*export[:4]).status == 0
    assert not (folder / "out" / "scenario.ranks.json").exists()
    assert allrail.simulate(tree).to_dict()["step_time_us"] == ours["step_time_us"]


def test_a_trace_of_eight_ranks_runs_on_a_thousand(folder, allrail_cli):
    allrail_cli("export", "scenario.yaml", "--chakra", "out", "--name", "t")
    tree = traced(path=str(folder / "out" / "t"), scale={})
    tree["fabric"]["dimensions"][1]["size"] = 256
    assert allrail.simulate(tree).to_dict()["npus"] == 1024
    outcome = allrail_cli("import", "out/t.0.et", "--npus", "64", "-o", "big", "--json")
    assert outcome.status == 0, outcome.stderr
    told = json.loads(outcome.stdout)
    assert (told["npus"], told["files"], told["source"]) == (64, 64, "chakra")
    run = allrail_cli("simulate", told["scenario"], "--json")
    assert run.status == 0, run.stderr
    assert json.loads(run.stdout)["npus"] == 64


def test_a_profile_of_pytorch_is_counted_and_runs(folder, allrail_cli):
    def kernel(name, stream, start, length, **args):
        return {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "ts": start,
            "dur": length,
            "args": {"stream": stream, **args},
        }

    reduce = {
        "Collective name": "allreduce",
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20,
        "dtype": "Float",
        "Group size": 4,
        "Process Group Ranks": "[0, 1, 2, 3]",
    }
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1},
        kernel("gemm", 7, 10, 100),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 110, 50, **reduce),
    ]
    tree = {"distributedInfo": {"rank": 0, "world_size": 4}, "traceEvents": events}
    (folder / "rank0.json").write_text(json.dumps(tree))
    outcome = allrail_cli("import", "rank0.json", "-o", "out")
    assert outcome.status == 0, outcome.stderr
    lines = [line.split(maxsplit=3) for line in outcome.stdout.splitlines()]
    assert ["kept", "1", "100.0", "kernels"] in lines
    assert ["kept", "1", "50.0", "collectives"] in lines
    assert ["sum", "-", "150.0", "as the trace measured it"] in lines
    left = "operators of the host: their kernels stand for them"
    assert ["dropped", "1", "-", left] in lines
    assert "# the trace of one rank stands for all 4" in outcome.stdout
    run = allrail_cli("simulate", "out/rank0.yaml", "--json")
    assert run.status == 0, run.stderr
    assert json.loads(run.stdout)["compute_us"] == pytest.approx(100)


def profile(folder, name, network_model, kernels, rank=0):
    """A trace of PyTorch's profiler: kernels as (name, stream, start, length, arguments)."""
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": kernel,
            "ts": start,
            "dur": length,
            "args": {"stream": stream, **said},
        }
        for kernel, stream, start, length, said in kernels
    ]
    tree = {"distributedInfo": {"rank": rank, "world_size": network_model}, "traceEvents": events}
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(tree))


def test_what_is_not_understood_is_exposed_communication_and_no_compute(folder, allrail_cli):
    unknown = ("ncclDevKernel_Generic", 20, 100, 60, {})
    profile(folder, "r.json", 4, [("gemm", 7, 0, 100, {}), unknown, ("step", 7, 160, 40, {})])
    outcome = allrail_cli("import", "r.json", "-o", "out", "--json")
    told = json.loads(outcome.stdout)
    assert told["measured"] == {"communication whose collective is not known": 1}
    assert sum(told["measured_us"].values()) == pytest.approx(200), "the trace's"
    assert outcome.stderr.startswith("warning: 1 of 1 communication, 100 % of their time")
    run = json.loads(allrail_cli("simulate", told["scenario"], "--json").stdout)
    assert run["compute_us"] == pytest.approx(140)
    assert run["exposed_us"]["other"] == pytest.approx(60)


@pytest.mark.parametrize("name", ["plain", "with a space", "it's"])
@pytest.mark.parametrize("network_model", [1, 4])
def test_the_command_that_is_printed_runs(folder, allrail_cli, name, network_model):
    profile(folder, f"{name}.json", network_model, [("gemm", 7, 0, 100, {})])
    outcome = allrail_cli("import", f"{name}.json", "-o", f"out {name}")
    printed = outcome.stdout.splitlines()[-1]
    assert printed.startswith("# run it: allrail simulate ")
    run = allrail_cli(*shlex.split(printed.removeprefix("# run it: "))[1:])
    assert run.status == 0, run.stderr
    assert "compute_us" in run.stdout


def test_a_folder_has_one_trace_a_rank(folder, allrail_cli):
    ranks = 12
    said = {
        "Collective name": "allreduce",
        "In msg nelems": 256,
        "Out msg nelems": 256,
        "dtype": "Half",
    }
    for rank in range(ranks):
        kernels = [("gemm", 7, 0, 10 + rank, {}), ("ncclDevKernel_Generic", 20, 30, 5, said)]
        profile(folder, f"traces/rank{rank}.json", ranks, kernels, rank=rank)
    told = json.loads(allrail_cli("import", "traces", "-o", "out", "--json").stdout)
    assert (told["npus"], told["kept"]["collectives"]) == (ranks, ranks)
    assert told["scenario"] == "out/traces.yaml"
    run = json.loads(allrail_cli("simulate", told["scenario"], "--json").stdout)
    assert run["npus"] == ranks


def test_a_layer_file_gets_a_scenario(folder, allrail_cli):
    shutil.copy(FOLDER / "all_reduce.txt", folder / "layers.txt")
    text = (folder / "layers.txt").read_text().replace("MICRO", "DATA")
    (folder / "layers.txt").write_text(text)
    outcome = allrail_cli("import", "layers.txt", "-o", "out", "--json")
    assert outcome.status == 0, outcome.stderr
    assert json.loads(outcome.stdout)["kept"] == {"layers": 1, "all_reduce": 1}
    run = allrail_cli("simulate", "out/layers.yaml", "--json")
    assert run.status == 0, run.stderr


@pytest.mark.parametrize(
    "command",
    [["import", "r.json", "-o", "out"], ["export", "scenario.yaml", "--chakra", "out"]],
    ids=["import", "export"],
)
def test_a_full_disk_leaves_no_half_trace(folder, command):
    profile(folder, "r.json", 4, [("gemm", 7, 9 * i, 5, {}) for i in range(200)])

    def no_more():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    outcome = subprocess.run(
        [sys.executable, "-m", "allrail", *command],
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        preexec_fn=no_more,
    )
    assert outcome.returncode == 2, outcome
    assert outcome.stderr.startswith("error: "), outcome
    assert "Traceback" not in outcome.stderr
    assert not list(folder.glob("**/*.et"))


def test_a_smaller_trace_replaces_a_larger_one(folder, allrail_cli):
    for network_model in (8, 2):
        profile(folder, "r.json", network_model, [("gemm", 7, 0, 100, {})])
        told = json.loads(allrail_cli("import", "r.json", "-o", "out", "--json").stdout)
        assert len(list((folder / "out").glob("r.*.et"))) == network_model
        assert allrail_cli("simulate", told["scenario"]).status == 0


def test_a_model_gets_a_scenario_and_says_what_it_leaves_open(folder, allrail_cli):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 1000,
        "max_position_embeddings": 131072,
        "num_nextn_predict_layers": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    outcome = allrail_cli("import", "config.json", "-o", "out")
    assert outcome.status == 0, outcome.stderr
    # Two tables, and per layer four maps of attention, three of its feed-forward part, two norms.
    count = 2 * 1000 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    assert f"# {count:,} parameters\n" in outcome.stdout
    assert "4096 tokens a sample, of 131072 positions" in outcome.stdout
    assert "`tie_word_embeddings` false" in outcome.stdout
    assert "not read: `num_nextn_predict_layers` (1)" in outcome.stdout
    assert "# assumed, to be replaced by yours: 1 sample a replica, an A100" in outcome.stdout
    run = allrail_cli(*shlex.split(outcome.stdout.splitlines()[-1].removeprefix("# run it: "))[1:])
    assert run.status == 0, run.stderr
    assert "not read: `num_nextn_predict_layers` (1)" in run.stdout
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text(json.dumps(config))
    (folder / "mine" / "tokenizer.json").write_text("{}")
    outcome = allrail_cli("import", "mine", "-o", "out")
    assert outcome.status == 0, outcome.stderr
    assert (folder / "out" / "mine.yaml").exists()
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    outcome = allrail_cli("import", "config.json", "-o", "other")
    assert outcome.status == 2
    assert "is `mamba`" in outcome.stderr
    assert not list((folder / "other").glob("*"))


BAD = {
    "no file": (["import", "none.json", "-o", "out"], ["none.json"]),
    "no trace": (["import", "none.0.et", "-o", "out"], ["none", "et"]),
    "an unknown format": (["import", "scenario.yaml", "-o", "out"], ["format", ".json.gz"]),
    "several formats": (["import", "a.json", "b.txt", "-o", "out"], ["several formats"]),
    "a step of a layer file": (["import", "a.txt", "--step", "1", "-o", "out"], ["--step"]),
    "a block without NPUs": (["import", "a.0.et", "--at", "4", "-o", "out"], ["--npus"]),
    "no workload": (["export", "plain.yaml", "--chakra", "out"], ["workload"]),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_one_message(folder, allrail_cli, name):
    tree = yaml.safe_load(SCENARIO)
    del tree["workload"]
    tree["collective"] = {"kind": "all_reduce", "size": "1 MiB"}
    (folder / "plain.yaml").write_text(yaml.safe_dump(tree))
    for empty in ("a.json", "b.txt"):
        (folder / empty).touch()
    arguments, told = BAD[name]
    outcome = allrail_cli(*arguments)
    assert outcome.status == 2, outcome
    assert outcome.stderr.startswith("error: ")
    assert "\n\nhint: " in outcome.stderr
    for part in told:
        assert part in outcome.stderr, outcome.stderr
    assert not (folder / "out").exists()


FIELD = REFERENCE / "field"
field = needs("field")


def imported(allrail_cli, *words):
    """What `allrail import` says, and what the scenario that it writes takes."""
    told = json.loads(allrail_cli("import", *words, "-o", "out", "--json").stdout)
    return told, json.loads(allrail_cli("simulate", told["scenario"], "--json").stdout)


def dim1(run):
    return round(run["dimensions"][0]["bytes_per_npu"])


@field
@pytest.mark.parametrize(
    ("name", "collectives", "bytes_per_npu"),
    [
        ("05-coalesced-allgather/rank0.json", 1, 22_020_096),
        ("05-coalesced-allgather/rank0_span_over_calls.json", 1, 22_020_096),
        ("07-coalesced-overlapping-spans/long.json", 2, 55_050_240),
        ("07-coalesced-overlapping-spans/short.json", 2, 55_050_240),
    ],
)
def test_coalesced_calls_lose_no_byte(folder, allrail_cli, name, collectives, bytes_per_npu):
    told, run = imported(allrail_cli, str(FIELD / name))
    assert (told["kept"]["collectives"], told["measured"]) == (collectives, {})
    assert dim1(run) == bytes_per_npu


@field
def test_the_splits_of_an_all_to_all_say_how_many_ranks_there_are(folder, allrail_cli):
    told, run = imported(allrail_cli, str(FIELD / "01-et-split-lists" / "et_rank0.json"))
    assert (told["npus"], told["measured"]) == (8, {})
    # 7/8 of 16 KiB, and twice 7/8 of the all-reduce's 400,000 bytes.
    assert dim1(run) == 14_336 + 700_000
    assert run["step_time_us"] > 0


def test_a_trace_that_says_no_number_of_ranks_is_asked_for_it(folder, allrail_cli):
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float"}
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic", "ts": 1, "dur": 5}
    events = [{**kernel, "args": {**said, "stream": 20, "Out msg nelems": 1000}}]
    (folder / "r.json").write_text(json.dumps({"traceEvents": events}))
    asked = allrail_cli("import", "r.json", "-o", "out")
    assert asked.status == 2
    assert "among how many ranks" in asked.stderr
    assert "`--npus N`" in asked.stderr
    told, run = imported(allrail_cli, "r.json", "--npus", "16")
    assert (told["npus"], run["npus"]) == (16, 16)
    assert dim1(run) == 7500
    verified = allrail_cli("verify", "r.json", "--fabric", "dgx-h100", "--npus", "8")
    assert verified.stdout.startswith("8 ranks"), verified


@field
def test_converted_graphs_without_waits_are_warned_of(folder, allrail_cli):
    case = FIELD / "04-chakra-converted-no-gpu-deps"
    bare, full = (
        json.loads(allrail_cli("simulate", str(case / f"{name}.yaml"), "--json").stdout)
        for name in ("bare", "full")
    )
    assert full["step_time_us"] == pytest.approx(3552, abs=1)
    warned = [[note for note in run["notes"] if "upper bound" in note] for run in (bare, full)]
    assert [len(notes) for notes in warned] == [1, 0]
    assert warned[0][0].startswith("warning: in the trace, 1 of 1 communication")
    outcome = allrail_cli("import", str(case / "bare" / "t.0.et"), "-o", "out")
    assert "warning: in the trace, 1 of 1 communication" in outcome.stderr


def layer_file(loop, layers, *, options=""):
    """Layers with a collective of every pass, each of its own size."""
    lines = []
    for i in range(layers):
        kind = "ALLTOALL" if i == 0 else "ALLREDUCE"
        passes = " ".join(f"1 {kind} {(3 * i + k + 1) * 4096}" for k in range(3))
        own = " DATA" if loop == "HYBRID_CUSTOMIZED" else ""
        lines.append(f"layer{i} -1 {passes} 1{own}")
    return "\n".join([f"{loop} {options}".strip(), str(layers), *lines]) + "\n"


OPTIONS = {
    "HYBRID_TRANSFORMER": "model_parallel_NPU_group: 2",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": (
        "model_parallel_NPU_group: 2 checkpoints: 1 0 checkpoint_initiates: 1 2"
    ),
    "HYBRID_DLRM": "1",
    "HYBRID_DLRM_ENHANCED": "1",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_collectives_that_a_loop_leaves_out_are_counted_and_told(folder, allrail_cli, loop):
    (folder / "l.txt").write_text(layer_file(loop, 3, options=OPTIONS.get(loop, "")))
    told, run = imported(allrail_cli, "l.txt")
    kept = sum(count for kind, count in told["kept"].items() if kind != "layers")
    left = sum(told["dropped"].values())
    assert kept + left == 9
    core = [note for note in run["notes"] if "collectives, as in ASTRA-sim" in note]
    assert [f"warning: {one}" for one in told["warnings"]] == core, "both say the same"
    assert bool(left) == bool(core)


def test_micro_says_which_layers_it_does_not_run(folder, allrail_cli):
    rows = [
        f"ar{i} -1 1 NONE 0 1 NONE 0 1 ALLREDUCE {size} 1"
        for i, size in enumerate((1 << 20, 16 << 20, 256 << 20), 1)
    ]
    (folder / "micro.txt").write_text("\n".join(["MICRO", "3", *rows]) + "\n")
    told, run = imported(allrail_cli, "micro.txt")
    assert (told["kept"]["all_reduce"], list(told["dropped"].values())) == (1, [2])
    warning = "`MICRO` runs 1 of the file's 3 collectives, as in ASTRA-sim; the first that it"
    assert told["warnings"][0].startswith(warning)
    assert any(note.startswith(f"warning: {warning}") for note in run["notes"])
