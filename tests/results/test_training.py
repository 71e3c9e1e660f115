"""What `--out` writes of training steps: tables, traces that analysers read, pictures, a page."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from itertools import pairwise

import polars as pl
import pytest

import allrail
from allrail.output.kineto import elements, kernel_name
from allrail.output.training import frames, write_training

FABRIC = {
    "name": "small",
    "dimensions": [
        {"kind": "switch", "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"},
        {"kind": "ring", "size": 4, "bandwidth": "50 GB/s", "latency": "1 us"},
        {"kind": "switch", "size": 2, "bandwidth": "25 GB/s", "latency": "1 us"},
    ],
}


def scenario(**workload):
    return allrail.load_scenario(
        {
            "schema_version": 1,
            "fabric": FABRIC,
            "workload": {
                "model": "bert_large",
                "batch_per_replica": 8,
                "parallelism": {"tp": 4, "pp": 4, "dp": 2, "microbatches": 8},
                "compute": {"device": "a100", "efficiency": 0.5},
                "iterations": 3,
                **workload,
            },
            "schedule": {"policy": "themis", "chunks": 8, "tensor": "bytescheduler"},
        }
    )


@pytest.fixture(scope="module")
def step():
    return allrail.simulate(scenario(), timeline=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, step):
    path = tmp_path_factory.mktemp("written") / "out"
    rows = allrail.what_if(scenario(), ["infinite_bandwidth", "dim1_x2"], result=step)
    write_training(path, results={"one": step}, scenarios={"one": scenario()}, what_ifs=rows)
    return path


def trace(path):
    with gzip.open(path) as file:
        return json.load(file)


def test_every_file_is_there(folder):
    pictures = ("step", "breakdown", "actors", "what_ifs")
    tables = (
        *("training", "exposed", "dimensions", "actors", "critical_path"),
        *("passes", "timeline", "what_ifs"),
    )
    assert {entry.name for entry in folder.iterdir()} == {
        *(f"{name}.{ending}" for name in pictures for ending in ("svg", "png")),
        *(f"{name}.{ending}" for name in tables for ending in ("csv", "parquet")),
        *("trace.json.gz", "kineto", "report.html", "result.json", ".allrail.json"),
    }
    assert len(list((folder / "kineto").iterdir())) == 4  # a stage each


def test_the_same_results_give_the_same_bytes_and_a_run_without_traces_takes_them_away(
    folder, tmp_path, step
):
    rows = allrail.what_if(scenario(), ["infinite_bandwidth", "dim1_x2"], result=step)
    out = tmp_path / "out"
    write_training(out, results={"one": step}, scenarios={"one": scenario()}, what_ifs=rows)
    for entry in folder.rglob("*"):
        if entry.is_file():
            other = out / entry.relative_to(folder)
            assert other.read_bytes() == entry.read_bytes(), entry.name
    bare = allrail.simulate(scenario())
    write_training(out, results={"one": bare}, scenarios={"one": scenario()})
    assert (folder / "kineto").is_dir()
    assert not (out / "kineto").exists()
    assert not (out / "trace.json.gz").exists()
    assert not (out / "step.png").exists()


def test_the_tables_hold_the_results(step):
    tables = frames({"one": step}, {"one": scenario()})
    row = tables["training"].row(0, named=True)
    assert row["step_time_us"] == step.step_time_us
    assert row["workload"] == "bert_large"
    exposed = dict(zip(*tables["exposed"].select("purpose", "exposed_us"), strict=True))
    assert sum(exposed.values()) == pytest.approx(step.exposed_communication_us)
    assert tables["actors"].height == 4
    assert tables["timeline"].height == len(step.timeline)
    assert tables["critical_path"]["share"].sum() == pytest.approx(1, abs=1e-6)


def test_csv_and_parquet_are_one_table(folder):
    for parquet in folder.glob("*.parquet"):
        table = pl.read_parquet(parquet)
        csv = pl.read_csv(parquet.with_suffix(".csv"), schema=table.schema)
        assert csv.equals(table), parquet.name


def test_the_trace_has_a_process_an_actor_and_a_track_a_dimension(folder, step):
    events = trace(folder / "trace.json.gz")["traceEvents"]
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert len(processes) == len(step.actors) == 4
    assert all("for 8 alike" in name for name in processes)
    tracks = defaultdict(set)
    for event in events:
        if event["name"] == "thread_name":
            tracks[event["pid"]].add(event["args"]["name"].partition(",")[0])
    for names in tracks.values():
        assert {"steps", "compute", "dim1 switch of 4", "dim2 ring of 4"} <= names
    slices = [event for event in events if event.get("cat") == "kernel"]
    assert len(slices) == len(step.timeline)
    by_track = defaultdict(list)
    for event in slices:
        by_track[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_track.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 1e-6


def merged(spans):
    """Disjoint spans that cover the same time."""
    found = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found


def test_an_analyser_finds_the_same_compute_in_the_trace(folder, step):
    """As overlap analysers do: kernels named `nccl` are communication, all others compute."""
    steady = step.steps_us[0], sum(step.steps_us)
    for rank, actor in enumerate(step.actors):
        path = folder / "kineto" / f"rank_{actor.first_rank}.json.gz"
        tree = trace(path)
        assert tree["distributedInfo"]["rank"] == actor.first_rank, rank
        kernels = [event for event in tree["traceEvents"] if event.get("cat") == "kernel"]
        assert {event["pid"] for event in kernels} == {rank}
        spans = {True: [], False: []}
        for event in kernels:
            begin, end = event["ts"], event["ts"] + event["dur"]
            begin, end = max(begin, steady[0]), min(end, steady[1])
            if begin < end:
                spans[re.match(r"nccl.*Kernel", event["name"]) is not None].append((begin, end))
        iterations = len(step.steps_us) - 1
        compute = sum(end - start for start, end in merged(spans[False])) / iterations
        assert compute == pytest.approx(actor.compute_us, rel=1e-6)
        both = merged(spans[False] + spans[True])
        alone = sum(end - start for start, end in both) / iterations - compute
        # What is sent while nothing is computed is exposed, or waits for others that are slower.
        assert alone <= actor.exposed_communication_us + actor.waiting_us + 1e-6


def test_kernels_carry_what_kineto_records(folder):
    events = trace(folder / "trace.json.gz")["traceEvents"]
    sent = [event for event in events if event.get("cat") == "kernel" and "nccl" in event["name"]]
    names = {event["args"]["Collective name"] for event in sent}
    assert names == {"allreduce", "send"}
    for event in sent:
        assert event["name"].startswith("ncclDevKernel_")
        assert event["args"]["dtype"] == "Half"
        assert event["args"]["Group size"] >= 2
        assert event["args"]["Process Group Name"]


def test_the_elements_of_a_collective_are_shared_out(folder, step):
    events = trace(folder / "trace.json.gz")["traceEvents"]
    given = defaultdict(float)
    for event in events:
        if event.get("cat") == "kernel" and "AllReduce" in event["name"]:
            dimension = event["tid"] // 1000
            given[event["pid"], dimension] += event["args"]["In msg nelems"]
    numbers = {actor.name: place for place, actor in enumerate(step.actors)}
    asked = {
        (numbers[piece.actor], int(piece.track[3:]) - 1, piece.communication): piece.bytes / 2
        for piece in step.timeline
        if piece.operation == "all_reduce"
    }
    whole = defaultdict(float)
    for (actor, dimension, _), count in asked.items():
        whole[actor, dimension] += count
    assert given.keys() == whole.keys()
    for key, count in given.items():
        assert count == pytest.approx(whole[key], rel=1e-3)


def test_the_first_line_of_a_trace_names_its_rank(folder):
    """Analysers search for it before they read the file."""
    for path in (folder / "kineto").iterdir():
        with gzip.open(path, "rt") as file:
            found = re.search(r'"rank":\s+(\d+)', file.readline())
        assert found is not None
        assert path.name == f"rank_{found[1]}.json.gz"


@pytest.mark.parametrize(
    ("operation", "precision", "name"),
    [
        ("all_reduce", "fp16", "ncclDevKernel_AllReduce_Sum_f16_RING_LL"),
        ("reduce_scatter", "bf16", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"),
        ("all_gather", "fp32", "ncclDevKernel_AllGather_RING_LL"),
        ("all_to_all", "fp16", "ncclDevKernel_SendRecv"),
        ("send", "fp16", "ncclDevKernel_SendRecv"),
    ],
)
def test_kernels_are_named_as_nccl_names_them(operation, precision, name):
    assert kernel_name(operation, precision).partition("(")[0] == name


def test_elements_go_in_and_come_out():
    assert elements("all_reduce", 1024, 8) == (1024, 1024)
    assert elements("reduce_scatter", 1024, 8) == (1024, 128)
    assert elements("all_gather", 1024, 8) == (128, 1024)
    assert elements("send", 1024, 8) == (1024, 0)


def test_the_page_shows_everything_and_needs_no_network(folder, step):
    text = (folder / "report.html").read_text()
    for word in ("bert_large", "uncalibrated", "The critical path", "infinite bandwidth", "stage"):
        assert word in text
    assert f"A step takes {step.step_time_us / 1e3:,.3f} ms" in text
    assert not re.search(r'(src|href)="https?:', text)
    # The model is named, not printed layer by layer.
    assert len(text) < 4_000_000


def test_result_json_holds_inputs_and_what_ifs(folder, step):
    tree = json.loads((folder / "result.json").read_text())
    assert tree["results"][0]["scenario"] == json.loads(scenario().to_json())
    assert tree["results"][0]["result"]["step_time_us"] == step.step_time_us
    assert "timeline" not in tree["results"][0]["result"]
    assert [one["name"] for one in tree["what_ifs"]] == ["infinite_bandwidth", "dim1_x2"]


@pytest.mark.parametrize("network_model", ["links", "flows"])
def test_in_network_models_of_messages_links_and_what_is_under_way_are_written(
    tmp_path, network_model
):
    tree = {
        "schema_version": 1,
        "fabric": FABRIC if network_model == "links" else {"topology": "torus", "shape": [4, 8]},
        "workload": {
            "model": "resnet50",
            "batch_per_replica": 1,
            "compute": {"device": "a100"},
            "iterations": 2,
        },
        "schedule": {"chunks": 2},
        "network_model": network_model,
    }
    given = allrail.load_scenario(tree)
    result = allrail.simulate(given, timeline=True)
    write_training(tmp_path / "out", results={"one": result}, scenarios={"one": given})
    links = pl.read_parquet(tmp_path / "out" / "links.parquet")
    assert links["name"].to_list() == [one.name for one in result.links]
    busiest = pl.read_parquet(tmp_path / "out" / "busiest_links.parquet")
    assert busiest["utilisation"].is_sorted(descending=True)
    assert links["max"].max() == busiest["utilisation"][0] > 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert result.busiest_links[0].name in page
    kernels = [
        event
        for event in trace(tmp_path / "out" / "trace.json.gz")["traceEvents"]
        if event.get("cat") == "kernel" and event["name"].startswith("ncclDevKernel_AllReduce")
    ]
    carried = [piece for piece in result.timeline if piece.operation == "all_reduce"]
    assert len(kernels) == len(carried) > 0
