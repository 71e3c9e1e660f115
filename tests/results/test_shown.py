"""Results in Python: as JSON, as polars' tables, in notebooks; parts as mappings; progress."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest

import allrail
from allrail.base.errors import InputError

DIMENSION = {"kind": "switch", "size": 4, "links": 1, "bandwidth": "50 GB/s", "latency": "1 us"}
COLLECTIVE = {
    "schema_version": 1,
    "fabric": {"dimensions": [DIMENSION, DIMENSION]},
    "collective": {"kind": "all_reduce", "size": "1 MiB"},
}
TRAINING = {
    "schema_version": 1,
    "fabric": {"dimensions": [DIMENSION, DIMENSION]},
    "workload": {"model": "resnet50", "batch_per_replica": 8, "compute": {"device": "v100"}},
}
TRAFFIC = {
    "schema_version": 1,
    "fabric": {"topology": "torus", "shape": [4, 4]},
    "traffic": {"pattern": "all_to_all", "size": "64 KiB"},
}
RUNS = [
    (allrail.simulate, COLLECTIVE, "time_us", "collectives"),
    (allrail.simulate, TRAINING, "step_time_us", "actors"),
    (allrail.simulate, TRAFFIC, "time_us", None),
]


@pytest.mark.parametrize(("run", "scenario", "name", "table"), RUNS)
def test_a_result_is_json_a_table_and_a_page(run, scenario, name, table):
    result = run(scenario)
    assert json.loads(result.to_json()) == result.to_dict()
    frame = result.to_polars()
    assert (frame.height, frame[name][0]) == (1, getattr(result, name))
    if table:
        assert result.to_polars(table)["name"].to_list() == [
            one.name for one in getattr(result, table)
        ]
    page = Page()
    page.feed(result._repr_html_())
    assert not page.open
    assert name in page.text


class Page(HTMLParser):
    """Collects text and elements that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.text.append(data)


def test_texts_stand_in_a_page_as_they_are():
    result = allrail.simulate({**TRAINING, "seed": 7})
    assert "&lt;" not in result._repr_html_()
    tree = {**result.to_dict(), "critical_path_in_words": "a < b & c"}
    assert "a &lt; b &amp; c" in allrail.TrainingResult.from_dict(tree)._repr_html_()


def test_a_table_that_is_not_there_is_named():
    with pytest.raises(InputError, match="no such table") as caught:
        allrail.simulate(COLLECTIVE).to_polars("dimension")
    assert "`dimensions`" in caught.value.hint


def test_parts_are_mappings():
    result = allrail.simulate(TRAINING)
    for parts in (result.exposed_us, result.memory):
        assert isinstance(parts, Mapping)
        assert dict(parts) == {name: getattr(parts, name) for name in parts}
        assert list(parts.items()) == list(zip(parts.keys(), parts.values(), strict=True))
        assert parts.get("nothing") is None
        assert "nothing" not in parts
        with pytest.raises(KeyError):
            parts["nothing"]
    assert sum(result.exposed_us.values()) == pytest.approx(result.exposed_communication_us)


@pytest.mark.parametrize(("run", "scenario", "name", "table"), RUNS)
def test_progress_reaches_its_end(run, scenario, name, table):
    told = []
    run(scenario, progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0
    shares = [done / total for done, total in told]
    assert shares == sorted(shares)


def test_progress_of_a_long_run_never_goes_back():
    told = []
    scenario = {**COLLECTIVE, "network_model": "links", "schedule": {"chunks": 64}}
    scenario["fabric"] = {"dimensions": [{**DIMENSION, "size": 16}] * 2}
    allrail.simulate(scenario, progress=lambda done, total: told.append((done, total)))
    assert len(told) > 2
    shares = [done / total for done, total in told]  # of planning and of the run, on one scale
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize(
    ("change", "field", "told"),
    [
        ({"network_mode": "dims"}, "network_mode", "mean `network_model`?"),
        ({"seed": -1}, "seed", "below 0"),
        ({"schedule": {"policy": "themiss"}}, "schedule.policy", "mean `themis`?"),
        ({"schedule": {"chunkss": 4}}, "schedule.chunkss", "mean `chunks`?"),
        ({"fabric": "dgx-h1000"}, "fabric", "mean `dgx-h100`?"),
        ({"fabric": {"dimensions": []}}, "fabric.dimensions", "empty"),
        ({"collective": {"kind": "all_reduce"}}, "collective[0].size", "missing"),
        ({"schedule": {"algorithms": ["ring"]}}, "schedule.algorithms", "2 dimensions"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_told_as_of_a_file(change, field, told):
    with pytest.raises(InputError) as caught:
        allrail.Scenario(**{**COLLECTIVE, **change})
    assert caught.value.field == field
    assert told in str(caught.value)
    with pytest.raises(InputError, match="missing"):
        allrail.Scenario()
