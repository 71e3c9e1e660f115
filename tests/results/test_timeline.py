"""Timelines cross from the core as columns, and read as rows."""

import json
import pickle

import pytest

import allrail

COLLECTIVE = {
    "schema_version": 1,
    "fabric": "3D-SW_SW_SW_homo",
    "collective": {"kind": "all_reduce", "size": "64 MiB"},
    "schedule": {"policy": "themis", "order": "smallest_first", "chunks": 4},
}
STEP = {
    "schema_version": 1,
    "fabric": "tutorial-8x8x8",
    "workload": {"model": "resnet50", "parallelism": {"dp": 512}, "compute": {"device": "v100"}},
}


@pytest.fixture(scope="module", params=[COLLECTIVE, STEP], ids=["collective", "step"])
def result(request):
    return allrail.simulate(request.param, timeline=True)


def test_the_core_says_each_name_once(result):
    columns = result.raw["timeline"]
    named = {key: column for key, column in columns.items() if isinstance(column, dict)}
    assert "operation" in named
    for column in named.values():
        assert len(set(column["names"])) == len(column["names"])
        assert {one for one in column["rows"] if one is not None} == {*range(len(column["names"]))}
    lengths = {len(column["rows"] if key in named else column) for key, column in columns.items()}
    assert lengths == {len(result.timeline)}


def test_rows_are_those_of_the_columns(result):
    rows = result.to_dict(timeline=True)["timeline"]
    assert len(rows) == len(result.timeline) > 20
    for place, row in enumerate(rows):
        made = result.timeline[place]
        assert None not in row.values()
        for key in result.raw["timeline"]:
            name = "work_pass" if key == "pass" else key
            assert getattr(made, name) == row.get(key)


def test_a_result_that_was_written_reads_as_it_was(result):
    again = type(result).from_dict(json.loads(result.to_json(timeline=True)))
    assert again.timeline == result.timeline
    assert again.to_json(timeline=True) == result.to_json(timeline=True)
    assert pickle.loads(pickle.dumps(result)).timeline == result.timeline


def test_a_timeline_that_was_not_asked_for_is_none():
    assert allrail.simulate(COLLECTIVE).timeline is None


def test_it_is_a_table_of_its_result(result):
    frame = result.to_polars("timeline")
    assert frame.height == len(result.timeline)
    for name in ("start_us", "end_us"):
        assert frame[name].to_list() == [getattr(one, name) for one in result.timeline]
    assert f"timeline ({len(result.timeline)})" in result._repr_html_()
