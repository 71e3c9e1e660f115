"""What allrail reads again: journals, studies, records, results. Rubbish in them is one message.

A torn last line of a sweep's journal is dropped; all else that allrail would not have written is an
error that names the file and the line, and never a number in a table.
"""

from __future__ import annotations

import gzip
import json
import resource
import signal
import subprocess
import sys

import polars as pl
import pytest

import allrail
from allrail.base.errors import InputError
from allrail.runtime import record
from allrail.search.sweeps.journal import Journal
from allrail.search.sweeps.study import load_study

SCENARIO = {
    "schema_version": 1,
    "fabric": "tutorial-8x8x8",
    "collective": {"kind": "all_reduce", "size": "1 GB"},
}
STUDY = {"schema_version": 1, "scenario": SCENARIO, "axes": {"seed": [1, 2, 3]}}

LINES = [
    ('{"point":0,"row":{"time_us":NaN}}', "finite"),
    ('{"point":0,"row":{"time_us":-Infinity}}', "finite"),
    ('{"point":0,"row":{"time_us":1e999}}', "`time_us` is no finite number"),
    ('{"point":0,"row":{"time_us":[[1]]}}', "`time_us` is no finite number"),
    ('{"point":0,"row":{"time_us":{"a":1}}}', "`time_us` is no finite number"),
    ('{"point":0,"row":{"time_us":"fast"}}', "`time_us` is no finite number"),
    ('{"point":0,"row":{"time_us":true}}', "`time_us` is no finite number"),
    ('{"point":0,"row":{"npus":1.5}}', "`npus` is no whole number"),
    ('{"point":0,"row":{"npus":99999999999999999999}}', "`npus` is no whole number"),
    ('{"point":0,"row":{"seed":-1}}', "`seed` is no whole number of 64 bits from 0"),
    ('{"point":0,"row":{"policy":1}}', "`policy` is no text"),
    ('{"point":0,"row":{"calibrated":1}}', "`calibrated` is no true or false"),
    ('{"point":0,"row":{"speed":1}}', "`speed` is no result"),
    ('{"point":0,"row":[1]}', "neither"),
    ('{"point":0,"error":1}', "neither"),
    ('{"point":3,"row":{}}', "`point`"),
    ('{"point":-1,"row":{}}', "`point`"),
    ('{"point":true,"row":{}}', "`point`"),
    ('{"point":0.0,"row":{}}', "`point`"),
    ('{"row":{}}', "`point`"),
    ("[1]", "no JSON object"),
    ("", "no JSON object"),
    ("garbage", "no JSON object"),
    ("\x00" * 50, "no JSON object"),
    ("[" * 100_000, "no JSON object"),
    ('{"a":' * 100_000, "no JSON object"),
    ('{"point":0,"row":{"time_us":' + "9" * 5000 + "}}", "no"),
]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The lines of a whole journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = tmp_path_factory.mktemp("sweep") / "out"
        allrail.sweep(STUDY, folder, workers=1)
        return (folder / "sweep.jsonl").read_text().splitlines(keepends=True)


def known(folder):
    """How many points a journal has."""
    with Journal(folder, load_study(STUDY)) as journal:
        return len(journal.outcomes)


@pytest.mark.parametrize(("line", "told"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_line_that_no_sweep_wrote_is_named(journal, tmp_path, line, told):
    file = tmp_path / "out" / "sweep.jsonl"
    file.parent.mkdir()
    text = "".join([*journal[:2], line + "\n", *journal[3:]])
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        known(tmp_path / "out")
    assert str(raised.value).startswith(f"{file}:3: ")
    assert told in raised.value.why
    assert "delete that line" in raised.value.hint
    assert file.read_text() == text
    # The hint works.
    file.write_text("".join([*journal[:2], *journal[3:]]))
    assert known(tmp_path / "out") == 2


@pytest.mark.parametrize("cut", [1, 200])
def test_a_torn_last_line_is_dropped(journal, tmp_path, cut):
    file = tmp_path / "out" / "sweep.jsonl"
    file.parent.mkdir()
    file.write_text("".join(journal)[:-cut])
    swept = allrail.sweep(STUDY, tmp_path / "out", workers=1)
    assert (swept.known, len(swept.table)) == (2, 3)
    assert sorted(file.read_text().splitlines()) == sorted("".join(journal).splitlines())


@pytest.mark.parametrize("data", [b"", b"{", b'{"made_by": "x"}\n', b"\xff\xfe\n", b"mine"])
def test_a_journal_of_others_stays(tmp_path, data):
    (tmp_path / "sweep.jsonl").write_bytes(data)
    with pytest.raises(InputError, match="not written by allrail"):
        known(tmp_path)
    assert (tmp_path / "sweep.jsonl").read_bytes() == data


def test_a_journal_is_not_written_through_a_link(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sweep.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="symbolic link"):
        known(tmp_path / "out")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("limit", [40, 1_500, 3_000, 20_000])
def test_a_sweep_on_a_full_disk_names_the_file(tmp_path, limit):
    """The workers' processes have the same limit."""
    (tmp_path / "study.json").write_text(json.dumps(STUDY))

    def no_more():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = [sys.executable, "-m", "allrail", "sweep", "study.json", "--out", "out"]
    done = subprocess.run(
        words, cwd=tmp_path, text=True, capture_output=True, preexec_fn=no_more, check=False
    )
    assert done.returncode == 2, done
    assert done.stderr.startswith("error: --out: `out"), done
    assert "File too large" in done.stderr
    assert "sweep." in done.stderr or "report.html" in done.stderr
    assert "Traceback" not in done.stderr
    # With room, it goes on.
    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done
    assert len(pl.read_parquet(tmp_path / "out" / "sweep.parquet")) == 3


def tuned(folder):
    from allrail.search.tuning.searcher import Searcher
    from allrail.search.tuning.space import Knob

    space = (Knob("schedule.chunks", (1, 2, 4, 8)),)

    def search(trials):
        searcher = Searcher(space, study=folder / "study.log")
        while len(searcher.done) < trials and not searcher.exhausted:
            searcher.ask()
            searcher.tell(1.0 + len(searcher.done))
        return searcher

    return search


STUDIES = [
    ('"step_time_us":2.0', '"step_time_us":NaN'),
    ('"step_time_us":2.0', '"step_time_us":"x"'),
    ('"step_time_us":2.0', '"step_time_us":[[2.0]]'),
    ('"step_time_us":2.0', '"step_time_us":-1'),
    ('"step_time_us":2.0', '"other":2.0'),
    ('"start":1.0', '"start":NaN'),
    ('"start":1.0', '"start":[1.0]'),
    ('"params":{"schedule.chunks":', '"params":{"schedule.chunk":'),
    ('"params":{"schedule.chunks":', '"params":{"schedule.chunks":9'),
]


@pytest.mark.parametrize(("old", "new"), STUDIES, ids=[new for _, new in STUDIES])
def test_a_study_with_rubbish_is_refused(tmp_path, old, new):
    pytest.importorskip("optuna", reason="`allrail[tune]`")
    search = tuned(tmp_path)
    assert len(search(3).done) == 3
    assert len(search(4).done) == 4
    file = tmp_path / "study.log"
    text = file.read_text()
    assert old in text, text
    file.write_text(text.replace(old, new))
    with pytest.raises(InputError) as raised:
        search(5)
    assert raised.value.source == "--study"
    assert raised.value.hint


def test_records_with_rubbish_are_refused(tmp_path):
    file = tmp_path / "rank0-m-restart0.json.gz"
    for data in (
        b"",
        b"no gzip",
        gzip.compress(b"[" * 100_000),
        gzip.compress(b'{"schema_version": NaN}'),
        gzip.compress(b'{"schema_version": 1}')[:-4],
        gzip.compress(b'{"schema_version": ') + gzip.compress(b"1}"),
    ):
        file.write_bytes(data)
        with pytest.raises(InputError) as raised:
            record.read(tmp_path)
        assert raised.value.source == str(file)


def test_a_record_that_unpacks_to_more_than_anyone_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "_MAX_BYTES", 1 << 20)
    packed = gzip.compress(b'{"schema_version": 1' + b" " * (1 << 21) + b"}")
    (tmp_path / "rank0-m-restart0.json.gz").write_bytes(packed)
    with pytest.raises(InputError, match="no record"):
        record.read(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_saved_result_whose_numbers_are_none_is_refused(folder, allrail_cli, number):
    assert allrail_cli("simulate", "scenario.yaml", "--out", "out").status == 0
    file = folder / "out" / "result.json"
    tree = json.loads(file.read_text())
    tree["results"][0]["result"]["time_us"] = "HERE"
    file.write_text(json.dumps(tree).replace('"HERE"', number))
    (folder / "out" / "report.html").unlink()
    outcome = allrail_cli("report", "out")
    assert outcome.status == 2
    assert "no finite number" in outcome.stderr
    assert not (folder / "out" / "report.html").exists()


def test_a_saved_table_of_more_rows_than_are_read_is_refused(folder, allrail_cli, monkeypatch):
    monkeypatch.setattr("allrail.output.report.saved._MOST_ROWS", 3)
    assert allrail_cli("simulate", "scenario.yaml", "--out", "out").status == 0
    outcome = allrail_cli("report", "out")
    assert outcome.status == 2
    assert "rows" in outcome.stderr
