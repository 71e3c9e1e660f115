"""The reader of YAML and JSON: 1.2 scalars, places, and nothing but values or an InputError."""

from __future__ import annotations

import contextlib
import json
import math
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from allrail.base.errors import InputError
from allrail.scenario.text import read_text

# Texts such as `0E0` are left out: YAML 1.1, which writes here, takes them for text and does not
# quote them; in YAML 1.2, which is read, they are numbers.
TEXTS = st.text().filter(lambda text: not re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", text))

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("012", 12),
        ("0o14", 12),
        ("0xff", 255),
        ("1_000", "1_000"),
        ("16:64", "16:64"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("~", None),
        ("'1'", "1"),
        ("2024-01-01", "2024-01-01"),
        ("50 GiB/s", "50 GiB/s"),
        ("{a: 1, b: [2, x]}", {"a": 1, "b": [2, "x"]}),
        ("&a [1, 2]", [1, 2]),
        ("{a: &x {k: 1}, b: *x}", {"a": {"k": 1}, "b": {"k": 1}}),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    got = read_text(text, source="x")[0]
    assert got == value
    assert type(got) is type(value)


def test_nan_is_read_as_such():
    assert math.isnan(read_text(".nan", source="x")[0])


def test_places_are_lines():
    _, places = read_text("a:\n  b: 1\n  c:\n    - 2\n    - 3\n", source="f.yaml")
    lines = {path: place.line for path, place in places.known.items()}
    assert lines[("a", "b")] == 2
    assert lines[("a", "c", 1)] == 5
    assert places.of(("a", "nothing")).line == 1


@given(TREES)
def test_json_reads_as_json_does(tree):
    text = json.dumps({"value": tree})
    assert read_text(text, source="x", json_only=True)[0] == {"value": tree}


@given(TREES)
def test_yaml_reads_what_yaml_wrote(tree):
    text = yaml.safe_dump({"value": tree}, default_flow_style=True, sort_keys=False)
    got = read_text(text, source="x")[0]
    assert json.dumps(got, default=str) == json.dumps({"value": tree}, default=str)


@given(st.text(max_size=80) | st.text(alphabet="{}[]:,-?&*!|>'\"#%\n a1", max_size=80))
def test_any_text_is_a_value_or_an_input_error(text):
    for json_only in (False, True):
        with contextlib.suppress(InputError):
            read_text(text, source="x", json_only=json_only)
