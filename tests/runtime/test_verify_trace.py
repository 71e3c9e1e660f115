"""`allrail verify` on traces of PyTorch's profiler: made up of a link that is known, and real."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os

import pytest
import yaml

from allrail.base.errors import InputError
from allrail.measure.calibrate.predict import run as simulated
from allrail.measure.verify import verify_trace

RANKS = 4
MS = 1000.0
TRUTH = {"kind": "switch", "size": RANKS, "bandwidth": "10 GB/s", "latency": "50 us"}
LARGE, SMALL = 64_000_000, 4_096


def span(name, start, length, stream, **said):
    event = {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length}
    return event | {"args": {"stream": stream, **said}}


def reduces(start, length, size, ranks=RANKS):
    said = {
        "Collective name": "allreduce",
        "In msg nelems": size // 4,
        "Out msg nelems": size // 4,
        "dtype": "Float",
        "Group size": ranks,
        "Process Group Ranks": str(list(range(ranks))),
    }
    return span("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, length, 20, **said)


def a_trace(rank, *, steps=3, truth=TRUTH, late=lambda _rank, _step: 0.0, slower=lambda _step: 1.0):
    """A step computes, exchanges a large and a small tensor, and computes again."""
    events, now = [], 1000 * MS
    large, small = (simulated("all_reduce", [truth], size, chunks=16) for size in (LARGE, SMALL))
    most = [max(late(each, step) for each in range(RANKS)) for step in range(steps)]
    for step in range(steps):
        begun, mine = now, late(rank, step)
        events.append(span("gemm", now, 20 * MS + mine, 7))
        # Whoever comes first waits in the kernel.
        met = begun + 20 * MS + most[step]
        first = begun + 20 * MS + mine
        took = large * slower(step)
        events.append(reduces(first, met + took - first, LARGE))
        now = met + took
        events.append(reduces(now, small, SMALL))
        now += small
        events.append(span("adam", now, 5 * MS, 7))
        now += 5 * MS
        mark = {"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{step + 7}"}
        events.append({**mark, "ts": begun, "dur": now - begun})
    head = {"rank": rank, "world_size": RANKS}
    return {"distributedInfo": head, "traceEvents": events}


def written(folder, traces):
    folder.mkdir(exist_ok=True)
    for rank, one in enumerate(traces):
        text = json.dumps(one).encode()
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text))
    return folder


def planned(folder, **changed):
    path = folder / "planned.yaml"
    dimension = {**TRUTH, **changed}
    path.write_text(yaml.safe_dump({"schema_version": 1, "name": "p", "dimensions": [dimension]}))
    return str(path)


def of_all(tmp_path, **options):
    return written(tmp_path / "traces", [a_trace(rank, **options) for rank in range(RANKS)])


def test_a_fabric_that_is_as_planned_is_not_blamed(tmp_path):
    verdict = verify_trace([of_all(tmp_path)], fabric=planned(tmp_path))
    assert (verdict.ranks, verdict.steps, verdict.rank) == (RANKS, 3, None)
    assert verdict.difference == pytest.approx(0, abs=0.01)
    assert verdict.worst is None
    assert [one.number for one in verdict.each] == [7, 8, 9]
    for one in verdict.each:
        assert one.planned_ms == pytest.approx(one.measured_ms, rel=0.01)
    for one in verdict.exchanges:
        assert one.predicted_ms == pytest.approx(one.measured_ms, rel=0.01)
    assert {one.bytes for one in verdict.exchanges} == {LARGE, SMALL}


def test_a_slow_link_is_named_and_found(tmp_path):
    verdict = verify_trace([of_all(tmp_path)], fabric=planned(tmp_path, bandwidth="25 GB/s"))
    assert verdict.difference < -0.1
    assert verdict.worst == "dimension 0's bandwidth"
    [found] = verdict.dimensions
    assert found.gbps == pytest.approx(80, rel=0.02)
    assert verdict.refitted_ms == pytest.approx(verdict.measured_ms, rel=0.01)
    assert verdict.fabric["calibrated"] is True
    assert verdict.bar < 0.05


def test_a_latency_that_is_off_is_found_by_small_collectives(tmp_path):
    fabric = planned(tmp_path, latency="1 ms")
    verdict = verify_trace([of_all(tmp_path)], fabric=fabric)
    told = {one.what: one for one in verdict.assumptions}
    assert told["dimension 0's latency"].planned == "1 ms"
    found = float(told["dimension 0's latency"].measured.split()[0])
    assert found == pytest.approx(50, rel=0.1)
    assert verdict.worst == "dimension 0's latency"


def test_whoever_waits_for_the_last_is_no_slow_network(tmp_path):
    def late(rank, step):
        return 30 * MS if rank == step % RANKS else 0.0

    verdict = verify_trace([of_all(tmp_path, late=late)], fabric=planned(tmp_path))
    assert verdict.worst is None
    assert verdict.difference == pytest.approx(0, abs=0.02)
    large = next(one for one in verdict.exchanges if one.bytes == LARGE)
    assert large.predicted_ms == pytest.approx(large.measured_ms, rel=0.02)
    # One rank's trace cannot tell, and says so.
    alone = tmp_path / "traces" / "rank1.json.gz"
    verdict = verify_trace([alone], fabric=planned(tmp_path))
    assert any("waiting for others is in its collectives" in note for note in verdict.notes)


def test_every_step_is_compared_with_itself(tmp_path):
    folder = of_all(tmp_path, slower=lambda step: (1.0, 1.0, 3.0)[step])
    verdict = verify_trace([folder], fabric=planned(tmp_path))
    off = [one.planned_ms / one.measured_ms - 1 for one in verdict.each]
    assert off[:2] == pytest.approx([0, 0], abs=0.01)
    assert off[2] < -0.3
    assert verdict.bar > 0.3
    one = verify_trace([folder], fabric=planned(tmp_path), step=9)
    assert one.steps == 1
    assert one.worst == "dimension 0's bandwidth"


def test_the_command_says_it_in_the_form_of_a_run(tmp_path, allrail_cli):
    folder, out = of_all(tmp_path), tmp_path / "measured.yaml"
    fabric = planned(tmp_path, bandwidth="25 GB/s")
    told = allrail_cli("verify", str(folder), "--fabric", fabric, "--out", str(out))
    assert told.status == 0, told.stderr
    for word in (
        "4 ranks, 3 steps; every rank computing as it did",
        "predicted, as planned",
        "off the most: dimension 0's bandwidth",
        "step by step",
        "1 x all_reduce, 4 ranks",
        "80 Gb/s",
    ):
        assert word in told.stdout
    page = tmp_path / "page"
    allrail_cli("verify", str(folder), "--fabric", str(out), "--report", str(page))
    html = (page / "report.html").read_text()
    assert "The prediction was right" in html
    assert allrail_cli("report", str(page)).status == 0
    assert (page / "report.html").read_text() == html
    again = allrail_cli("verify", str(folder), "--fabric", str(out), "--json")
    found = json.loads(again.stdout)
    assert found["worst"] is None
    assert abs(found["difference"]) < 0.01
    assert len(found["each"]) == 3


def test_of_a_larger_fabric_ranks_are_neighbours(tmp_path, allrail_cli):
    folder = of_all(tmp_path)
    outcomes = []
    for size in (RANKS, 8 * RANKS):
        fabric = planned(tmp_path, size=size)
        told = allrail_cli("verify", str(folder), "--fabric", str(fabric), "--json")
        assert told.status == 0, told.stderr
        outcomes.append(json.loads(told.stdout))
    whole, part = outcomes
    assert part["planned_ms"] == whole["planned_ms"]
    assert any("4 neighbours of the 32 NPUs" in note for note in part["notes"])


def refused(allrail_cli, *words, told):
    outcome = allrail_cli("verify", *map(str, words))
    assert (outcome.status, outcome.stdout) == (2, "")
    assert told in outcome.stderr
    assert "hint: " in outcome.stderr


def test_what_cannot_be_compared_is_refused(tmp_path, allrail_cli):
    fabric = planned(tmp_path)
    folder = of_all(tmp_path)
    refused(allrail_cli, folder, told="on which network")
    refused(allrail_cli, folder, "--fabric", fabric, "--step", 3, told="no profiler step 3")
    refused(allrail_cli, folder, "--fabric", "no-such", told="no-such")
    two = planned(tmp_path, size=2)
    refused(allrail_cli, folder, "--fabric", two, told="2 NPUs, and the trace is of 4 ranks")
    fabric = planned(tmp_path)
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(a_trace(0))[:-300])
    refused(allrail_cli, cut, "--fabric", fabric, told="it is cut off")
    quiet = a_trace(0)
    quiet["traceEvents"] = [one for one in quiet["traceEvents"] if "nccl" not in one["name"]]
    (tmp_path / "quiet.json").write_text(json.dumps(quiet))
    refused(allrail_cli, tmp_path / "quiet.json", "--fabric", fabric, told="no communication in it")
    other = a_trace(1)
    other["distributedInfo"]["world_size"] = 2
    written(folder, [a_trace(0), other])
    refused(allrail_cli, folder, "--fabric", fabric, told="it is of 2 ranks, and")
    few = written(tmp_path / "few", [a_trace(0), a_trace(1)])
    refused(allrail_cli, few, "--fabric", fabric, told="2 traces are given, and the job has 4")
    (tmp_path / "words.json").write_text("[1, 2")
    refused(allrail_cli, tmp_path / "words.json", "--fabric", fabric, told="no trace")
    model = tmp_path / "config.json"
    model.write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(InputError):
        verify_trace([model], fabric=fabric)


def trained(rank, folder):
    """A few steps over gloo, under PyTorch's profiler."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    os.environ.update({"GLOO_SOCKET_IFNAME": "lo"})
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    weight, gradient = torch.randn(256, 256), torch.randn(1 << 18)
    steps = schedule(wait=1, warmup=1, active=3)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, record_shapes=True) as prof:
        for _ in range(5):
            for _ in range(4):
                weight = torch.tanh(weight @ weight)
            dist.all_reduce(gradient)
            prof.step()
    dist.destroy_process_group()
    prof.export_chrome_trace(str(folder / f"rank{rank}.json"))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_job_over_gloo_is_verified_as_it_was_profiled(tmp_path, on_ranks):
    on_ranks(trained, tmp_path)
    fabric = planned(tmp_path, size=2, bandwidth="10 GB/s", latency="20 us")
    files = [tmp_path / f"rank{rank}.json" for rank in (0, 1)]
    verdict = verify_trace(files, fabric=fabric)
    assert verdict.ranks == 2
    assert verdict.steps >= 2
    # Of one kind of collective the rate is found, whatever this machine's loopback carries.
    [found] = verdict.exchanges
    assert found.bytes == 4 << 18
    assert found.predicted_ms == pytest.approx(found.measured_ms, rel=0.1)
