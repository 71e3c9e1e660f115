"""Whatever tree is given: a result, or an InputError that says where; nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allrail
from allrail import InputError
from allrail.scenario.fields import names
from allrail.scenario.places import parse_path

BASE = {
    "schema_version": 1,
    "fabric": {
        "dimensions": [
            {"kind": "switch", "size": 4, "bandwidth": "100 Gb/s", "latency": "1 us"},
            {"kind": "ring", "size": 3, "links": 2, "bandwidth": "1 GB/s", "latency": "0 ns"},
        ]
    },
    "collective": [{"kind": "all_reduce", "size": "1 MiB"}],
    "schedule": {"policy": "themis", "chunks": 4},
}
PATHS = [
    "schema_version",
    "fabric",
    "fabric.name",
    "fabric.dimensions",
    "fabric.dimensions[0]",
    *(
        f"fabric.dimensions[{i}].{key}"
        for i in (0, 1)
        for key in (
            "kind",
            "size",
            "links",
            "bandwidth",
            "latency",
            "in_network_reduction",
            "contention",
        )
    ),
    "collective",
    "collective[0]",
    *(f"collective[0].{key}" for key in ("kind", "size", "start", "name", "dimensions", "typo")),
    "schedule",
    *(
        f"schedule.{key}"
        for key in (
            "policy",
            "order",
            "chunks",
            "threshold",
            "active_chunks",
            "endpoint_delay",
            "algorithms",
            "collective_order",
            "composition",
            "accept_plan",
        )
    ),
    "compat",
    *(f"compat.{key}" for key in ("cut", "loads", "communicators", "issue", "typo")),
    "network_model",
    "seed",
]
SPECIAL = st.sampled_from(
    [
        *("ring", "switch", "fully_connected", *names("algorithms")),
        *("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"),
        *(*names("policies"), *names("orders"), "links", "none"),
        *("merged", "sequential", "zero", "same_shape", "today", "1 B", "7 B", "100 KB", "1 ps"),
        *("90 s", "1 PiB", "1 KB/s", "1 PB/s", "-1 ns", "0 Gb/s", "nan", ""),
        *(["ring", "ring"], ["direct", "direct_"], [0], [1], [0, 1], [1, 0], [2], []),
        *([{"kind": "broadcast", "size": "3 B"}, {"kind": "all_to_all", "size": "9 B"}],),
        *(0, 1, 2, 3, 5, 64, 2**32, 2**64, -1, True, None, 1.5, float("nan"), float("inf")),
    ]
)
VALUES = SPECIAL | st.text(max_size=8) | st.integers() | st.floats()
CHANGES = st.dictionaries(st.sampled_from(PATHS), VALUES, max_size=3)


KINDS = st.sampled_from(["switch", "ring", "fully_connected"])
ALGORITHMS = st.sampled_from(names("algorithms"))
SIZES = st.sampled_from(["1 B", "7 B", "100 B", "1000 B", "1 MB", "1 GiB"])
TIMES = st.sampled_from(["0 ns", "1 ps", "700 ns", "3 ms"])
PLAUSIBLE = st.fixed_dictionaries(
    {},
    optional={
        **{f"fabric.dimensions[{i}].kind": KINDS for i in (0, 1)},
        **{f"fabric.dimensions[{i}].size": st.integers(2, 9) for i in (0, 1)},
        **{f"fabric.dimensions[{i}].links": st.integers(1, 8) for i in (0, 1)},
        **{f"fabric.dimensions[{i}].latency": TIMES for i in (0, 1)},
        "fabric.dimensions[0].in_network_reduction": st.booleans(),
        "fabric.dimensions[0].contention": st.sampled_from(["shared", "none"]),
        "collective[0].kind": st.sampled_from(
            ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]
        ),
        "collective[0].size": SIZES,
        "collective[0].start": TIMES,
        "collective[0].dimensions": st.sampled_from([None, [0], [1], [1, 0], [0, 1]]),
        "schedule.policy": st.sampled_from(names("policies")),
        "schedule.order": st.sampled_from(names("orders")),
        "schedule.chunks": st.sampled_from([1, 2, 3, 7]),
        "schedule.threshold": st.sampled_from([1, 16, 10**9]),
        "schedule.active_chunks": st.sampled_from([None, 1, 2, "fill"]),
        "schedule.endpoint_delay": TIMES,
        "schedule.algorithms": st.none() | st.lists(ALGORITHMS, min_size=2, max_size=2),
        "schedule.collective_order": st.sampled_from(["fifo", "lifo", "explicit"]),
        "compat.communicators": st.sampled_from(["share", "queue"]),
        "schedule.composition": st.sampled_from(["stages", "merged", "sequential"]),
        "compat.loads": st.sampled_from(["fixed_delay", "zero"]),
        "network_model": st.sampled_from(["dims", "links"]),
    },
)


@given(CHANGES)
@settings(max_examples=300, deadline=None)
def test_a_scenario_or_an_input_error(changes):
    told = ""
    try:
        allrail.load_scenario(BASE, sets=changes)
    except InputError as error:
        told = str(error)
    assert not told or "\n\nhint: " in told


@given(PLAUSIBLE)
@settings(max_examples=300, deadline=None)
def test_a_result_or_an_input_error(changes):
    with contextlib.suppress(InputError):
        result = allrail.simulate(BASE, sets=changes, cache=False)
        shared = changes.get("fabric.dimensions[0].contention") != "none"
        if result.network_model == "dims" and shared:
            rounding = 1e-4  # µs: a stage's time is a whole number of ps
            assert result.bound_time_us >= result.ideal_time_us - rounding
            assert result.time_us >= result.bound_time_us - rounding
            assert result.utilisation is not None
            assert 0 < result.utilisation <= 1 + rounding / result.time_us
        assert sum(one.bytes_per_npu for one in result.dimensions) == pytest.approx(
            result.bytes_per_npu, abs=len(result.dimensions)
        )


@given(CHANGES)
@settings(deadline=None)
def test_a_loaded_scenario_loads_again_as_itself(changes):
    try:
        loaded = allrail.load_scenario(BASE, sets=changes)
    except InputError:
        return
    again = allrail.load_scenario(loaded.model_dump())
    assert again.to_json() == loaded.to_json()


@pytest.mark.parametrize("path", PATHS)
def test_the_paths_are_paths(path):
    assert parse_path(path)


def test_simulate_many_is_simulate_many_times():
    scenarios = [
        {**BASE, "schedule": {"policy": policy, "chunks": chunks}}
        for policy in names("policies")
        for chunks in (1, 2, 7)
    ]
    for threads in (1, 2, None):
        many = allrail.simulate_many(scenarios, threads=threads)
        for scenario, result in zip(scenarios, many, strict=True):
            assert result.time_us == allrail.simulate(scenario).time_us


@pytest.mark.parametrize(
    "broken", [{"seed": -1}, {"collective": {"kind": "all_reduce", "size": "3 B"}}]
)
def test_simulate_many_says_which_is_wrong(broken):
    with pytest.raises(InputError) as caught:
        allrail.simulate_many([BASE, BASE, {**BASE, **broken}])
    assert caught.value.index == 2
    assert str(caught.value).startswith("scenario 2: `")
