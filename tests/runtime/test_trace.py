"""Traces of records, and `allrail run`, on records that the test has written itself: no torch."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from allrail.base.errors import InputError
from allrail.output.record_trace import trace_events, trace_gzip
from allrail.runtime import record as records
from allrail.runtime.record import Marks
from allrail.runtime.report import merged, report_of
from allrail.runtime.steps import steps_of

_SPEC = importlib.util.spec_from_file_location("records", Path(__file__).with_name("records.py"))
_RECORDS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_RECORDS)
MS, a_record = _RECORDS.MS, _RECORDS.a_record


def peer(rank, later, *, offset=0, round_trip=1000):
    return {"rank": rank, "offset": offset, "round_trip": round_trip, "later": later}


def test_a_step_is_shared_out_to_the_nanosecond():
    steps = steps_of(a_record())
    assert len(steps) == 4
    for step in steps:
        assert step.end - step.start == 35 * MS
        assert step.waits == {1: 5 * MS}
        assert step.forward == {1: 4 * MS, 0: 6 * MS}
        assert step.backward == {-1: 10 * MS, 0: 8 * MS, 1: 2 * MS}


def test_the_report_has_what_the_record_has():
    report = report_of(a_record())
    assert (report.step_ms, report.interval_ms, report.exposed_ms) == (35, (35, 35), 5)
    assert report.waited == (("a", 5.0),)
    [use] = report.dimensions
    # 2 ms before a step ends a stage begins, and another as it ends; the very last is not seen.
    assert use.busy == pytest.approx(4 / 35, rel=0.2)
    assert use.gbps == pytest.approx(8.0)
    assert (use.best_gbps, use.planned_gbps) == (pytest.approx(8.0), 64.0)
    # Nothing is waited for in the prediction but 4 KB: 30 ms are computed.
    assert 30 <= report.predicted.step_ms <= 30.5
    assert report.difference == pytest.approx(report.predicted.step_ms / 35 - 1)
    assert any("dimension 0 carries 8.00 Gb/s" in line for line in report.findings)
    assert json.loads(json.dumps(report.to_json()))["step_ms"] == 35
    for word in ("step", "exposed", "predicted", "dimension 0", "waited for", "uncalibrated"):
        assert word in str(report)


def test_without_steps_it_says_so_and_predicts_nothing():
    report = report_of(a_record(steps=2))
    assert report.steps == 0
    assert report.predicted is None
    assert "no step was seen whole" in str(report)


def test_who_is_late_and_who_is_not():
    late = [("conv1", 40 * MS)] * 9 + [("fc", 0)]
    even = [("conv1", 3000), ("fc", -2000)] * 5
    record = a_record(peers=[peer(1, even), peer(2, late), peer(3, even)])
    assert [line for line in report_of(record).findings if "rank" in line] == [
        "rank 2 is 40 ms later than the median in 90 % of what was seen: conv1"
    ]
    # All others are earlier: it is this one.
    early = [("conv1", -40 * MS)] * 10
    record = a_record(peers=[peer(1, early), peer(2, early), peer(3, early)])
    assert [line for line in report_of(record).findings if "rank" in line] == [
        "this rank is 40 ms later than the median"
    ]


def test_times_in_which_anything_was_open():
    spans = [(0, 10, 1), (5, 12, 2), (20, 30, 4), (30, 31, 8), (22, 23, 16)]
    assert merged(spans) == [(0, 12, 3), (20, 31, 28)]


def test_a_trace_has_a_process_a_rank_on_one_clock():
    ahead = 7_000 * MS
    first = a_record(peers=[peer(1, [], offset=ahead, round_trip=50_000)])
    events = trace_events([first, a_record(1, offset=ahead)])
    shown = [event for event in events if event["ph"] == "X"]
    by_rank = [[e for e in shown if e["pid"] == rank] for rank in (0, 1)]
    assert [(e["name"], e["ts"], e["dur"]) for e in by_rank[0]] == [
        (e["name"], e["ts"], e["dur"]) for e in by_rank[1]
    ]
    assert min(e["ts"] for e in shown) >= 0
    kinds = {e["cat"] for e in shown}
    assert kinds == {"step", "compute", "enter", "wait", "all_reduce", "reduce_scatter"}
    labels = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert labels == ["rank 0", "rank 1 (clock known to 25 µs)"]
    for track in {(e["pid"], e["tid"]) for e in shown}:
        here = [e for e in shown if (e["pid"], e["tid"]) == track]
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in here)
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 1e-6, "slices of one track overlap"
    backward = [e for e in by_rank[0] if e["name"] == "backward"]
    assert [e["dur"] for e in backward] == [10_000.0] * 6
    text = gzip.decompress(trace_gzip([first]))
    assert len(json.loads(text)["traceEvents"]) > 50


def test_marks_are_bounded():
    marks = Marks(3)
    for number in range(9):
        marks.add(("wait", number, 0, 1))
    assert [mark.tensor for mark in marks.all()] == [6, 7, 8]


def test_a_file_that_is_no_record_is_named(tmp_path):
    (tmp_path / "rank0-x-restart0.json.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="no record of a rank"):
        records.read(tmp_path)
    later = a_record() | {"schema_version": 99}
    records.write(later, tmp_path)
    (tmp_path / "rank0-x-restart0.json.gz").unlink()
    with pytest.raises(InputError, match="schema version 99"):
        records.read(tmp_path)


_SCRIPT = """
import json, os, pathlib, sys
from allrail.runtime import record
for rank in (0, 1):
    text = pathlib.Path(sys.argv[1]).read_text()
    record.write(json.loads(text) | {"rank": rank}, record.folder())
sys.exit(int(sys.argv[2]))
"""


def allrail(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "allrail", "run", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


def test_run_puts_records_together_and_passes_the_status_on(tmp_path):
    (tmp_path / "record.json").write_text(json.dumps(a_record()))
    out = tmp_path / "out"
    out.mkdir()
    (out / "rank7-old-restart0.json.gz").write_bytes(b"of an earlier run")
    words = ("--trace", str(out), sys.executable, "-c", _SCRIPT, str(tmp_path / "record.json"))
    done = allrail(*words, "0")
    assert done.returncode == 0, done.stderr
    assert "35.000 ms" in done.stdout
    assert "predicted" in done.stdout
    events = json.loads(gzip.decompress((out / "trace.json.gz").read_bytes()))["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    failed = allrail("--json", *words, "3")
    assert failed.returncode == 3
    assert [one["rank"] for one in json.loads(failed.stdout)["ranks"]] == [0, 1]


def test_run_says_what_is_wrong(tmp_path):
    nothing = allrail("--trace", str(tmp_path), sys.executable, "-c", "pass")
    assert nothing.returncode == 0
    assert "no rank has written a record" in nothing.stderr
    missing = allrail("--trace", str(tmp_path), "no-such-command-anywhere")
    assert missing.returncode == 2
    assert "there is no such command" in missing.stderr


def test_run_passes_signals_on(tmp_path):
    script = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5));"
        "open(sys.argv[1], 'w').close(); time.sleep(300)"
    )
    ready = tmp_path / "ready"
    words = [sys.executable, "-m", "allrail", "run", "--trace", str(tmp_path / "out")]
    child = subprocess.Popen(
        [*words, sys.executable, "-c", script, str(ready)], stderr=subprocess.PIPE
    )
    until = time.monotonic() + 120
    while not ready.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGTERM)
    child.communicate(timeout=120)
    assert child.returncode == 5
