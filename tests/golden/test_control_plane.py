"""Collectives that ranks agree on before they start: alone, and in a step beside gradients."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import allrail
from allrail.base.errors import InputError

COSTS = {
    "wire": "1 us",
    "send": "0 s",
    "receive": "0 s",
    "entry": "1 us",
    "entry_bytes": "100 B",
    "bandwidth": "1000 TB/s",
}
CENTRAL: dict[str, Any] = {"policy": "central", "cycle": "10 us", "latency": COSTS}
ALONE: dict[str, Any] = {
    "schema_version": 1,
    "fabric": {
        "name": "pair",
        "dimensions": [{"kind": "switch", "size": 2, "bandwidth": "100 GB/s", "latency": "1 us"}],
    },
    "collective": {"kind": "all_gather", "size": "1 MB", "start": "12 us"},
    "schedule": {"chunks": 1, "coordination": CENTRAL},
}
STEP = [
    {"broadcast": "8 B", "over": "data"},
    {"compute": "100 us", "pass": "backward"},
    {"all_reduce": "1 MB", "over": "data", "tensor": 1, "name": "t1", "background": True},
    {"compute": "100 us", "pass": "backward"},
    {"all_reduce": "1 MB", "over": "data", "tensor": 0, "name": "t0", "background": True},
    {"all_gather": "64 KB", "over": "data"},
    {"all_to_all": "64 KB", "over": "experts"},
]


def alone(**schedule: Any) -> dict[str, Any]:
    tree = copy.deepcopy(ALONE)
    tree["schedule"] |= schedule
    return tree


def step(**coordination: Any) -> dict[str, Any]:
    tree = copy.deepcopy(ALONE)
    del tree["collective"]
    tree["fabric"]["dimensions"][0]["size"] = 4
    written = {
        "ranks": [{"rank": 4}],
        "groups": {"data": ["rank"], "experts": ["rank"]},
        "steps": {"all": STEP},
    }
    tree["workload"] = {"iterations": 3, "model": {"steps": written}}
    tree["schedule"]["coordination"] |= {"threshold": "1 B"} | coordination
    return tree


def test_a_collective_starts_when_ranks_have_agreed() -> None:
    """Asked for at 12 us: sent at 20, there at 21, read and answered at 22, agreed at 23."""
    free = allrail.simulate(alone(coordination=None))
    agreed = allrail.simulate(ALONE)
    assert free.coordinators is None
    assert free.collectives[0].agreed_us is None
    assert agreed.collectives[0].agreed_us == pytest.approx(23, abs=1e-5)
    assert agreed.time_us == pytest.approx(free.time_us + 23 - 12, abs=1e-5)
    assert agreed.coordinators is not None
    # One request and one answer, 100 bytes each, beside 8 of every message.
    assert agreed.coordinators.bytes - 8 * agreed.coordinators.messages == 200


@pytest.mark.parametrize("network_model", ["dims", "links", "flows", "packets"])
def test_it_is_the_same_in_every_network_model(network_model: str) -> None:
    free = allrail.simulate({**alone(coordination=None), "network_model": network_model})
    agreed = allrail.simulate({**ALONE, "network_model": network_model})
    assert agreed.collectives[0].agreed_us == pytest.approx(23, abs=1e-5)
    assert agreed.time_us == pytest.approx(free.time_us + 23 - 12, abs=1e-5)


def test_without_coordination_nothing_changes() -> None:
    def told(schedule: dict[str, Any]) -> dict[str, Any]:
        tree = allrail.simulate(alone(**schedule)).to_dict()
        del tree["host"]
        return tree

    assert told({"coordination": None}) == told({"coordination": "none"})


def test_both_tables_say_what_was_said(folder: Any, allrail_cli: Any) -> None:
    (folder / "alone.yaml").write_text(json.dumps(ALONE))
    (folder / "step.yaml").write_text(json.dumps(step(collectives="all")))
    lines = {}
    for name in ("alone", "step"):
        outcome = allrail_cli("simulate", f"{name}.yaml")
        assert outcome.status == 0, outcome.stderr
        (lines[name],) = (
            line for line in outcome.stdout.splitlines() if line.startswith("control_plane")
        )
    result = allrail.simulate(ALONE)
    assert result.coordinators is not None
    said = f"{result.coordinators.messages} messages, {result.coordinators.bytes} B"
    assert lines["alone"].endswith(said)
    assert lines["step"].endswith(" B in 3 iterations")


def test_other_collectives_of_a_step_are_asked_for_too() -> None:
    """Of three steps and three other ranks: a request and an answer each, 100 bytes."""

    def entries(**keys: Any) -> int:
        talk = allrail.simulate(step(**keys)).coordinators
        assert talk is not None
        assert talk.bytes is not None
        return talk.bytes - 8 * talk.messages

    assert entries() == entries(collectives="gradients") == 2 * 2 * 100 * 3 * 3
    assert entries(collectives="all") == 5 * 2 * 100 * 3 * 3


@pytest.mark.parametrize("key", ["groups", "threshold", "collectives"])
def test_keys_of_gradients_are_refused_without_them(key: str) -> None:
    value = {"groups": 1, "threshold": "1 MiB", "collectives": "all"}[key]
    with pytest.raises(InputError) as raised:
        allrail.simulate(alone(coordination={**CENTRAL, key: value}))
    assert raised.value.field == f"schedule.coordination.{key}"
    assert raised.value.hint
