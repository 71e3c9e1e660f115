"""Traces, quartets, groups and batches that cannot be right, outputs that cannot be written.

One message each: field or file, value, why, and what to do; exit status 2, and no half output.
"""

from __future__ import annotations

import gzip
import json
import resource
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]

STEP = """\
schema_version: 1
fabric:
  name: four
  dimensions: [{kind: ring, size: 4, bandwidth: 50 GB/s, latency: 500 ns}]
workload:
  model: {layers: [{name: a, dense: {inputs: 64, outputs: 64}}]}
  batch_per_replica: 8
  compute: {device: a100}
schedule: {policy: baseline, chunks: 2}
"""
NETWORK = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    **{
        f"{kind}-implementation": ["ring"]
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    },
}
FILES = {"network": "n.yml", "system": "s.json", "workload": "t/step"}
QUARTET = ["simulate", "--astra-sim", *(word for k, v in FILES.items() for word in (f"--{k}", v))]


def kernel(name: str, start: float, **args: object) -> dict[str, object]:
    """A kernel of NCCL, as PyTorch's profiler writes it."""
    said = {
        "stream": 20,
        "Collective name": name,
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "dtype": "Float",
        "Group size": 2,
        "Process Group Ranks": "[0, 1]",
    }
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel_Generic",
        "ts": start,
        "dur": 1,
        "args": {**said, **args},
    }


def kineto(rank: int, network_model: int, events: list[dict[str, object]]) -> str:
    """A trace of PyTorch's profiler."""
    head = {"rank": rank, "world_size": network_model}
    return json.dumps({"distributedInfo": head, "traceEvents": events})


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A Chakra trace of four ranks."""
    from allrail.formats.chakra_export import export_chakra
    from allrail.scenario import load_scenario

    folder = tmp_path_factory.mktemp("trace")
    (folder / "step.yaml").write_text(STEP)
    export_chakra(load_scenario(folder / "step.yaml"), folder=folder / "t", name="step")
    return folder / "t"


@pytest.fixture
def folder(tmp_path, monkeypatch, exported):
    """The current folder, with a quartet of four ranks."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(exported, tmp_path / "t")
    (tmp_path / "step.yaml").write_text(STEP)
    (tmp_path / "n.yml").write_text(NETWORK)
    (tmp_path / "s.json").write_text(json.dumps(SYSTEM))
    return tmp_path


def cut_json(folder: Path) -> None:
    text = kineto(0, 2, [kernel("allreduce", 1), kernel("allreduce", 3)])
    (folder / "rank0.json").write_text(text[:-40])


def cut_gzip(folder: Path) -> None:
    events = [kernel("allreduce", 2 * i, stream=i) for i in range(500)]
    packed = gzip.compress(kineto(0, 2, events).encode())
    (folder / "rank0.json.gz").write_bytes(packed[:-200])


def cut_chakra(folder: Path) -> None:
    path = folder / "t" / "step.2.et"
    path.write_bytes(path.read_bytes()[:-5])


def no_rank(folder: Path) -> None:
    (folder / "t" / "step.1.et").unlink()


def twice(folder: Path) -> None:
    for name in ("a.json", "b.json"):
        (folder / name).write_text(kineto(0, 2, [kernel("allreduce", 1)]))


def too_few(folder: Path) -> None:
    for rank in (0, 1):
        text = kineto(rank, 16, [kernel("allreduce", 1, **{"Group size": 16})])
        (folder / f"rank{rank}.json").write_text(text)


def host_alone(folder: Path) -> None:
    call = {"ph": "X", "cat": "cpu_op", "name": "nccl:all_reduce", "ts": 1, "dur": 2, "tid": 1}
    (folder / "rank0.json").write_text(kineto(0, 2, [call]))


def strange_group(folder: Path) -> None:
    ranks = {"Process Group Ranks": "[2, 3]", "Process Group Name": "7"}
    (folder / "rank0.json").write_text(kineto(0, 4, [kernel("allreduce", 1, **ranks)]))


def no_step(folder: Path) -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0, "dur": 9}
    (folder / "rank0.json").write_text(kineto(0, 2, [step, kernel("allreduce", 1)]))


def grouped(text: str):
    """A file of process groups."""

    def put(folder: Path) -> None:
        (folder / "groups.json").write_text(text)

    return put


def network(**changed: object):
    """Another network file."""

    def put(folder: Path) -> None:
        tree = yaml.safe_load(NETWORK) | changed
        (folder / "n.yml").write_text(yaml.safe_dump(tree))

    return put


def system(**changed: object):
    """Another system file."""

    def put(folder: Path) -> None:
        named = {key.replace("_", "-"): value for key, value in changed.items()}
        (folder / "s.json").write_text(json.dumps(SYSTEM | named))

    return put


def nothing(_: Path) -> None:
    pass


def trained(*values: str) -> list[str]:
    """A step with other values."""
    return ["simulate", "step.yaml", *(word for value in values for word in ("--set", value))]


GROUPS = ["--comm-group", "groups.json"]
# What it is: (what is done beforehand, the command, what the message names).
ROWS = {
    "a trace that is cut off": (cut_json, "import rank0.json -o out", ["rank0.json", "cut off"]),
    "a packed trace that is cut off": (
        cut_gzip,
        "import rank0.json.gz -o out",
        ["rank0.json.gz", "cut off"],
    ),
    "a Chakra trace that is cut off": (cut_chakra, "import t/step.0.et -o out", ["step.2.et"]),
    "a rank without a trace": (no_rank, "import t/step.0.et -o out", ["rank 1", "missing"]),
    "two traces of one rank": (twice, "import a.json b.json -o out", ["rank 0", "a.json"]),
    "two traces of 16": (too_few, "import rank0.json rank1.json -o out", ["2 traces", "16 ranks"]),
    "the host's calls alone": (host_alone, "import rank0.json -o out", ["lost", "CUDA"]),
    "a group without its rank": (strange_group, "import rank0.json -o out", ["`7`", "rank 0"]),
    "a step that was not profiled": (no_step, "import rank0.json --step 9 -o out", ["9", "3"]),
    "a folder without a trace": (nothing, "import . -o out", ["no trace"]),
    "a network of another size": (network(npus_count=[8]), QUARTET, ["8", "4"]),
    "a network of unequal lists": (network(topology=["Ring", "Switch"]), QUARTET, ["n.yml"]),
    "an algorithm that there is not": (
        system(all_reduce_implementation=["rong"]),
        QUARTET,
        ["all-reduce-implementation", "rong", "s.json"],
    ),
    "no chunk": (system(preferred_dataset_splits=0), QUARTET, ["preferred-dataset-splits", "0"]),
    "a workload that is not there": (
        nothing,
        [*QUARTET[:-1], "t/stop"],
        ["t/stop"],
    ),
    "a file of groups that is not there": (nothing, [*QUARTET, *GROUPS], ["groups.json"]),
    "a file of groups that is cut off": (
        grouped('{"0": [0, 1'),
        [*QUARTET, *GROUPS],
        ["groups.json"],
    ),
    "a group of a rank that there is not": (
        grouped('{"0": [0, 1, 2, 9]}'),
        [*QUARTET, *GROUPS],
        ["groups.json", "9"],
    ),
    "a group that names a rank twice": (
        grouped('{"0": [0, 1, 1, 2]}'),
        [*QUARTET, *GROUPS],
        ["groups.json", "`0`"],
    ),
    "a group that lacks a rank that is in it": (
        grouped('{"0": [0, 1, 2]}'),
        [*QUARTET, *GROUPS],
        ["rank 3", "`0`"],
    ),
    "groups that lack the one that is asked for": (
        grouped('{"5": [0, 1, 2, 3]}'),
        [*QUARTET, *GROUPS],
        ["`0`", "5"],
    ),
    "two batches": (
        nothing,
        trained("workload.global_batch=64"),
        ["global_batch", "64", "4 replicas of 8"],
    ),
    "a batch that replicas do not divide": (
        nothing,
        trained("workload.batch_per_replica=~", "workload.global_batch=30"),
        ["global_batch", "30", "multiple of 4"],
    ),
    "microbatches that the batch does not divide": (
        nothing,
        trained("workload.micro_batch=3"),
        ["micro_batch", "3"],
    ),
    "no batch": (nothing, trained("workload.batch_per_replica=0"), ["batch_per_replica", "0"]),
    "a folder that is a file": (nothing, "import t/step.0.et -o step.yaml", ["step.yaml"]),
    "a folder in a file": (nothing, "import t/step.0.et -o step.yaml/out", ["step.yaml"]),
    "an export into a file": (nothing, "export step.yaml --chakra n.yml", ["n.yml"]),
    "a picture on a full disk": (
        nothing,
        "fabric show hx2mesh-1k --picture /dev/full",
        ["/dev/full"],
    ),
    "a scenario on a full disk": (
        nothing,
        [*QUARTET, "--write-scenario", "/dev/full"],
        ["/dev/full"],
    ),
    "results in a file": (nothing, [*trained(), "--out", "n.yml/out"], ["n.yml"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_is_one_message(folder, allrail_cli, name):
    prepare, command, told = ROWS[name]
    prepare(folder)
    before = sorted(path.name for path in folder.rglob("*"))
    outcome = allrail_cli(*(command.split() if isinstance(command, str) else command))
    assert outcome.status == 2, outcome
    assert outcome.stdout == ""
    message, blank, hint = outcome.stderr.partition("\n\nhint: ")
    assert message.startswith("error: "), outcome.stderr
    assert "\n" not in message, "one line"
    assert blank, outcome.stderr
    assert hint.strip(), outcome.stderr
    assert "Traceback" not in outcome.stderr
    for part in told:
        assert part in outcome.stderr, outcome.stderr
    assert sorted(path.name for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("chakra.0.json", '{"workload_graph": [{"Id": 1, "NodeType": 4}]}', "give the `.et`"),
        ("rank0.json", '{"id": "3", "type": "COMP_NODE"}', "give the `.et`"),
        ("traces.tar.gz", "", "unpack it"),
        ("jax.trace.json", '{"traceEvents": [{"args": {"hlo_op": "fusion.3"}}]}', "JAX"),
        ("jax.json", '{"traceEvents": [{"args": {"name": "/device:GPU:0"}}]}', "JAX"),
        ("host.xplane.pb", "", "JAX"),
        ("run.nsys-rep", "", "Nsight"),
        ("jax.json", '{"traceEvents": [{"args": {"name": "/host:CPU"}}]}', "JAX"),
        ("run.sqlite", "SQLite format 3", "Nsight"),
        ("run.sqlite", "SQLite format 3 CREATE TABLE NVTX_EVENTS", "Nsight Systems, whose"),
        ("1_results.db", "SQLite format 3 CREATE TABLE rocpd_string", "AMD's rocprof"),
        ("1_results.json", '{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "AMD's rocprof"),
        ("run.json", '{"data": []}\n{"Type": 80, "CudaEvent": {"streamId": 7}}', "Nsight"),
        ("run.jsonl", '{"table": "CUPTI_ACTIVITY_KIND_KERNEL"}', "Nsight"),
        ("plan.json", '{"name": "a", "gpus": [{"id": 0, "input_chunks": 16}]}', "MSCCL++"),
        ("plan.json", '{"gpus": [{"threadblocks": []}], "collective": "allreduce"}', "MSCCL++"),
        ("ring.xml", '<algo name="ring" nchunksperloop="8">', "MSCCL"),
        ("timeline.json", '[{"name": "NEGOTIATE_ALLREDUCE"}]', "Horovod"),
    ],
)
def test_what_is_near_a_trace_is_told_apart(name, text, told, tmp_path, allrail_cli):
    (tmp_path / name).write_text(text)
    outcome = allrail_cli("import", str(tmp_path / name), "-o", str(tmp_path / "out"))
    assert outcome.status == 2
    assert told in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_a_trace_of_pytorch_that_logs_names_of_cupti_is_one(tmp_path, allrail_cli):
    logged = {"INFO": ["CuptiActivityApi.cpp:908] Enabling CUPTI_ACTIVITY_KIND_MEMCPY"]}
    trace = tmp_path / "rank0.json"
    trace.write_text(json.dumps({**logged, **json.loads(EVENTS.read_text())}))
    outcome = allrail_cli("import", str(trace), "-o", str(tmp_path / "out"))
    assert outcome.status == 0, outcome.stderr


def test_a_model_that_cannot_be_imported_is_named_itself(tmp_path, allrail_cli):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "mamba", "hidden_size": 64}')
    outcome = allrail_cli("import", str(file), "-o", str(tmp_path / "out"))
    assert outcome.status == 2
    assert outcome.stderr.startswith(f"error: {file}: ")


EVENTS = ROOT / "examples" / "12-import-a-trace" / "rank0.json"


def members(data: bytes, count: int) -> bytes:
    """A file of `gzip` of several members, the last of them empty."""
    size = -(-len(data) // count)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(gzip.compress(part) for part in (*parts, b""))


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_all_members_of_a_packed_trace_are_read(tmp_path, monkeypatch, allrail_cli, count):
    monkeypatch.chdir(tmp_path)
    shutil.copy(EVENTS, "plain.json")
    Path("packed.json.gz").write_bytes(members(EVENTS.read_bytes(), count))
    told = [
        json.loads(allrail_cli("import", file, "-o", "out", "--json").stdout)
        for file in ("plain.json", "packed.json.gz")
    ]
    for key in ("kept", "measured", "dropped", "nodes", "bytes"):
        assert told[0][key] == told[1][key]


def test_a_packed_trace_that_is_cut_off_between_members_is_no_whole_one(tmp_path, allrail_cli):
    whole = members(EVENTS.read_bytes(), 3)
    first = whole[: whole.index(b"\x1f\x8b", 2)]
    (tmp_path / "cut.json.gz").write_bytes(first)
    outcome = allrail_cli("import", str(tmp_path / "cut.json.gz"), "-o", str(tmp_path / "out"))
    assert outcome.status == 2
    assert "cut off" in outcome.stderr


def bomb(begin: bytes, piece: bytes, end: bytes, *, mebibytes: int) -> bytes:
    """JSON of so many MiB, packed a piece at a time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    many = piece * ((1 << 20) // len(piece))
    parts = [packer.compress(begin), *(packer.compress(many) for _ in range(mebibytes))]
    return b"".join([*parts, packer.compress(end), packer.flush()])


BOMBS = {
    "spaces": (b'{"skipped":', b" ", b'1,"traceEvents":[]}', 300, "250 times"),
    "one event": (b'{"traceEvents": [{"name": "', b"a", b'"}]}', 70, "longer than 64 MiB"),
    "one key": (b'{"', b"a", b'": 1}', 70, "longer than 64 MiB"),
    "one argument": (b'[{"args": {"Input Dims": [', b"1,", b"1]}}]", 70, "longer than 64 MiB"),
    "a nest": (b'{"traceEvents": [{"args": ', b"[", b"", 1, "recursion limit"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_little_memory(name, tmp_path):
    begin, piece, end, mebibytes, told = BOMBS[name]
    (tmp_path / "bomb.json.gz").write_bytes(bomb(begin, piece, end, mebibytes=mebibytes))

    def little():
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    done = subprocess.run(
        [sys.executable, "-m", "allrail", "import", "bomb.json.gz", "-o", "out"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        preexec_fn=little,
        check=False,
    )
    assert done.returncode == 2, done
    assert told in done.stderr
    assert "\n\nhint: " in done.stderr
    assert not (tmp_path / "out").exists()


def test_bounds_of_a_trace_are_raised_by_the_environment(tmp_path, monkeypatch, allrail_cli):
    monkeypatch.chdir(tmp_path)
    shutil.copy(EVENTS, "t.json")
    words = ("import", "t.json", "-o", "out")
    for name, small, told in (
        ("ALLRAIL_MAX_TRACE_BYTES", "1000", "more than 1000 bytes"),
        ("ALLRAIL_MAX_TRACE_EVENTS", "3", "more than 3 events"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, small)
            outcome = allrail_cli(*words)
            assert outcome.status == 2
            assert told in outcome.stderr
            assert name in outcome.stderr, "the hint says how to raise it"
            for wrong in ("many", "-1", "0", "1e9 B"):
                patch.setenv(name, wrong)
                assert "no such number" in allrail_cli(*words).stderr
            patch.setenv(name, "1000000")
            assert allrail_cli(*words).status == 0
    monkeypatch.setenv("ALLRAIL_MAX_TRACE_EVENTS", "5")
    outcome = allrail_cli("simulate", "out/t.yaml")
    assert outcome.status == 2
    assert "more than 5 events" in outcome.stderr
