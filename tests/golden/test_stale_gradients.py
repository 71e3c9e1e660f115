"""Gradients that are applied late: pipelines that are never flushed, and a lag of several steps.

Pipelines are of four stages, a layer each, whose passes of a whole batch are given; without what
travels a steady step is the computing of the slowest stage, and with a flush a bubble more.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allrail
from allrail.base.errors import InputError
from allrail.targets import apply_to

STEADY = ("pipedream", "pipedream_2bw", "pipemare")
STAGES = 4
FAST, SLOW = "100 TB/s", "1 GB/s"


def layer(name, forward, backward):
    times = {"forward": f"{forward} us", "backward": f"{backward} us"}
    return {"name": name, "dense": {"inputs": 64, "outputs": 64}, **times}


def pipeline(
    schedule,
    times,
    *,
    microbatches=8,
    bandwidth=FAST,
    dp=1,
    tensor=None,
    network_model="dims",
    **workload,
):
    dimension = {"kind": "switch", "bandwidth": bandwidth, "latency": "0 s"}
    sizes = (STAGES, dp) if dp > 1 else (STAGES,)
    return {
        "schema_version": 1,
        "fabric": {"name": "f", "dimensions": [{**dimension, "size": size} for size in sizes]},
        "workload": {
            "model": {"layers": [layer(f"l{i}", *pair) for i, pair in enumerate(times)]},
            "batch_per_replica": microbatches,
            "precision": "fp32",
            "optimizer": "none",
            "iterations": 4,
            "compute": {"device": "v100"},
            "parallelism": {
                "pp": STAGES,
                "microbatches": microbatches,
                "schedule": schedule,
                **({"map": {"pp": [0], "dp": [1]}} if dp > 1 else {}),
            },
            **workload,
        },
        "schedule": {"chunks": 1, **({"tensor": tensor} if tensor else {})},
        "network_model": network_model,
    }


def simulated(*args, sets=None, **keys):
    return allrail.simulate(pipeline(*args, **keys), sets=sets or {})


EQUAL = [(100, 200)] * STAGES


def test_a_steady_step_has_no_bubble():
    # Eight microbatches of 12.5 and 25 us. A flush adds three of them: (p - 1) (f + b).
    assert simulated("1f1b", EQUAL).step_time_us == pytest.approx(300 + 3 * 37.5, rel=1e-4)
    for schedule in STEADY:
        result = simulated(schedule, EQUAL)
        assert result.step_time_us == pytest.approx(300, rel=1e-4), schedule
        assert result.steps_us[-1] == pytest.approx(300, rel=1e-4)
        assert result.waiting_us + result.exposed_communication_us < 0.1
        # The slowest stage is what counts, wherever it is.
        for slow in range(STAGES):
            times = [(150, 290) if i == slow else (100, 200) for i in range(STAGES)]
            assert simulated(schedule, times).step_time_us == pytest.approx(440, rel=1e-4)


passes = st.lists(
    st.tuples(st.integers(10, 400), st.integers(10, 800)), min_size=STAGES, max_size=STAGES
)


@settings(max_examples=20, deadline=None)
@given(
    passes, st.sampled_from(STEADY), st.sampled_from((4, 7, 8)), st.sampled_from(("dims", "links"))
)
def test_a_steady_step_is_the_slowest_stage(times, schedule, microbatches, network_model):
    keys = {"microbatches": microbatches, "network_model": network_model, "iterations": 6}
    step = simulated(schedule, times, **keys).step_time_us
    slowest = max(sum(pair) for pair in times)
    # In flight at a stage are as many as there are stages from it on: where those behind it are
    # slower, one of them is the slowest.
    assert step >= slowest * (1 - 1e-3)
    assert step <= slowest * (1 + 1e-3) + 0.1
    assert step <= simulated("1f1b", times, **keys).step_time_us * (1 + 1e-3)


@settings(max_examples=20, deadline=None)
@given(passes, st.sampled_from(STEADY), st.sampled_from((1, 2)), st.sampled_from((SLOW, FAST)))
def test_no_flush_is_never_slower(times, schedule, dp, bandwidth):
    keys = {"dp": dp, "bandwidth": bandwidth, "iterations": 6}
    if schedule == "pipedream" and dp > 1:
        # It exchanges after each of eight microbatches.
        keys["bandwidth"] = FAST
    steady, flushed = (simulated(one, times, **keys).step_time_us for one in (schedule, "1f1b"))
    assert max(sum(pair) for pair in times) * (1 - 1e-3) <= steady <= flushed * (1 + 1e-3)


def test_messages_are_hidden_but_for_their_part():
    """Messages of c us each way: each stage but the last waits 2 c longer than the one behind it.

    A period T leaves T - t of slack at each of p stages, which has to hold all of that:
    T = t + 2 c (p - 1) / p.
    """
    # A microbatch's 64 numbers are 256 bytes, 4 us.
    for schedule in STEADY:
        step = simulated(schedule, EQUAL, bandwidth="64 MB/s", iterations=8).step_time_us
        assert step == pytest.approx(8 * (37.5 + 2 * 4 * 3 / 4), rel=0.01)


def test_pipedream_exchanges_after_every_microbatch():
    sent = {
        schedule: simulated(schedule, EQUAL, dp=2).to_dict()["dimensions"][1]["bytes_per_npu"]
        for schedule in ("1f1b", *STEADY)
    }
    gradient = 4 * (64 * 64 + 64)
    assert sent["1f1b"] == sent["pipedream_2bw"] == sent["pipemare"] == gradient
    assert sent["pipedream"] == 8 * gradient


def test_an_exchange_hides_behind_the_next_step():
    """2BW applies it a step later; 1F1B waits for it, and PipeDream after every microbatch."""
    slow = {"dp": 2, "bandwidth": SLOW, "iterations": 6}
    steps = {one: simulated(one, EQUAL, **slow).step_time_us for one in ("1f1b", *STEADY)}
    quick = {one: simulated(one, EQUAL, dp=2).step_time_us for one in ("1f1b", *STEADY)}
    gradient = 4 * (64 * 64 + 64) / 1e3  # us at 1 GB/s
    assert steps["1f1b"] >= quick["1f1b"] + gradient * 0.9
    # What each stage sends on is waited for all the same.
    assert steps["pipedream_2bw"] == steps["pipemare"] < steps["1f1b"]
    assert steps["pipedream"] >= 300 + 8 * gradient * 0.9


@pytest.mark.parametrize("layers", [STAGES, 2 * STAGES])
def test_memory_has_the_versions_of_the_weights(layers):
    times = [(100, 200)] * layers
    memory = {one: simulated(one, times).to_dict()["memory"] for one in ("1f1b", *STEADY)}
    weights = memory["1f1b"]["parameters"]
    assert weights == layers // STAGES * 4 * (64 * 64 + 64)
    # The first stage has the most in flight, and versions of the weights.
    assert memory["pipedream"]["parameters"] == STAGES * weights
    assert memory["pipedream_2bw"]["parameters"] == 2 * weights
    assert memory["pipemare"]["parameters"] == weights
    for one in STEADY:
        assert memory[one]["activations"] == memory["1f1b"]["activations"]
        assert memory[one]["gradients"] == memory["1f1b"]["gradients"]
    travelling = simulated("pipedream_2bw", times, dp=2).to_dict()["memory"]["gradients"]
    assert travelling == 2 * memory["1f1b"]["gradients"]


def test_tied_tables_exchange_a_step_later():
    """The ends of the table tell each other their gradients, and no stage waits for that."""
    sizes = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 500, "sequence_length": 16}
    model = {"transformer": {**sizes, "tied": True}}
    steps = {
        one: simulated(one, EQUAL, model=model, dp=2, iterations=5).step_time_us
        for one in ("1f1b", "pipedream_2bw", "pipemare")
    }
    assert steps["pipedream_2bw"] == steps["pipemare"] < steps["1f1b"]
    with pytest.raises(InputError) as raised:
        simulated("pipedream", EQUAL, model=model)
    assert "tied table" in raised.value.why
    assert "pipedream_2bw" in (raised.value.hint or "")


def test_results_say_what_is_not_modelled_unless_they_are_told():
    [note] = [n for n in simulated("pipemare", EQUAL).notes if "convergence" in n]
    assert "is not modelled (`target.statistical_efficiency`)" in note
    target = {"samples": 8000, "statistical_efficiency": 0.8}
    told = simulated("pipemare", EQUAL, target=target)
    assert not [n for n in told.notes if "convergence" in n]
    # 1,000 steps of eight samples, and a quarter more.
    assert told.to_dict()["time_to_train"]["steps"] == 1250


BAD = [
    ({"parallelism.zero": 1}, {}, "parallelism.zero"),
    ({"every": 2, "iterations": 5}, {}, "every"),
    ({"lag": 1}, {}, "lag"),
    ({"parallelism.overlap_gradients": False}, {}, "parallelism.overlap_gradients"),
    ({"parallelism.reduce": "microbatch"}, {}, "parallelism.reduce"),
    ({"parallelism.virtual_stages": 2}, {}, "parallelism.virtual_stages"),
    ({}, {"microbatches": 3}, "parallelism.microbatches"),
]


@pytest.mark.parametrize("schedule", STEADY)
@pytest.mark.parametrize(("change", "keys", "field"), BAD)
def test_what_does_not_go_without_a_flush_is_refused(schedule, change, keys, field):
    sets = {f"workload.{key}": value for key, value in change.items()}
    with pytest.raises(InputError) as raised:
        simulated(schedule, EQUAL, sets=sets, **keys)
    assert raised.value.field == f"workload.{field}"
    assert raised.value.hint


@pytest.mark.parametrize("value", [0, -0.5, 1e9])
def test_an_efficiency_has_a_range(value):
    with pytest.raises(InputError) as raised:
        simulated("1f1b", EQUAL, target={"steps": 10, "statistical_efficiency": value})
    assert raised.value.field == "workload.target.statistical_efficiency"


def test_one_stage_has_nothing_to_flush():
    def steps(schedule):
        one = pipeline(schedule, EQUAL)
        one["workload"]["parallelism"] = {"schedule": schedule, "microbatches": 2}
        one["workload"]["parallelism"]["dp"] = STAGES
        return allrail.simulate(one).step_time_us

    assert len({steps(schedule) for schedule in ("1f1b", *STEADY)}) == 1


@pytest.mark.parametrize("tool", ["megatron", "torchtitan", "allrail"])
@pytest.mark.parametrize("key", ["lag", "schedule"])
def test_no_tool_carries_it(tool, key, tmp_path):
    one = {
        "schema_version": 1,
        "fabric": "dgx-h100",
        "workload": {
            "model": "llama3_8b",
            "global_batch": 1024,
            "precision": "bf16",
            "parallelism": {"pp": 4},
            "compute": {"device": "h100"},
        },
    }
    if key == "lag":
        one["workload"]["lag"] = 3
    else:
        one["workload"]["parallelism"]["schedule"] = "pipedream_2bw"
    with pytest.raises(InputError) as raised:
        apply_to(one, tmp_path, targets=[tool])
    said = "lag: 3" if key == "lag" else "schedule: pipedream_2bw"
    assert tool == "allrail" or f"no `{said}`" in str(raised.value)


def replicas(lag, *, bandwidth="100 GB/s", tensor=None, iterations=9, **workload):
    return {
        "schema_version": 1,
        "fabric": {
            "name": "f",
            "dimensions": [{"kind": "switch", "size": 4, "bandwidth": bandwidth, "latency": "0 s"}],
        },
        "workload": {
            "model": {"layers": [layer(f"l{i}", 100, 200) for i in range(3)]},
            "batch_per_replica": 8,
            "precision": "fp32",
            "optimizer": "none",
            "compute": {"device": "v100"},
            "lag": lag,
            "iterations": iterations,
            **workload,
        },
        "schedule": {"chunks": 1, **({"tensor": tensor} if tensor else {})},
    }


SERVERS = {"policy": "fifo", "exchange": "parameter_server", "servers": {"colocated": False}}


@pytest.mark.parametrize("tensor", [None, SERVERS], ids=["all_reduce", "servers"])
@pytest.mark.parametrize("lag", [1, 2, 3, 8])
def test_a_lag_hides_all_but_what_the_network_takes(lag, tensor):
    """A step computes 900 us, and exchanges three gradients of 16,640 bytes.

    An NPU sends each one and a half times. To servers it goes whole: the link of the one that keeps
    it takes it from four workers, and gives it back to them.
    """
    for bandwidth, each in (("1 GB/s", 16.64), ("20 MB/s", 832)):
        result = allrail.simulate(replicas(lag, bandwidth=bandwidth, tensor=tensor))
        assert (len(result.steps_us) - 1) % (lag + 1) == 0
        least = max(900, each * (4.5 if tensor is None else 4))
        most = least if tensor is None else max(900, 2 * least)
        assert least * 0.999 <= result.step_time_us <= most * 1.001


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 5),
    st.sampled_from(("20 MB/s", "40 MB/s", "1 GB/s")),
    st.sampled_from((None, SERVERS, {"policy": "ddp"}, {"policy": "bytescheduler"})),
)
def test_more_lag_is_never_slower(lag, bandwidth, tensor):
    # As many rounds of both lags, so that neither ends within one.
    count = 1 + 2 * (lag + 1) * (lag + 2)
    less, more = (
        allrail.simulate(
            replicas(one, bandwidth=bandwidth, tensor=tensor, iterations=count)
        ).step_time_us
        for one in (lag, lag + 1)
    )
    assert more <= less * (1 + 1e-3)


def test_a_lag_rides_out_ranks_that_are_slow_now_and_then():
    slow = {"stragglers": [{"ranks": [0, 1, 2, 3], "factor": 3, "probability": 0.2}]}
    steps = [
        allrail.simulate(replicas(lag, iterations=61, **slow)).step_time_us for lag in (0, 1, 4)
    ]
    assert steps[0] > steps[1] > steps[2]
    # A rank computes 900 · (0.8 + 0.2 · 3) us in the mean, and waits for nothing if it may be late.
    assert steps[2] > 900 * 1.4 * 0.8


def test_a_lag_keeps_as_many_gradients_and_says_what_is_not_modelled():
    gradients = [
        allrail.simulate(replicas(lag)).to_dict()["memory"]["gradients"] for lag in (0, 1, 4)
    ]
    assert gradients == [gradients[0], 2 * gradients[0], 5 * gradients[0]]
    notes = allrail.simulate(replicas(4)).notes
    assert any("applied 4 iterations late" in note for note in notes)
    told = {"steps": 100, "statistical_efficiency": 0.5}
    notes = allrail.simulate(replicas(4, target=told)).notes
    assert not any("iterations late" in note for note in notes)


@pytest.mark.parametrize("lag", [-1, 65, 1.5])
def test_a_lag_has_a_range(lag):
    with pytest.raises(InputError) as raised:
        allrail.simulate(replicas(lag))
    assert raised.value.field == "workload.lag"
