"""`algorithms: auto`: one choice, whoever carries it out, and none that is faster in `dims`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allrail
from allrail import _core
from allrail.base.errors import InputError

NAMES = [row["name"] for row in json.loads(_core.algorithms())]
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def dimension(kind="switch", size=4, bandwidth="10 GB/s", latency="5 us", **more):
    return {"kind": kind, "size": size, "bandwidth": bandwidth, "latency": latency, **more}


def scenario(dimensions, *, size="1 MB", kind="all_reduce", network_model="dims", **schedule):
    return {
        "schema_version": 1,
        "fabric": {"dimensions": list(dimensions)},
        "collective": {"kind": kind, "size": size},
        "schedule": {"algorithms": "auto", "chunks": 4, **schedule},
        "network_model": network_model,
    }


def ran(result):
    return [one.algorithm for one in result.dimensions]


DIMENSIONS = st.lists(
    st.builds(
        dimension,
        st.sampled_from(["ring", "switch", "fully_connected"]),
        st.integers(2, 6),
        st.sampled_from(["1 GB/s", "10 GB/s", "200 GB/s"]),
        st.sampled_from(["0 ns", "1 us", "50 us"]),
    ),
    min_size=1,
    max_size=3,
)
SIZES = st.integers(3, 10).map(lambda power: f"{10**power} B")


@settings(max_examples=25, deadline=None)
@given(DIMENSIONS, SIZES, st.sampled_from(OPERATIONS), st.sampled_from(["baseline", "themis"]))
def test_no_single_algorithm_is_faster_in_dims(dimensions, size, kind, policy):
    chosen = allrail.simulate(scenario(dimensions, size=size, kind=kind, policy=policy))
    tried = 0
    for name in NAMES:
        named = scenario(dimensions, size=size, kind=kind, policy=policy)
        named["schedule"]["algorithms"] = [name] * len(dimensions)
        try:
            other = allrail.simulate(named)
        except InputError:
            continue
        tried += 1
        assert chosen.time_us <= other.time_us * (1 + 1e-9), name
    assert tried


@settings(max_examples=15, deadline=None)
@given(DIMENSIONS, SIZES.filter(lambda size: len(size) < 11), st.sampled_from(OPERATIONS))
def test_network_models_and_the_plan_agree(dimensions, size, kind):
    asked = scenario(dimensions, size=size, kind=kind)
    plan = allrail.plan(asked, cache=False)
    [made] = plan.to_dict()["plans"]
    assert ran(allrail.simulate(asked)) == made["algorithms"]
    assert ran(allrail.simulate({**asked, "network_model": "links"})) == made["algorithms"]
    # The plan is data: it is what runs, whatever the scenario leaves open.
    assert ran(allrail.simulate(asked, plan=plan)) == made["algorithms"]


@pytest.mark.parametrize("size", ["1 KB", "100 KB", "10 MB"])
def test_network_models_of_cables_agree(size):
    torus = {"topology": "torus", "shape": [4, 4]}
    asked = {**scenario([], size=size), "fabric": torus}
    network_models = [
        ran(allrail.simulate({**asked, "network_model": network_model}))
        for network_model in NETWORK_MODELS
    ]
    assert network_models == [network_models[0]] * len(network_models)


NETWORK_MODELS = ("dims", "links", "flows", "packets")


def step(dimensions, network_model, **schedule):
    layers = [
        {"name": name, "parameters": count, "flops": 1, "forward": "1 ms", "backward": "2 ms"}
        for name, count in (("small", 500), ("large", 5_000_000))
    ]
    return {
        "schema_version": 1,
        "fabric": {"dimensions": dimensions},
        "workload": {
            "model": {"layers": layers},
            "precision": "fp32",
            "batch_per_replica": 1,
            "parallelism": {"dp": 8},
            "optimizer": "none",
        },
        "schedule": {"algorithms": "auto", "chunks": 4, **schedule},
        "network_model": network_model,
    }


def test_gradients_of_other_sizes_take_other_algorithms_alike_in_both_network_models():
    dimensions = [dimension("ring", 8)]
    found = [
        allrail.simulate(step(dimensions, network_model)) for network_model in ("dims", "links")
    ]
    told = [ran(result) for result in found]
    assert told[0] == told[1]
    assert len(told[0][0].split(", ")) == 2
    usual = step(dimensions, "dims")
    del usual["schedule"]["algorithms"]
    assert found[0].step_time_us < allrail.simulate(usual).step_time_us


def test_by_operation_may_be_left_open_too():
    dimensions = [dimension("ring", 8)]
    asked = step(dimensions, "dims", algorithms_by_operation={"all_reduce": "auto"})
    asked["schedule"]["algorithms"] = ["ring"]
    whole = allrail.simulate(step(dimensions, "dims"))
    assert allrail.simulate(asked).step_time_us == whole.step_time_us


POINTS = [
    {"from": "1 B", "algorithm": "halving_doubling"},
    {"from": "250 KB", "algorithm": "ring"},
]


@pytest.mark.parametrize(("size", "name"), [("999 KB", "halving_doubling"), ("1 MB", "ring")])
@pytest.mark.parametrize("network_model", ["dims", "links"])
def test_what_was_measured_goes_first(size, name, network_model):
    """Of 1 MB a quarter reaches the second dimension."""
    outer = dimension(size=4, fastest={"all_reduce": POINTS})
    asked = scenario([dimension(size=4), outer], size=size, network_model=network_model)
    assert ran(allrail.simulate(asked))[1] == name


@pytest.mark.parametrize(
    ("algorithms", "field", "why"),
    [
        ("ring", "schedule.algorithms", "not a list"),
        ("fastest", "schedule.algorithms", "not a list"),
        (["auto"], "schedule.algorithms", "2 dimensions"),
        (["auto", "rng"], "schedule.algorithms[1]", "not an algorithm"),
        (["auto", None], "schedule.algorithms[1]", "not an algorithm"),
        ({"all_reduce": "auto"}, "schedule.algorithms", "not a list"),
        (["binary_tree", "auto"], "schedule.algorithms", "does not do"),
    ],
)
def test_what_is_neither_named_nor_left_open_is_refused(algorithms, field, why):
    with pytest.raises(InputError) as caught:
        allrail.simulate(scenario([dimension(), dimension()], algorithms=algorithms))
    assert caught.value.field == field
    assert why in caught.value.why
    assert caught.value.hint


@pytest.mark.parametrize(
    ("fastest", "why"),
    [
        ([], "not a mapping"),
        ({"all_reduces": POINTS}, "not a collective"),
        ({"all_reduce": []}, "not a list"),
        ({"all_reduce": [{"from": "1 B"}]}, "no size with an algorithm"),
        ({"all_reduce": [{"from": "1 us", "algorithm": "ring"}]}, "unit"),
        ({"all_reduce": [{"from": "1 B", "algorithm": "rng"}]}, "not an algorithm"),
        ({"all_reduce": POINTS[::-1]}, "do not rise"),
        ({"all_to_all": [{"from": "1 B", "algorithm": "binary_tree"}]}, "does not do"),
    ],
)
def test_what_cannot_have_been_measured_is_refused(fastest, why):
    with pytest.raises(InputError) as caught:
        allrail.simulate(scenario([dimension(fastest=fastest)]))
    assert caught.value.field.startswith("fabric.dimensions[0].fastest")
    assert why in caught.value.why
