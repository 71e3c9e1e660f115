"""Mistakes with the verbs of the loop: what is typed, and what is answered, word for word.

The table is `loop.txt`. Each row is exit status 2, nothing on standard output, no file written or
changed, and a message of one line with its hint. The files that it names are made here. Mistakes
within a study are in `test_sweep.py`.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from allrail import _core

TABLE = Path(__file__).with_name("loop.txt").read_text()
ROWS = re.findall(r"^\$ allrail (.+)\n(error: .+\n\nhint: .+\n)", TABLE, re.MULTILINE)

SIZES = [1 << power for power in range(12, 31, 2)]
AROUND = {"all_reduce": 2, "all_gather": 1, "broadcast": 0}


def nccl(ranks=8, *, name="all_reduce", rate=200.0, us=None, wrong=0, sizes=SIZES, alone=False):
    """What nccl-tests print of a network of that rate, GB/s."""
    lines = [f"# Collective test starting: {name}_perf"]
    lines.append("# size count type redop root time algbw busbw #wrong")
    around = AROUND[name] * (ranks - 1) / ranks or 1
    for size in sizes:
        time_us = us or 30 + around * size / rate / 1e3
        algbw = size / time_us / 1e3
        half = f"{time_us:.2f} {algbw:.2f} {0 if alone else around * algbw:.2f} {wrong}"
        lines.append(f"{size} {size // 4} float sum -1 {half}")
    return "\n".join(lines) + "\n"


def record(**more):
    """What a rank writes, as bytes; `without` names a key that is not there."""
    tree = {
        "schema_version": 1,
        "rank": 0,
        "ranks": 2,
        "model": "model",
        "transport": "Native",
        "crosses": True,
        "tensors": [],
        "marks": [],
        "settings": {},
        "timeline": None,
        "report": None,
        "barriers": {},
        **more,
    }
    tree.pop(more.get("without"), None)
    return gzip.compress(json.dumps(tree).encode())


OSU = "# OSU MPI-CUDA Allreduce Latency Test v7.0\n1024 10.0\n1048576 900.0\n"
STEP = """\
schema_version: 1
fabric: {dimensions: [{kind: switch, size: 8, bandwidth: 100 GB/s, latency: 0 s}]}
workload:
  model: {layers: [{name: only, parameters: 500000000, flops: 1}]}
  batch_per_replica: 1
  precision: fp32
  optimizer: none
  compute: {forward: 10 ms, backward: 20 ms}
"""
STEPS = [["round", -1, 1000 * count, 1000 * count + 10] for count in range(9)]
RANK = "rank0-model-restart0.json.gz"
FILES = {
    # What was measured.
    "table.txt": nccl(),
    "over12.txt": nccl(12),
    "slow.txt": nccl(rate=20.0),
    "fast16.txt": nccl(16, rate=900.0),
    "over32.txt": nccl(32),
    "gathered.txt": nccl(16, name="all_gather"),
    "broadcast.txt": nccl(name="broadcast"),
    "two-runs.txt": nccl() + nccl(name="all_gather"),
    "cut.txt": nccl()[:130],
    "wrong.txt": nccl(wrong=3),
    "failed.txt": nccl() + "# Out of bounds values : 7 FAILED\n",
    "alone.txt": nccl(alone=True),
    "flat.txt": nccl(us=40.0),
    "one-size.txt": nccl(sizes=[1 << 30]),
    "log.txt": "mpirun: command not found\n",
    "huge.txt": "9" * 5000 + " 4 float sum -1 35.20 1.00 1.75 0\n# size time algbw busbw\n",
    "osu.txt": OSU,
    "card.txt": "# Rank 0 Group 0 Pid 1 on h device 0 [0000:07:00] NVIDIA H100 PCIe\n" + nccl(),
    "racks.txt": "# Rank 0 Group 0 Pid 1 on h device 0 [0000:07:00] NVIDIA GB200\n" + nccl(1536),
    "slow-all.txt": "# size time algbw busbw\n4096 30.00 0.00 0.00\n8192 30.00 0.00 0.00\n",
    "negative.txt": "# size time algbw busbw\n1024 -5.00 1.00 1.75\n",
    "versions.txt": OSU.replace("10.0", "1.2.3").replace("900.0", "-"),
    "no-results.json": '{"results": []}',
    "cut.json": '{"results": [{"size": 1048576, "out_of',
    "wrong.json": '{"results": [{"size": 8, "out_of_place": {"nwrong": 2}}]}',
    "instant.json": '{"results": [{"size": 8, "out_of_place": {"time": 1e-200}}]}',
    "deep.json": '{"a":' * 100_000,
    # Scenarios, studies, and what is none.
    "step.yaml": STEP,
    "tabs.yaml": STEP.replace("  model", "\tmodel"),
    "twice.yaml": STEP + "fabric: dgx-a100\n",
    "config.json": '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": -3}',
    "bar-3.yml": "schema_version: 1\nname: f\nerror: -3\ndimensions: []\n",
    "prices.yml": "schema_version: 1\nswitch: cheap\n",
    "field-unknown.yml": "schema_version: 1\nscenario: step.yaml\naxes: {seeed: [1, 2]}\n",
    "pointless.yml": "schema_version: 1\nscenario: step.yaml\naxes: {seed: []}\n",
    "trace.json": '{"traceEvents": [{"name": "x"}, 3]}',
    "study.yaml": "schema_version: 1\nscenario: scenario.yaml\naxes: {seed: [1, 2]}\n",
    "empty": "",
    "binary": bytes(range(256)) * 20,
    "journal": '{"op_code": 0}\n',
    "words": '"op_code"\n',
    # What jobs have recorded.
    f"cut-record/{RANK}": record()[:40],
    f"old-record/{RANK}": record(schema_version=0),
    f"half-record/{RANK}": record(without="rank"),
    f"odd-record/{RANK}": record(marks=[["round", -1, "a", "b"]]),
    f"no-steps/{RANK}": record(),
    f"of-c10d/{RANK}": record(marks=STEPS, settings=None, transport="Ordered"),
    # What was computed.
    "swept/sweep.jsonl": '{"made_by": "allrail sweep"}\n',
    "theirs/result.json": '{"made_by": "another"}',
    "hollow/result.json": '{"made_by": "allrail", "results": []}',
    "layouts/result.json": '{"made_by": "allrail", "layouts": {}}',
    "list/result.json": '{"made_by": "allrail", "verdict": []}',
    "tried/result.json": '{"made_by": "allrail", "tuning": {"trials": [], "best": {}}}',
    "half/result.json": '{"made_by": "allrail", "results": [{"name": "one"}]}',
}


def test_the_table_is_read_whole():
    assert len(ROWS) == TABLE.count("$ allrail") == TABLE.count("error: ") > 100
    assert len({typed for typed, _ in ROWS}) == len(ROWS)


@pytest.fixture
def files(folder, monkeypatch):
    """A folder with all that the table names, and what it holds."""
    for name in ("RANK", "WORLD_SIZE", "ALLRAIL_RANK", "ALLRAIL_REFERENCE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def held(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("typed", "answered"), ROWS, ids=[typed for typed, _ in ROWS])
def test_a_mistake(typed, answered, files, allrail_cli):
    if typed.startswith("tune step.yaml --study") and find_spec("optuna") is None:
        pytest.skip("Optuna is not installed: `allrail[tune]`")
    before = held(files)
    told = allrail_cli(*shlex.split(typed))
    assert (told.stderr, told.stdout, told.status) == (answered, "", 2)
    assert held(files) == before


@pytest.mark.parametrize(
    "typed",
    [
        "calibrate network table.txt --out new",
        "plan --model gpt2_xl --fabric dgx-a100 --npus 2 --out new",
        "require step.yaml --throughput 0.9x-ideal --out new",
        "tune step.yaml --trials 2",
        "apply step.yaml --out new",
        "reproduce runs",
        "reproduce themis --out new",
    ],
)
def test_ctrl_c_in_the_midst_of_it(typed, files, allrail_cli, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    # What other tests have simulated is not simulated again.
    import_module("allrail_reproduce.runs.predict")._simulated.cache_clear()
    for name in dir(_core):
        if name.startswith("simulate"):
            monkeypatch.setattr(_core, name, interrupted)
    if typed.startswith("tune"):
        pytest.importorskip("optuna", reason="`allrail[tune]`")
    before = held(files)
    told = allrail_cli(*shlex.split(typed))
    assert (told.stderr, told.stdout, told.status) == ("interrupted\n", "", 130)
    assert held(files) == before
