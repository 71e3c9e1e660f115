"""Results to write and draw: three schedules of one collective."""

from __future__ import annotations

import pytest

import allrail


def scenario(policy: str, order: str, **schedule):
    return allrail.load_scenario(
        {
            "schema_version": 1,
            "fabric": "3D-SW_SW_SW_hetero",
            "collective": {"kind": "all_reduce", "size": "100 MB"},
            "schedule": {"policy": policy, "order": order, "chunks": 16, **schedule},
        }
    )


@pytest.fixture(scope="session")
def scenarios():
    return {
        "baseline": scenario("baseline", "fifo"),
        "themis": scenario("themis", "smallest_first"),
    }


@pytest.fixture(scope="session")
def results(scenarios):
    return {
        name: allrail.simulate(one, timeline=True, cache=False) for name, one in scenarios.items()
    }
