"""A published number beside ours: when it is within tolerance."""

from __future__ import annotations

import pytest

from allrail.reproduce import Reproduction, Row


@pytest.mark.parametrize(
    ("row", "ok"),
    [
        (Row("a", 100.1, 100.0, "us", "relative", 0.001), True),
        (Row("a", 100.2, 100.0, "us", "relative", 0.001), False),
        (Row("a", 99.8, 100.0, "us", "relative", 0.001), False),
        (Row("a", 57.3, 56.31, "%", "absolute", 1.0), True),
        (Row("a", 57.4, 56.31, "%", "absolute", 1.0), False),
        (Row("a", 98.8, 98.8, "%", "at_least"), True),
        (Row("a", 98.79, 98.8, "%", "at_least"), False),
        (Row("a", 999.0, 1000.0, "ms", "at_most"), True),
        (Row("a", 1001.0, 1000.0, "ms", "at_most"), False),
        (Row("a", 1.0, 50.0, "%"), None),
        (Row("a", 1.0, None, "%"), None),
    ],
)
def test_a_row_is_judged(row, ok):
    assert row.ok is ok
    assert len(row.cells()) == 7
    assert Reproduction("t", [row]).ok is (ok is not False)


def test_not_a_number_is_never_within_tolerance():
    for kind in ("relative", "absolute", "at_least", "at_most"):
        assert Row("a", float("nan"), 1.0, "us", kind, 0.5).ok is False
