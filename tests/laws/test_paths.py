"""Paths such as `fabric.dimensions[1].size`, and overrides at them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allrail.scenario.overrides import apply
from allrail.scenario.places import Place, Places, parse_path, show_path

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)
PATHS = st.tuples(NAMES, st.lists(NAMES | st.integers(0, 9), max_size=5)).map(
    lambda parts: (parts[0], *parts[1])
)


@given(PATHS)
def test_a_path_reads_as_it_is_shown(path):
    assert parse_path(show_path(path)) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a.0.b", ("a", 0, "b")),
        ("a[0][1]", ("a", 0, 1)),
        ("a..b", None),
        ("", None),
        ("[0]", None),
        ("a[x]", None),
        ("a[0", None),
        ("a[0]b", None),
    ],
)
def test_paths(text, path):
    assert parse_path(text) == path


def test_an_override_changes_nothing_that_was_given():
    tree = {"a": {"b": [1, {"c": 2}]}, "d": 3}
    places = Places({(): Place("f", 1), ("a", "b"): Place("f", 2)})
    changed = apply(tree, ("a", "b", 1, "c"), 5, place=Place("--set"), places=places)
    assert tree == {"a": {"b": [1, {"c": 2}]}, "d": 3}
    assert changed == {"a": {"b": [1, {"c": 5}]}, "d": 3}
    assert places.of(("a", "b", 1, "c")) == Place("--set")
    assert places.of(("a", "b", 0)) == Place("f", 2)
