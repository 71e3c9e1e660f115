"""Files that name a policy as it was called before still run, and results use the name of today."""

from __future__ import annotations

import allrail
from allrail.scenario.fields import names, table

TABLES = ("policies", "coordinations")

COLLECTIVE = {
    "schema_version": 1,
    "fabric": "2D-SW_SW",
    "collective": {"kind": "all_reduce", "size": "1 MB"},
}
STEP = {
    "schema_version": 1,
    "fabric": "2D-SW_SW",
    "workload": {
        "model": "vgg16",
        "batch_per_replica": 1,
        "precision": "fp16",
        "parallelism": {"dp": 1024},
        "compute": {"device": "a100", "efficiency": 0.5},
    },
}


def former(of):
    """Pairs of a name before and the name of today."""
    pairs = [(row["formerly"], row["name"]) for row in table(of) if row.get("formerly")]
    assert pairs
    return pairs


def test_a_former_name_is_no_name_of_today():
    for of in TABLES:
        assert not {before for before, _ in former(of)} & set(names(of))


def test_a_chunk_scheduler():
    for before, now in former("policies"):
        old, new = (
            allrail.simulate({**COLLECTIVE, "schedule": {"policy": name}}).to_dict()
            for name in (before, now)
        )
        assert {**old, "host": None} == {**new, "host": None}


def test_a_coordination():
    for before, now in former("coordinations"):
        for form in (before, {"policy": before}):
            scenario = allrail.load_scenario({**STEP, "schedule": {"coordination": form}})
            assert scenario.schedule.coordination == {"policy": now}
