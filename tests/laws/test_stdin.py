"""Every command that reads a file takes `-`: stdin, to the same end as the file itself.

The command line is walked: what reads a file is of the type `Input` or `Named`, and each has a
case here.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import pytest
import yaml

import allrail_reproduce
from allrail.base import stdin
from allrail.cli import options
from allrail.cli.main import cli
from allrail_reproduce.astra_sim import FOLDER

FABRIC = """\
schema_version: 1
name: eight
dimensions: [{kind: switch, size: 8, bandwidth: 50 GB/s, latency: 1 us}]
"""
TWO = FABRIC.replace("[{", "[{kind: ring, size: 2, bandwidth: 200 GB/s, latency: 1 us}, {")
MESH = """\
schema_version: 1
name: mesh
topology: hammingmesh
board: [2, 2]
grid: [4, 4]
switch_radix: 64
planes: 1
link: {bandwidth: 400 Gb/s, latency: 20 ns}
board_link: {bandwidth: 400 Gb/s, latency: 1 ns}
"""
COLLECTIVE = """\
schema_version: 1
fabric: {dimensions: [{kind: switch, size: 8, bandwidth: 50 GB/s, latency: 1 us}]}
collective: {kind: all_reduce, size: 1 MiB}
schedule: {policy: baseline, chunks: 2}
"""
STEP = """\
schema_version: 1
fabric: {dimensions: [{kind: switch, size: 8, bandwidth: 50 GB/s, latency: 1 us}]}
workload:
  model: {layers: [{name: only, dense: {inputs: 512, outputs: 512}}]}
  batch_per_replica: 8
  compute: {device: a100}
schedule: {policy: baseline, chunks: 2, tensor: {policy: bytescheduler, partition: 1 MiB}}
"""
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
PLUGIN = """\
import allrail

@allrail.chunk_scheduler("twin_of_stdin")
def twin(problem):
    return [problem.visit(problem.dimensions) for _ in problem.chunks]
"""
SIZES = [1 << power for power in range(12, 31, 2)]
TIMES = {size: 30 + size / 1e5 for size in SIZES}
TABLE = "# size count type redop root time algbw busbw #wrong\n" + "".join(
    f"{size} {size // 4} float sum -1 {us:.2f} {size / us / 1e3} {1.75 * size / us / 1e3} 0\n"
    for size, us in TIMES.items()
)
NETWORK = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    **{f"all-{kind}-implementation": ["ring"] for kind in ("reduce", "gather", "to-all")},
    "reduce-scatter-implementation": ["ring"],
}
LAYERS = "MICRO\n1\nar -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1048576 1\n"
REDUCE = {
    "Collective name": "allreduce",
    "In msg nelems": 1 << 20,
    "Out msg nelems": 1 << 20,
    "dtype": "Float",
    "Group size": 8,
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}


def kernel(name, stream, start, length, **said):
    args = {"stream": stream, **said}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "args": args}


TRACE = json.dumps(
    {
        "distributedInfo": {"rank": 0, "world_size": 8},
        "traceEvents": [
            kernel("gemm", 7, 0, 100),
            kernel("ncclDevKernel_AllReduce", 20, 100, 300, **REDUCE),
        ],
    }
)
DEVICE = {
    "schema_version": 1,
    "name": "mine",
    "about": "A device of my own",
    "source": "made up",
    "memory": "80 GB",
    "memory_bandwidth": "2 TB/s",
    "peak": {"fp32": "20 TFLOP/s", "bf16": "300 TFLOP/s"},
}
RUNS = Path(allrail_reproduce.__file__).parent / "runs"


def first_run(name):
    """A table of runs, cut after the first."""
    return "".join((RUNS / name).read_text().splitlines(keepends=True)[:2])


CASES = {
    ("simulate", "scenario"): ("scenario.yaml", COLLECTIVE, "simulate {}"),
    ("simulate", "plugin"): (
        "plugin.py",
        PLUGIN,
        "simulate collective.yaml --plugin {} --set schedule.policy=twin_of_stdin",
    ),
    ("simulate", "plan"): ("plan.json", None, "simulate collective.yaml --plan {}"),
    ("simulate", "network"): ("n.yml", NETWORK, "simulate --astra-sim --network {} SW"),
    ("simulate", "system"): ("s.json", json.dumps(SYSTEM), "simulate --astra-sim --system {} NW"),
    ("simulate", "workload"): ("w.txt", LAYERS, "simulate --astra-sim --workload {} NS"),
    ("simulate", "comm_group"): (
        "g.json",
        '{"0": [0, 1, 2, 3]}',
        "simulate --astra-sim --comm-group {} --workload out/step NS",
    ),
    ("simulate", "remote_memory"): (
        "r.json",
        '{"memory-type": "NO_MEMORY_EXPANSION"}',
        "simulate --astra-sim --remote-memory {} NSW",
    ),
    ("compare", "scenario"): ("scenario.yaml", COLLECTIVE, "compare {} --policy baseline,themis"),
    ("compare", "network"): ("n.yml", NETWORK, "compare PRINTED --network {} SYSTEM STEP GROUP"),
    ("compare", "system"): (
        "s.json",
        json.dumps(SYSTEM),
        "compare PRINTED --system {} NETWORK STEP GROUP",
    ),
    ("compare", "workload"): ("w.txt", (FOLDER / "all_reduce.txt").read_text(), "compare OLD {}"),
    ("compare", "comm_group"): (
        "g.json",
        '{"0": [0, 1, 2, 3]}',
        "compare PRINTED --comm-group {} STEP NETWORK SYSTEM",
    ),
    ("compare", "remote_memory"): (
        "r.json",
        '{"memory-type": "NO_MEMORY_EXPANSION"}',
        "compare PRINTED --remote-memory {} NETWORK SYSTEM STEP GROUP",
    ),
    ("compare", "plugin"): (
        "plugin.py",
        PLUGIN,
        "compare collective.yaml --policy baseline,twin_of_stdin --plugin {}",
    ),
    ("sweep", "study"): (
        "study.yaml",
        "schema_version: 1\nscenario: collective.yaml\naxes: {schedule.chunks: [1, 2]}\n",
        "sweep {} --out swept --workers 1",
    ),
    ("sweep", "plugin"): ("plugin.py", PLUGIN, "sweep twin.yaml --workers 1 --plugin {}"),
    ("tune", "scenario"): ("step.yaml", STEP, "tune {} --trials 2"),
    ("tune", "plugin"): ("plugin.py", PLUGIN, "tune step.yaml --trials 1 --plugin {}"),
    ("plan", "scenario"): ("scenario.yaml", COLLECTIVE, "plan {}"),
    ("plan", "plugin"): (
        "plugin.py",
        PLUGIN,
        "plan collective.yaml --plugin {} --set schedule.policy=twin_of_stdin",
    ),
    ("plan", "model"): ("config.json", json.dumps(LLAMA), "plan --model {} --fabric dgx-h100 ONE"),
    ("plan", "fabric"): ("fabric.yaml", FABRIC, "plan --model gpt2 --fabric {} ONE"),
    ("plan", "device"): (
        "device.json",
        json.dumps(DEVICE),
        "plan --model gpt2 --fabric dgx-h100 --device {} ONE",
    ),
    ("plan", "score"): (
        "layout.yaml",
        "dp: 8\n",
        "plan --model gpt2 --fabric dgx-h100 --score {} ONE",
    ),
    ("require", "scenario"): ("step.yaml", STEP, "require {} --throughput 0.5x-ideal"),
    ("require", "plugin"): (
        "plugin.py",
        PLUGIN,
        "require step.yaml --throughput 0.5x-ideal --plugin {}",
    ),
    ("require", "fabrics"): (
        "fabric.yaml",
        FABRIC,
        "require step.yaml --throughput 0.5x-ideal --fabrics {}",
    ),
    ("require", "prices"): (
        "prices.yaml",
        "switch: 1\naoc: 1\ndac: 1\npcb: 0\n",
        "require step.yaml --throughput 0.5x-ideal --fabrics mesh.yaml --prices {}",
    ),
    ("require", "model"): (
        "config.json",
        json.dumps(LLAMA),
        "require --model {} --fabric eight.yaml --npus 2 --throughput 0.5x-ideal",
    ),
    ("require", "fabric"): (
        "fabric.yaml",
        FABRIC,
        "require --model gpt2 --fabric {} --npus 2 --throughput 0.5x-ideal",
    ),
    ("require", "device"): (
        "device.json",
        json.dumps(DEVICE),
        "require --model gpt2 --fabric eight.yaml --npus 2 --device {} --throughput 0.5x-ideal",
    ),
    ("launch", "token_file"): (
        "token",
        "0123456789abcdef0123456789abcdef\n",
        "launch -n 1 --nodes 2 --node-rank 0 --rendezvous nowhere --token-file {} true",
    ),
    ("verify", "run"): ("trace.json", TRACE, "verify {} --fabric eight.yaml"),
    ("verify", "fabric"): ("fabric.yaml", FABRIC, "verify trace.json --fabric {}"),
    ("apply", "scenario"): ("step.yaml", STEP, "apply {} --out job"),
    ("apply", "plugin"): ("plugin.py", PLUGIN, "apply step.yaml --plugin {} --out job"),
    ("import", "files"): ("trace.json", TRACE, "import {} -o out2"),
    ("import", "groups"): (
        "g.json",
        '{"0": [0, 1, 2, 3]}',
        "import out/step.0.et -o out3 --groups {}",
    ),
    ("export", "scenario"): ("step.yaml", STEP, "export {} --chakra out4"),
    ("fabric advise", "fabric"): ("fabric.yaml", TWO, "fabric advise {}"),
    ("fabric show", "fabric"): ("fabric.yaml", FABRIC, "fabric show {}"),
    ("calibrate network", "files"): ("table.txt", TABLE, "calibrate network {} --ranks 8"),
    ("expect", "fabric"): ("fabric.yaml", FABRIC, "expect {} --ranks 8"),
    ("expect", "measured"): ("table.txt", TABLE, "expect dgx-h100 --measured {} --ranks 8"),
    ("cost", "fabrics"): ("mesh.yaml", MESH, "cost {}"),
    ("cost", "prices"): (
        "prices.yaml",
        "switch: 1\naoc: 1\ndac: 1\npcb: 0\n",
        "cost hx2mesh-1k --prices {}",
    ),
    ("place", "fabric"): ("mesh.yaml", MESH, "place --fabric {} --count 2"),
    ("place", "mix"): (
        "mix.csv",
        "size,jobs\n1,3\n2,1\n",
        "place --fabric hx2mesh-1k --count 2 --mix {}",
    ),
    ("place", "trace"): (
        "jobs.csv",
        "0 s,10 s,1\n1 s,10 s,2x2\n",
        "place --fabric hx2mesh-1k --trace {}",
    ),
    ("reproduce memory", "path"): (
        "runs.csv",
        first_run("memory.csv"),
        "reproduce memory --table {}",
    ),
    ("reproduce runs", "path"): ("runs.csv", first_run("example.csv"), "reproduce runs --table {}"),
}
"""By command and parameter: what the file is called, what is in it (None: made), what is typed."""

SHORT = {
    "SW": "--system system.json --workload layers.txt",
    "NW": "--network network.yml --workload layers.txt",
    "NS": "--network network.yml --system system.json",
    "NSW": "--network network.yml --system system.json --workload layers.txt",
    "NETWORK": "--network network.yml",
    "SYSTEM": "--system system.json",
    "STEP": "--workload out/step",
    "GROUP": "--comm-group group.json",
    "PRINTED": "--astra-sim printed.txt",
    "OLD": f"--astra-sim printed.csv --network {FOLDER}/3d_switch.json"
    f" --system {FOLDER}/3d_switch_themis.txt --workload",
    "ONE": "--npus 8 --fix tp=1,pp=1 --top 1 --schedules 0",
}
BESIDE = {
    "collective.yaml": COLLECTIVE,
    "step.yaml": STEP,
    "eight.yaml": FABRIC,
    "mesh.yaml": MESH,
    "network.yml": NETWORK,
    "system.json": json.dumps(SYSTEM),
    "layers.txt": LAYERS,
    "group.json": '{"0": [0, 1, 2, 3]}',
    "printed.csv": "Name,TotalTime(us),ComputeTime(us)\nthemis,13635.871,0.000\n",
    "printed.txt": "".join(f"sys[{npu}] finished, 9000 cycles.\n" for npu in range(4)),
    "trace.json": TRACE,
    "twin.yaml": "schema_version: 1\nscenario: twin-of.yaml\naxes: {schedule.chunks: [1, 2]}\n",
    "twin-of.yaml": COLLECTIVE.replace("baseline", "twin_of_stdin"),
}


def parameters():
    """Every parameter of every command, by the words that call it."""

    def walk(command, context, words):
        if not isinstance(command, click.Group):
            yield from ((" ".join(words), one) for one in command.params)
            return
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            yield from walk(
                inner, click.Context(inner, info_name=name, parent=context), [*words, name]
            )

    return list(walk(cli, click.Context(cli), []))


READ = [
    (words, one.name)
    for words, one in parameters()
    if isinstance(one.type, options.Input | options.Named)
]


def test_every_path_is_known_to_be_read_or_written():
    kinds = (options.Input, options.Folder, options.Output)
    unknown = [
        (words, one.opts)
        for words, one in parameters()
        if isinstance(one.type, click.Path | click.File) and not isinstance(one.type, kinds)
    ]
    assert not unknown
    assert len(READ) > 40


def test_every_file_that_is_read_has_a_case():
    assert set(CASES) == set(READ)


@pytest.fixture
def files(tmp_path, monkeypatch, allrail_cli):
    """The current folder, with what commands need beside the file that is tried."""
    monkeypatch.chdir(tmp_path)
    for name, text in BESIDE.items():
        (tmp_path / name).write_text(text)
    stdin.forget()
    yield tmp_path
    stdin.forget()


def pipe(monkeypatch, data):
    stdin.forget()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def outcome(told):
    """What a command prints, with one name for the file and for stdin."""
    name = re.compile(r"\bstdin(?:\.\w+)*|(?<=[`\s])-(?=[`\s;:,])")
    shown = (name.sub("stdin", text).split() for text in (told.stdout, told.stderr))
    return told.status, *shown


@pytest.mark.parametrize(
    "case",
    [
        # Its workers are processes.
        pytest.param(case, marks=[pytest.mark.long] if case[0] == "sweep" else [])
        for case in CASES
    ],
    ids=" ".join,
)
def test_stdin_is_as_good_as_the_file(case, files, allrail_cli, monkeypatch):
    name, text, typed = CASES[case]
    if case[0] == "tune":
        pytest.importorskip("optuna", reason="`allrail[tune]`")
    typed = " ".join(SHORT.get(word, word) for word in typed.split())
    if "out/step" in typed:
        export = "export step.yaml --chakra out --set fabric.dimensions[0].size=4"
        assert allrail_cli(*shlex.split(export)).status == 0
    if name == "plan.json":
        assert allrail_cli("plan", "collective.yaml", "--out", "made.json").status == 0
        text = (files / "made.json").read_text()
    # Called so, the file has the name that stdin has.
    file = files / f"stdin.{name.rpartition('.')[2]}"
    file.write_text(text)
    before = set(files.iterdir())
    by_name = outcome(allrail_cli(*shlex.split(typed.format(file.name))))
    for made in set(files.iterdir()) - before:
        shutil.rmtree(made)
    pipe(monkeypatch, text.encode())
    piped = outcome(allrail_cli(*shlex.split(typed.format("-"))))
    assert piped == by_name
    assert piped[0] == (2 if case[0] == "launch" else 0), by_name


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_that_was_piped_in_runs(packed, files, allrail_cli, monkeypatch):
    pipe(monkeypatch, gzip.compress(TRACE.encode()) if packed else TRACE.encode())
    told = allrail_cli("import", "-", "-o", "out")
    assert told.status == 0, told.stderr
    assert allrail_cli("simulate", "out/stdin.yaml").status == 0


@pytest.mark.parametrize("text", [json.dumps(LLAMA), LAYERS.replace("MICRO", "DATA")])
def test_what_a_scenario_points_to_is_kept_beside_it(text, files, allrail_cli, monkeypatch):
    pipe(monkeypatch, text.encode())
    told = allrail_cli("import", "-", "-o", "out", "--name", "mine")
    assert told.status == 0, told.stderr
    stdin.forget()
    run = allrail_cli("simulate", "out/mine.yaml")
    assert run.status == 0, run.stderr


def test_a_recommended_scenario_needs_no_stdin(files, allrail_cli, monkeypatch):
    pipe(monkeypatch, json.dumps(LLAMA).encode())
    told = allrail_cli(
        *shlex.split(f"plan --model - --fabric dgx-h100 {SHORT['ONE']} --out best.yaml")
    )
    assert told.status == 0, told.stderr
    assert yaml.safe_load((files / "best.yaml").read_text())["workload"]["model"]["hugging_face"]
    stdin.forget()
    assert allrail_cli("simulate", "best.yaml").status == 0


@pytest.mark.parametrize(
    ("typed", "data", "said"),
    [
        ("import - -o out", b"\x7fELF" + bytes(64), "stdin"),
        ("import - -o out", b'{"traceEvents": [', "stdin"),
        ("simulate -", b"schema_version: 1\nfab: 1\n", "stdin:2"),
        ("place --fabric hx2mesh-1k --mix -", b"size,jobs\n1,many\n", "stdin:2"),
        ("expect dgx-h100 --measured -", b"", "stdin"),
        ("verify - --fabric dgx-h100", b"words", "stdin"),
    ],
)
def test_a_mistake_is_in_stdin(typed, data, said, files, allrail_cli, monkeypatch):
    pipe(monkeypatch, data)
    told = allrail_cli(*shlex.split(typed))
    assert told.status == 2
    assert said in told.stderr
    assert "/allrail-stdin-" not in told.stderr


@pytest.mark.parametrize("typed", ["import - -o out", "simulate -", "expect dgx-h100 --measured -"])
@pytest.mark.parametrize("closed", [False, True])
def test_a_terminal_pipes_nothing(typed, closed, files, allrail_cli, monkeypatch):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    stdin.forget()
    monkeypatch.setattr(sys, "stdin", None if closed else Terminal(io.BytesIO(b"nothing")))
    told = allrail_cli(*shlex.split(typed))
    assert told.status == 2
    why = "it is closed" if closed else "it is a terminal, and nothing comes from there"
    assert told.stderr.startswith(f"error: stdin: {why}\n")
