"""`allrail verify` on records that the test has written itself, of links that it knows."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from allrail.base.errors import InputError
from allrail.measure.verify import verify_records
from allrail.measure.verify.fit import carried
from allrail.scenario import load_scenario

_SPEC = importlib.util.spec_from_file_location("records", Path(__file__).with_name("records.py"))
_RECORDS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_RECORDS)
MS, Recorder = _RECORDS.MS, _RECORDS.Recorder
SIZE = 40_000_000
FORWARD, BACKWARD, OUTSIDE = 20 * MS, 30 * MS, 5 * MS


def a_run(*, gbps, planned, steps=12, rank=0, slower=1.0, jitter=lambda _step: 1.0):
    """Two tensors over one link of two ranks: pieces of it travel in the order of being ready."""
    seen = Recorder()
    free, done, now = 0, {0: 0, 1: 0}, 1000 * MS
    for step in range(steps):
        pace = slower * jitter(step)
        now += int(OUTSIDE * pace)
        begun = now
        for tensor in (1, 0):
            ready = max(now, done[tensor])
            seen.mark("enter", tensor, now, ready)
            seen.mark("wait", tensor, now, ready)
            now = ready + int(FORWARD * pace)
        seen.mark("forward", -1, begun, now)
        for tensor in (0, 1):
            now += int(BACKWARD * pace)
            seen.mark("submit", tensor, now, now)
            start = max(now, free)
            free = start + int(8 * SIZE / gbps)
            middle = (start + free) // 2
            halves = (("reduce_scatter", start, middle), ("all_gather", middle, free))
            sent = [(name, SIZE // 2, first, last) for name, first, last in halves]
            seen.exchange(tensor, step, SIZE, sent, submitted=now)
            done[tensor] = free
        seen.mark("round", 2, now, now)
    dimension = {"size": 2, "kind": "switch", "bandwidth": planned, "latency": "20 us"}
    settings = {"dimensions": [dimension], "tensor": "fifo"}
    return seen.record(size=SIZE, settings=settings, rank=rank)


@pytest.mark.parametrize("gbps", [4.0, 8.0, 40.0])
def test_what_a_link_carries_is_found(gbps):
    [found] = carried([a_run(gbps=gbps, planned="10 Gb/s", rank=rank) for rank in (0, 1)])
    assert found.gbps == pytest.approx(gbps, rel=0.01)
    assert found.error < 0.01
    assert found.trusted


def test_rates_that_lie_far_apart_are_not_trusted():
    record = a_run(gbps=8.0, planned="10 Gb/s", steps=40)
    for place, stage in enumerate(record["timeline"]["stages"]):
        stage["start"] = place * 10_000 * MS
        stage["end"] = stage["start"] + int(SIZE * (1.0, 40.0, 9.0)[place % 3])
    [found] = carried([record])
    assert not found.trusted
    assert "rates scatter" in verify_records([record]).fabric["about"]
    assert verify_records([record]).fabric["calibrated"] is False


def test_a_slow_link_is_named_and_the_refitted_step_is_the_measured_one():
    records = [a_run(gbps=4.0, planned="10 Gb/s", rank=rank) for rank in (0, 1)]
    verdict = verify_records(records)
    assert verdict.difference < -0.1
    assert verdict.worst == "dimension 0's bandwidth"
    assert verdict.refitted_ms == pytest.approx(verdict.measured_ms, rel=0.03)
    assert abs(verdict.refitted_ms / verdict.measured_ms - 1) <= 1.001 * verdict.bar
    assert verdict.bar < 0.1
    # Here one tensor after the other is sent, there their stages take turns: together as long.
    told = {one.name: one for one in verdict.exchanges}
    assert {"a", "b"} <= set(told)
    assert all(0.5 < told[name].predicted_ms / told[name].measured_ms < 2 for name in ("a", "b"))


def test_a_plan_that_holds_blames_nothing():
    verdict = verify_records([a_run(gbps=10.0, planned="10 Gb/s", rank=rank) for rank in (0, 1)])
    assert verdict.difference == pytest.approx(0, abs=0.02)
    assert verdict.worst is None


def test_ranks_that_are_last_in_turn_are_named():
    # Each is half as slow again in every second step; then the other waits.
    records = [
        a_run(gbps=400.0, planned="400 Gb/s", rank=rank, jitter=jitter)
        for rank, jitter in enumerate(
            (lambda step: 1.0 + 0.8 * (step % 2), lambda step: 1.8 - 0.8 * (step % 2))
        )
    ]
    verdict = verify_records(records)
    uneven = verdict.assumptions[-1]
    assert uneven.what == "computing, of the last rank"
    assert uneven.step_ms > 1.2 * verdict.planned_ms


def test_the_slowest_rank_is_simulated():
    verdict = verify_records(
        [a_run(gbps=40.0, planned="40 Gb/s", rank=rank, slower=1 + rank) for rank in (0, 1)]
    )
    assert verdict.rank == 1


def written(folder, records):
    folder.mkdir()
    for one in records:
        path = folder / f"rank{one['rank']}-schedule1-restart0.json.gz"
        path.write_bytes(gzip.compress(json.dumps(one).encode()))
    return folder


def test_the_command_prints_it_and_writes_the_fabric(tmp_path, allrail_cli):
    records = [a_run(gbps=4.0, planned="10 Gb/s", rank=rank) for rank in (0, 1)]
    folder = written(tmp_path / "rec", records)
    out = tmp_path / "measured.yaml"
    told = allrail_cli("verify", str(folder), "--out", str(out))
    assert told.status == 0
    for word in ("measured", "as planned", "off the most: dimension 0's bandwidth"):
        assert word in told.stdout
    fabric = yaml.safe_load(out.read_text())
    assert fabric["calibrated"] is True
    # It is a fabric file: the next scenario names it.
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "schema_version: 1\nfabric: measured.yaml\ncollective: {kind: all_reduce, size: 1 MB}\n"
    )
    assert load_scenario(scenario).fabric.dimensions[0].bandwidth == "4 Gb/s"
    found = json.loads(allrail_cli("verify", str(folder), "--json").stdout)
    assert found["worst"] == "dimension 0's bandwidth"
    assert found["difference"] == pytest.approx(found["planned_ms"] / found["measured_ms"] - 1)


def test_what_is_no_run_is_refused(tmp_path, allrail_cli):
    nothing = allrail_cli("verify", str(tmp_path / "no"))
    assert nothing.status == 2
    assert "nothing of that name" in nothing.stderr
    (tmp_path / "empty").mkdir()
    assert "no rank has written" in allrail_cli("verify", str(tmp_path / "empty")).stderr
    file = tmp_path / "file"
    file.write_text("x")
    assert "it is no folder" in allrail_cli("verify", str(file)).stderr
    short = written(tmp_path / "short", [a_run(gbps=4.0, planned="10 Gb/s", steps=2)])
    assert "no step was seen whole" in allrail_cli("verify", str(short)).stderr
    bare = a_run(gbps=4.0, planned="10 Gb/s")
    with pytest.raises(InputError, match="tells of no fabric"):
        verify_records([{**bare, "settings": None}])
    with pytest.raises(InputError, match="no step was seen whole"):
        verify_records([])
