"""Mistakes in `schedule.coordination` and what belongs to it: the field, the reason and a hint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allrail import _core
from allrail_reproduce.horovod import RESNET, request

COORDINATIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"policy": "cahced"}, "policy", "not a coordination"),
    ({"policy": "cached", "cycle": "-5 ms"}, "cycle", ""),
    ({"policy": "cached", "cache": 0}, "cache", "a cache of nothing"),
    ({"policy": "cached", "groups": [["t0", "nobody"]]}, "groups[0]", "no such tensor"),
    ({"policy": "cached", "skew": "2 h"}, "skew", "up to an hour"),
    ({"policy": "cached", "skew": "late"}, "skew", "up to an hour"),
    ({"policy": "cached", "collectives": "some"}, "collectives", "no such choice"),
    ({"policy": "none", "collectives": "all"}, "collectives", "does not read it"),
]

WORKLOADS: list[tuple[dict[str, Any], str, str]] = [
    ({"lag": 65}, "lag", "up to 64 iterations later"),
    ({"exchange_slowdown": -0.1}, "exchange_slowdown", "0 to 100 times longer"),
    ({"exchange_slowdown": 101}, "exchange_slowdown", "0 to 100 times longer"),
]


def refused(tree: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(_core.InputError) as raised:
        _core.simulate(json.dumps(tree))
    report: dict[str, str] = json.loads(raised.value.args[0])
    assert report["hint"]
    return report


@pytest.mark.parametrize(("coordination", "key", "why"), COORDINATIONS)
def test_a_mistake_is_explained(coordination: dict[str, Any], key: str, why: str) -> None:
    tree = request(RESNET, 6, {})
    tree["schedule"]["coordination"] = coordination
    report = refused(tree)
    assert report["field"] == f"schedule.coordination.{key}"
    assert why in report["why"]


@pytest.mark.parametrize(("change", "key", "why"), WORKLOADS)
def test_what_is_disturbed_has_a_range(change: dict[str, Any], key: str, why: str) -> None:
    tree = request(RESNET, 6, {"policy": "cached"})
    tree["workload"] |= change
    report = refused(tree)
    assert report["field"] == f"workload.{key}"
    assert why in report["why"]
