"""Reports of every kind: one file each that says all, stays small and can be made again."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from itertools import pairwise
from random import Random

import polars as pl
import pytest

from allrail.base.errors import InputError
from allrail.output.report.answer import write
from allrail.output.report.document import MOST_BYTES, Chart, Page, Section, Table
from allrail.output.report.front import front_section, pareto_front
from allrail.output.report.rendering import render
from allrail.output.report.saved import saved_page
from allrail.output.report.timeline import MOST_SPANS, Bar, Row, thinned, timeline

KINDS = (
    "collectives",
    "training",
    "traffic",
    "placement",
    "queue",
    "sweep",
    "reproduction",
    "layouts",
    "tuning",
    "verdict",
)
SAVED = tuple(kind for kind in KINDS if kind not in ("sweep", "reproduction"))
OURS = '{"made_by": "allrail", "results": [{"result": %s}]}'
DATA = re.compile(r'<script type="([a-z/]+)" id="data">(.*?)</script>', re.DOTALL)


class Read(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def values(self, *names):
        return [one[name] for _, one in self.tags for name in names if name in one]


@pytest.fixture(scope="module", params=KINDS)
def text(request, reports):
    return (reports[request.param] / "report.html").read_text()


def charts_of(text: str) -> dict:
    ((kind, data),) = DATA.findall(text)
    return json.loads(data if kind == "application/json" else gzip.decompress(b64decode(data)))


def test_nothing_comes_from_outside(text):
    page = Read(text)
    named = {tag for tag, _ in page.tags}
    assert not named & {"link", "iframe", "img", "object", "embed", "base", "form"}
    assert all(one.startswith(("#", "data:image/png")) for one in page.values("src", "xlink:href"))
    assert all(one.startswith("#") for one in page.values("href"))
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)|fetch\(|XMLHttpRequest|WebSocket", text)
    kinds = [one.get("type") for tag, one in page.tags if tag == "script"]
    assert kinds == ["application/json", None]


def test_ids_are_its_own_and_references_hit(text):
    page = Read(text)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    hrefs = {one[1:] for one in page.values("href", "xlink:href") if one.startswith("#")}
    labels = {word for one in page.values("aria-labelledby") for word in one.split()}
    assert hrefs | labels | set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_it_is_light_dark_and_on_paper(text):
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert '<meta name="color-scheme" content="light dark">' in text
    assert '<html lang="en">' in text


def test_it_stays_below_the_limit(text):
    assert len(text.encode()) < MOST_BYTES


def test_every_picture_and_chart_has_words(text):
    page = Read(text)
    svgs = [one for tag, one in page.tags if tag == "svg"]
    assert all(one.get("role") == "img" and len(one["aria-label"]) > 10 for one in svgs)
    for name in charts_of(text):
        assert re.search(rf'id="{name}-words">[\d,]+ ', text)


def test_every_page_says_what_was_done(reports):
    for kind, words in {
        "collectives": (
            "Simulated: all-reduce of 100 MB",
            "What dominates",
            "What would help",
            "Error: network unknown",
        ),
        "training": ("Simulated: 2 iterations", "What dominates", "What would help most"),
        "traffic": (
            "Simulated: all-to-all",
            "What dominates",
            "What would help",
            "Error: network unknown: no measured traffic",
        ),
        "placement": ("Placed: 8 mixes of alibaba-2020", "8 × 8 boards"),
        "queue": ("12 jobs of alibaba-2020", "Jobs wait"),
        "sweep": (
            "Best by time: ",
            "Simulated: 9 points",
            "What dominates",
            "Error: network unknown: no measured traffic",
        ),
        "reproduction": ("Targets: 8 rows beside a published number", "Outside: case 2"),
        "layouts": (
            "Simulated: ",
            "provably no better",
            "What the recommended one loses by",
            "Error: computing ",
            "* is the recommended layout",
        ),
        "tuning": ("Simulated: 4 trials", "schedule.chunks=16", "1 trial could not"),
        "verdict": (
            "25.00 % too short",
            "dimension 0&#39;s bandwidth was off the most",
            "a note of",
        ),
    }.items():
        text = (reports[kind] / "report.html").read_text()
        assert all(word in text for word in words), kind
        if kind in ("collectives", "training", "traffic", "sweep", "layouts", "tuning"):
            assert "uncalibrated" in text
            assert "network_model" in text


def test_every_kind_has_its_charts(reports):
    found = {
        kind: {name: one["draws"] for name, one in charts_of(text).items()}
        for kind in KINDS
        for text in [(reports[kind] / "report.html").read_text()]
    }
    assert found == {
        "collectives": {"gantt": "timeline"},
        "training": {"step": "timeline"},
        "traffic": {"front": "points"},
        "placement": {},
        "queue": {"jobs-timeline": "timeline"},
        "sweep": {"front": "points"},
        "reproduction": {},
        "layouts": {"memory-chart": "points"},
        "tuning": {"search-chart": "points"},
        "verdict": {},
    }
    training = (reports["training"] / "report.html").read_text()
    for id_ in ("what-if", "topology", "utilisation", "timeline", "critical-path"):
        assert f'<section id="{id_}"' in training
    assert "what_ifs-" in training  # the bars


def test_a_timeline_has_every_stage_of_every_dimension(reports, results):
    data = charts_of((reports["collectives"] / "report.html").read_text())["gantt"]
    assert len(data["rows"]) == 6
    expected = [
        sum(stage.dimension == index for stage in result.timeline)
        for result in results.values()
        for index in range(3)
    ]
    assert [sum(map(len, row["lanes"])) // 5 for row in data["rows"]] == expected
    # Lengths and gaps of a row lead to the end of its last stage.
    for row, (result, index) in zip(
        data["rows"], [(one, i) for one in results.values() for i in range(3)], strict=True
    ):
        last = max(stage.end_us for stage in result.timeline if stage.dimension == index)
        (lane,) = row["lanes"]
        over = sum(lane[at] + lane[at + 1] for at in range(0, len(lane), 5))
        assert over * data["tick"] == pytest.approx(last, abs=2 * data["tick"])


def test_a_timeline_has_a_group_an_actor_and_a_row_a_track(reports):
    data = charts_of((reports["training"] / "report.html").read_text())["step"]
    assert {row["group"] for row in data["rows"]} == {
        "stage 0, rank 0 and 3 like it",
        "stage 1, rank 1 and 3 like it",
    }
    assert {row["name"] for row in data["rows"]} >= {"compute", "dim1", "dim2"}


@pytest.mark.parametrize("kind", SAVED)
def test_saved_results_give_the_same_page_byte_for_byte(reports, kind):
    page = saved_page(reports[kind])
    assert page == (reports[kind] / "report.html").read_text()
    assert saved_page(reports[kind] / "result.json") == page


class TestManySpans:
    def bars(self, count, *, length=0.4):
        return [Bar(float(i), i + length, f"span {i}", "#3a6fb7") for i in range(count)]

    def test_are_thinned_and_the_page_says_so(self):
        rows = [Row("job", f"dim{n}", "", self.bars(6_000)) for n in range(1, 5)]
        chart = timeline(
            "many",
            rows,
            title="Many",
            caption="",
            legend=[("#3a6fb7", "x")],
            end_us=6_000.0,
            most=2_000,
        )
        drawn = sum(len(lane) // 5 for row in chart.data["rows"] for lane in row["lanes"])
        assert 1_000 < drawn <= 2_000
        assert f"Drawn: {drawn:,} of 24,000 spans" in chart.note
        assert any(name.endswith(" spans") for name in chart.data["names"])

    def test_as_many_as_are_drawn_fit_a_page(self):
        random = Random(1)
        bars, over = [], 0.0
        for n in range(MOST_SPANS // 100):
            start = over + random.random()
            over = start + random.expovariate(1)
            bars.append(Bar(start, over, f"chunk {n}", "#3a6fb7", f"{random.randrange(9)} MB"))
        rows = [Row("job", f"dim{n}", "", bars) for n in range(10)]
        chart = timeline("many", rows, title="", caption="", legend=[], end_us=over)
        assert not chart.note
        page = Page("t", "s", [], "h", [], [Section("timeline", "Timeline", [chart])])
        text = render(page, version="0")
        assert 10 * len(text) < MOST_BYTES  # a tenth of the spans that are drawn
        drawn = charts_of(text)["many"]["rows"]
        assert sum(len(row["lanes"][0]) for row in drawn) == 5 * MOST_SPANS // 10

    def test_long_ones_stay_as_they_are(self):
        long = Bar(20_000.0, 30_000.0, "long", "#c9782b")
        lane = [*self.bars(20_000), long]
        ((kept,),), width = thinned([[lane]], end_us=30_000.0, most=500)
        assert long in kept
        assert len(kept) <= 500
        assert width > 0
        assert all(a.end_us <= b.start_us for a, b in pairwise(kept))
        assert kept[0].start_us == 0.0
        assert "busy 40" in kept[0].detail
        told = [int(one.name.split()[0].replace(",", "")) for one in kept if one is not long]
        assert sum(told) == 20_000

    def test_few_are_left_alone(self):
        lane = self.bars(100)
        assert thinned([[lane]], end_us=100.0, most=100) == ([[lane]], 0.0)


def test_a_long_table_is_cut_and_says_so():
    table = Table("t", ["a"], [[str(n)] for n in range(2500)], [0])
    page = Page("t", "s", [], "h", [], [Section("r", "R", [table])])
    text = render(page, version="0")
    assert text.count("<tr>") == 2001
    assert "In the files beside this page: 500 more rows." in text


def test_long_inputs_are_cut_and_say_so():
    inputs = {f"r{n}": {"n": n, "x": list(range(20_000))} for n in range(40)}
    text = render(Page("t", "s", [], "h", [], [], inputs=inputs), version="0")
    assert text.count("# the rest is in result.json") + text.count("# it is in result.json") == 40
    assert text.count("# it is in result.json") > 10
    assert len(text) < 1_000_000


def test_data_cannot_end_the_script():
    chart = Chart(
        "c",
        "C",
        "",
        "points",
        {"points": [[1, 1, "</script><script>alert(1)</script>"]]},
        "1 point",
    )
    text = render(Page("t", "s", [], "h", [], [Section("r", "R", [chart])]), version="0")
    assert "alert(1)</script>" not in text
    assert charts_of(text)["c"]["points"][0][2].startswith("</script>")


def test_the_front_is_what_nothing_cheaper_surpasses():
    points = [
        (3.0, 5.0, "c"),
        (1.0, 2.0, "a"),
        (2.0, 1.0, "worse"),
        (2.0, 4.0, "b"),
        (4.0, 5.0, "d"),
    ]
    assert [name for _, _, name in pareto_front(points)] == ["a", "b", "c"]
    chart, table = front_section(points, rate="runs").blocks
    assert "5 points, 3 of them on the front" in chart.words
    assert len(table.rows) == 3
    assert front_section([(1.0, 1.0, "a"), (1.0, 2.0, "b")], rate="runs").blocks == []


class TestRefused:
    @pytest.mark.parametrize(
        ("files", "words"),
        [
            ({}, ["there is no `result.json`", "--out"]),
            ({"sweep.jsonl": "{}"}, ["no `result.json`", "allrail sweep"]),
            ({"reproduction.json": "{}"}, ["no `result.json`", "allrail reproduce"]),
            ({"result.json": "[]"}, ["not written by allrail"]),
            ({"result.json": '{"made_by": "allrail"}'}, ["it is not whole", "simulate it again"]),
            (
                {"result.json": OURS % '{"x": 1}'},
                ["no kind that has a report"],
            ),
            (
                {"result.json": OURS % '{"step_time_us": 1}'},
                ["it is not whole"],
            ),
        ],
    )
    def test_a_folder_that_holds_no_results(self, tmp_path, files, words):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        with pytest.raises(InputError) as error:
            saved_page(tmp_path)
        assert all(word in str(error.value) for word in words)

    def test_a_table_that_was_cut_off(self, reports, tmp_path):
        whole = (reports["collectives"] / "result.json").read_bytes()
        (tmp_path / "result.json").write_bytes(whole)
        (tmp_path / "timeline.parquet").write_bytes(b"PAR1")
        with pytest.raises(InputError, match=r"timeline\.parquet"):
            saved_page(tmp_path)

    def test_nothing_there(self, tmp_path):
        with pytest.raises(InputError, match="no such file"):
            saved_page(tmp_path / "nowhere")


def test_the_verb_writes_the_page(reports, tmp_path, allrail_cli):
    folder = reports["collectives"]
    out = tmp_path / "deep" / "page.html"
    told = allrail_cli("report", str(folder), "--out", str(out))
    assert told.status == 0
    assert f"report    {out}" in told.stderr
    assert out.read_bytes() == (folder / "report.html").read_bytes()
    refused = allrail_cli("report", str(tmp_path))
    assert refused.status == 2
    assert refused.stderr.startswith("error: allrail report: ")


def test_tables_of_answers_have_every_row(reports):
    layouts = pl.read_parquet(reports["layouts"] / "layouts.parquet")
    told = json.loads((reports["layouts"] / "result.json").read_text())["layouts"]
    assert len(layouts) == told["layouts"]
    counts = dict(layouts["what"].value_counts().iter_rows())
    rows = sum(1 + len(one["same"]) for one in told["ranked"])
    assert counts["simulated"] == told["simulated"] == rows
    assert counts["provably no better"] == len(told["pruned"]) > 0
    trials = pl.read_parquet(reports["tuning"] / "trials.parquet")
    assert trials["step_time_us"].to_list() == [1000.0, 1200.0, None, 900.0]
    assert trials["schedule.chunks"].to_list() == [None, "4", None, "16"]
    exchanges = pl.read_parquet(reports["verdict"] / "exchanges.parquet")
    assert exchanges["predicted_ms"].to_list() == [0.19, None]


def test_the_line_over_trials_joins_the_best_so_far(reports):
    chart = charts_of((reports["tuning"] / "report.html").read_text())["search-chart"]
    points = [(one[0], one[1]) for one in chart["points"]]
    assert points == [(0, 0.0), (1, pytest.approx(-20.0)), (3, pytest.approx(10.0))]
    assert [x for x, _, _ in pareto_front([(*one, "") for one in points])] == [0, 3]


def test_an_answer_without_rows_has_a_page_too(tmp_path, reports):
    kinds = ("verdict", "tuning")
    said, tuned = (json.loads((reports[k] / "result.json").read_text())[k] for k in kinds)
    write(tmp_path / "verdict", "verdict", {**said, "exchanges": [], "dimensions": [], "each": []})
    assert saved_page(tmp_path / "verdict") == (tmp_path / "verdict" / "report.html").read_text()
    only = {**tuned, "trials": tuned["trials"][:1], "best": {}, "gain": 0.0}
    write(tmp_path / "tuning", "tuning", only)
    assert "Nothing is faster" in (tmp_path / "tuning" / "report.html").read_text()
