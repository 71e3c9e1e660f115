"""Mistakes in a question about steps under coordination: the field, the reason and a hint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allrail import _core
from allrail.reproduce.horovod import RESNET, request

ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"ranks": 0}, "ranks", "there are 1 to"),
    ({"ranks": 10_000_000}, "ranks", "there are 1 to"),
    ({"steps": 0}, "steps", "nothing would be run"),
    ({"lag": 2}, "lag", "wait a step at most"),
    ({"tensors": []}, "tensors", "nothing to exchange"),
    ({"tensors": [["2 ms", "1 B", "a"], ["1 ms", "1 B", "b"]]}, "tensors", "not in the order"),
    ({"compute": "1 us"}, "compute", "after the step's computation"),
    ({"coordination": {"policy": "none"}}, "schedule.coordination.policy", "without any talk"),
    ({"coordination": {"policy": "cahced"}}, "schedule.coordination.policy", "not a coordination"),
    (
        {"coordination": {"policy": "cached", "cycle": "-5 ms"}},
        "schedule.coordination.cycle",
        "",
    ),
    (
        {"coordination": {"policy": "cached", "cache": 0}},
        "schedule.coordination.cache",
        "a cache of nothing",
    ),
    (
        {"coordination": {"policy": "cached", "groups": [["t0", "nobody"]]}},
        "schedule.coordination.groups[0]",
        "no such tensor",
    ),
]


@pytest.mark.parametrize(("change", "field", "why"), ROWS)
def test_a_mistake_is_explained(change: dict[str, Any], field: str, why: str) -> None:
    tree = request(RESNET, 6, {"policy": "cached"}) | change
    with pytest.raises(_core.InputError) as raised:
        _core.coordinate_steps(json.dumps(tree))
    report = json.loads(raised.value.args[0])
    assert report["field"] == field
    assert why in report["why"]
    assert report["hint"]


@pytest.mark.parametrize("text", ["", "[]", '{"ranks": -1}', '{"rank": 1}'])
def test_what_is_no_request_is_said_so(text: str) -> None:
    with pytest.raises(_core.InputError) as raised:
        _core.coordinate_steps(text)
    assert "malformed" in json.loads(raised.value.args[0])["why"]
