"""A published number beside ours: what is said of it, and when it is within tolerance."""

from __future__ import annotations

import math
import re

import pytest

from allrail_reproduce import Reproduction, Row
from allrail_reproduce.published import (
    THIS_ROW,
    Made,
    Published,
    chosen,
    fitted,
    less_than,
    more_than,
    number,
    span,
)

TABLE = "X'22, Table II"


@pytest.mark.parametrize(
    ("row", "ok"),
    [
        (Row("a", 100.1, number(100.0, TABLE), "us", within=0.001), True),
        (Row("a", 100.2, number(100.0, TABLE), "us", within=0.001), False),
        (Row("a", 99.8, number(100.0, TABLE), "us", within=0.001), False),
        (Row("a", 57.3, number(56.31, TABLE), "%", within=1.0, absolute=True), True),
        (Row("a", 57.4, number(56.31, TABLE), "%", within=1.0, absolute=True), False),
        (Row("a", 7.8, more_than(7.8, TABLE), "x", within=0.0), True),
        (Row("a", 7.79, more_than(7.8, TABLE), "x", within=0.0), False),
        (Row("a", 2.0, less_than(2.0, TABLE), "%", within=0.0), True),
        (Row("a", 2.1, less_than(2.0, TABLE), "%", within=0.0), False),
        (Row("a", 97.0, span(97.0, 125.0, TABLE), "%", within=0.0), True),
        (Row("a", 96.0, span(97.0, 125.0, TABLE), "%", within=1.0, absolute=True), True),
        (Row("a", 127.0, span(97.0, 125.0, TABLE), "%", within=1.0, absolute=True), False),
        (Row("a", 106.0, number(100.0, TABLE), "us"), False),
        (Row("a", 1.0, None, "%"), None),
        (Row("a", None, number(1.0, TABLE), "%", why="what the device takes"), None),
        (Row("a", 1.5, number(1.49, TABLE), "x", made=fitted("scale", to=THIS_ROW)), None),
    ],
)
def test_a_row_is_judged(row, ok):
    assert row.ok is ok
    assert len(row.cells()) == 8
    assert Reproduction("t", [row]).ok is (ok is not False)


@pytest.mark.parametrize("ours", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_row(ours):
    for published in (number(1.0, TABLE), span(0.0, 2.0, TABLE), more_than(0.0, TABLE), None):
        with pytest.raises(ValueError, match="is no result"):
            Row("a", ours, published, "us", within=0.5)


def test_a_case_that_is_refused_counts_as_missed_and_prints_no_number(tmp_path):
    why = "the layout cannot be"
    row = Row("a", None, number(20.0, TABLE), "%", why=why, refused=True)
    assert row.ok is False
    assert row.cells()[1:7] == ["20", "-", "%", "-", "-", "refused"]
    outcome = Reproduction("t", [Row("met", 1.0, number(1.0, TABLE), "x"), row])
    assert not outcome.ok
    assert outcome.summary[0] == "targets: 2 rows beside a published number, 1 met, 1 refused"
    assert outcome.summary[2] == "misses: 1: a"
    assert outcome.reasons == [f"a: {why}"]
    outcome.write(tmp_path / "out")
    for file in (tmp_path / "out").iterdir():
        if file.suffix in (".json", ".csv", ".html"):
            assert not re.search(r"\b(nan|infinity)\b", file.read_text(), re.IGNORECASE), file
    with pytest.raises(ValueError, match="name the input"):
        Row("a", None, number(20.0, TABLE), "%", refused=True)
    with pytest.raises(ValueError, match="is no result"):
        Row("a", 1.0, number(20.0, TABLE), "%", why=why, refused=True)


def test_a_range_is_printed_as_it_stands():
    values = (number(25.3, TABLE), span(97, 125, TABLE), more_than(7.8, TABLE), less_than(2, TABLE))
    assert [value.text for value in values] == ["25.3", "97-125", ">7.8", "<2"]
    assert Row("a", 1.0, None, "%").cells()[1] == "not published"


def test_what_is_published_stands_somewhere():
    for source in ("SC'22", "the paper", ""):
        with pytest.raises(ValueError, match="no page, table, figure or section"):
            number(1.0, source)
    with pytest.raises(ValueError, match="one end"):
        Published(None, None, TABLE)


def test_what_is_fitted_or_chosen_names_its_parameters():
    with pytest.raises(ValueError, match="fitted or chosen"):
        fitted(to="the mean")
    with pytest.raises(ValueError, match="fitted or chosen"):
        chosen("shape", by="")
    with pytest.raises(ValueError, match="fitted or chosen"):
        Made("computed", ("scale",), "the mean")


def test_what_cannot_be_computed_names_the_input_and_is_no_target():
    row = Row("a", None, number(20.0, TABLE), "%", why="missing: what the host takes")
    assert row.cells()[1:7] == ["20", "-", "%", "-", "-", "missing"]
    outcome = Reproduction("t", [Row("met", 1.0, number(1.0, TABLE), "x"), row])
    assert outcome.ok
    assert outcome.summary[0] == (
        "targets: 1 row beside a published number, 1 met; 1 more needs an input that no source "
        "prints"
    )
    assert outcome.reasons == ["a: missing: what the host takes"]
    assert outcome.to_dict()["rows"][1]["ours"] is None
    for published, why in ((number(1.0, TABLE), ""), (None, "a reason")):
        with pytest.raises(ValueError, match="name the input"):
            Row("a", None, published, "%", why=why)


def test_a_reproduction_ends_with_targets_parameters_and_misses():
    scale = fitted("scale", to="the mean")
    outcome = Reproduction(
        "t",
        [
            Row("met", 1.0, number(1.0, TABLE), "x", made=scale),
            Row("missed", 2.0, number(1.0, TABLE), "x"),
            Row("the mean", 1.0, number(1.0, TABLE), "x", made=fitted("scale", to=THIS_ROW)),
            Row("ours alone", 3.0, None, "x"),
        ],
    )
    assert outcome.summary == [
        (
            "targets: 2 rows beside a published number, 1 met; 1 more is what was fitted, and "
            "shows nothing; 1 row is not published"
        ),
        "free parameters: 1: scale (fitted)",
        "misses: 1: missed",
    ]
    assert outcome.table[1][0][7:] == ["fitted", TABLE]
    assert outcome.provenances == [
        "met: fitted (scale; to the mean)",
        "the mean: fitted (scale; to this row)",
    ]
    assert not outcome.ok
    assert outcome.to_dict()["misses"] == ["missed"]
