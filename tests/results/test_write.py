"""`--out DIR`: every file, the same bytes every time, and nothing half-written."""

from __future__ import annotations

import gzip
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest

from allrail.base.errors import InputError
from allrail.output import write_results
from allrail.output.write import FILES

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, results, scenarios) -> Path:
    path = tmp_path_factory.mktemp("written") / "deep" / "out"
    write_results(path, results=results, scenarios=scenarios)
    return path


def test_every_file_is_there(folder):
    assert {entry.name for entry in folder.iterdir()} == {*FILES, ".allrail.json"}
    assert [entry.name for entry in folder.parent.iterdir()] == ["out"]


def test_the_same_results_give_the_same_bytes(folder, tmp_path, results, scenarios):
    write_results(tmp_path / "again", results=results, scenarios=scenarios)
    for entry in folder.iterdir():
        assert (tmp_path / "again" / entry.name).read_bytes() == entry.read_bytes(), entry.name


def test_result_json_holds_inputs_seed_and_versions(folder, results, scenarios):
    tree = json.loads((folder / "result.json").read_text())
    assert tree["versions"]["allrail"]
    assert [one["name"] for one in tree["results"]] == list(results)
    for one in tree["results"]:
        assert one["seed"] == 0
        assert one["scenario"] == json.loads(scenarios[one["name"]].to_json())
        assert one["result"]["time_us"] == results[one["name"]].time_us
        assert "timeline" not in one["result"]


@pytest.mark.parametrize("name", ["results", "dimensions", "timeline"])
def test_csv_and_parquet_are_one_table(folder, name):
    parquet = pl.read_parquet(folder / f"{name}.parquet")
    csv = pl.read_csv(folder / f"{name}.csv", schema=parquet.schema)
    assert csv.equals(parquet)
    assert parquet.columns[0] == "result"


def test_the_tables_hold_the_results(folder, results):
    table = pl.read_parquet(folder / "results.parquet")
    assert table["time_us"].to_list() == [result.time_us for result in results.values()]
    dimensions = pl.read_parquet(folder / "dimensions.parquet")
    assert dimensions.height == 6
    timeline = pl.read_parquet(folder / "timeline.parquet")
    assert timeline.height == sum(len(result.timeline) for result in results.values())
    # What the timeline says was sent is what the dimensions say was sent.
    for (name, index), rows in timeline.group_by("result", "dimension"):
        sent = results[name].dimensions[index].bytes_per_npu
        assert rows["bytes"].sum() == pytest.approx(sent, rel=1e-4)


def test_the_trace_is_a_track_a_dimension_without_overlap(folder, results):
    with gzip.open(folder / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == sum(len(result.timeline) for result in results.values())
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["baseline (dims)", "themis (dims)"]
    tracks: dict[tuple[int, int], list[dict]] = {}
    for event in slices:
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    assert len(tracks) == 6
    for (process, track), on_track in tracks.items():
        on_track.sort(key=lambda event: event["ts"])
        for one, following in pairwise(on_track):
            assert one["ts"] + one["dur"] <= following["ts"] + 1e-6
        result = list(results.values())[process - 1]
        busy = sum(event["dur"] for event in on_track) / result.time_us
        assert busy == pytest.approx(result.dimensions[track].busy_fraction, rel=1e-3)


@pytest.mark.parametrize("name", ["comparison", "gantt", "activity"])
def test_a_picture_is_svg_and_png(folder, name):
    assert (folder / f"{name}.png").read_bytes().startswith(PNG)
    text = (folder / f"{name}.svg").read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    assert "<dc:date>" not in text


class _Page(HTMLParser):
    """Collects ids, references and text, and checks that elements are closed."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self._take(attrs)

    def handle_startendtag(self, _tag, attrs):
        self._take(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def _take(self, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "aria-labelledby"):
                self.references.append(
                    value if value.startswith("#") or "/" in value else f"#{value}"
                )


@pytest.fixture(scope="module")
def page(folder) -> _Page:
    parser = _Page()
    parser.feed((folder / "report.html").read_text())
    assert parser.open == []
    return parser


def test_the_report_needs_nothing_from_outside(folder, page):
    text = (folder / "report.html").read_text()
    assert not {"link", "iframe", "img", "object"} & page.tags
    assert "@import" not in text
    assert all(not reference.startswith(("http", "//")) for reference in page.references)
    assert not re.search(r"url\(\s*['\"]?(?!#)", text)


def test_the_reports_ids_are_its_own_and_its_references_hit(folder, page):
    assert len(page.ids) == len(set(page.ids))
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    used = set(re.findall(r"url\(#([^)]+)\)", (folder / "report.html").read_text()))
    assert used <= set(page.ids)


def test_the_report_says_where_its_numbers_come_from(page, results):
    words = " ".join(" ".join(page.words).split())
    assert "network_model: dims" in words
    assert "uncalibrated" in words
    assert f"themis takes {results['themis'].time_us:.2f} µs" in words
    for part in ("What the numbers mean", "Inputs", "100 MB", "smallest first"):
        assert part in words


def test_names_from_the_scenario_are_escaped(tmp_path, results, scenarios):
    name = "<b>&'\""
    write_results(
        tmp_path / "out",
        results={name: results["themis"]},
        scenarios={name: scenarios["themis"]},
    )
    parser = _Page()
    parser.feed((tmp_path / "out" / "report.html").read_text())
    assert name in "".join(parser.words)
    ET.fromstring((tmp_path / "out" / "gantt.svg").read_text())


def test_another_run_replaces_ours_and_leaves_the_rest(tmp_path, results, scenarios):
    path = tmp_path / "out"
    write_results(path, results=results, scenarios=scenarios)
    (path / "notes.txt").write_text("mine")
    only = {"themis": results["themis"]}
    write_results(path, results=only, scenarios=scenarios | {})
    assert (path / "notes.txt").read_text() == "mine"
    assert not (path / "comparison.svg").exists()
    assert len(json.loads((path / "result.json").read_text())["results"]) == 1


@pytest.mark.parametrize("text", ["{}", "not json", '{"made_by": "someone else"}', "[]"])
def test_another_programs_result_is_not_overwritten(tmp_path, results, scenarios, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match="not written by allrail") as error:
        write_results(tmp_path, results=results, scenarios=scenarios)
    assert error.value.hint
    assert (tmp_path / "result.json").read_text() == text
    assert len(list(tmp_path.iterdir())) == 1


def test_a_run_that_is_stopped_leaves_what_was_there(tmp_path, results, scenarios, monkeypatch):
    write_results(tmp_path / "out", results=results, scenarios=scenarios)
    before = {entry.name: entry.read_bytes() for entry in (tmp_path / "out").iterdir()}

    def stop(*_args, **_keys):
        raise KeyboardInterrupt

    monkeypatch.setattr("allrail.output.write.trace_gzip", stop)
    with pytest.raises(KeyboardInterrupt):
        write_results(tmp_path / "out", results=results, scenarios=scenarios)
    after = {entry.name: entry.read_bytes() for entry in (tmp_path / "out").iterdir()}
    assert after == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_results_without_timelines_have_tables_but_no_timeline(tmp_path, scenarios):
    import allrail

    results = {name: allrail.simulate(one, cache=False) for name, one in scenarios.items()}
    write_results(tmp_path / "out", results=results, scenarios=scenarios)
    made = {entry.name for entry in (tmp_path / "out").iterdir()}
    assert {"results.csv", "comparison.svg", "report.html"} <= made
    assert not {"gantt.svg", "timeline.csv", "trace.json.gz"} & made
