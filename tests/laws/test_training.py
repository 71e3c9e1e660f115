"""What must hold for every training step, whatever the model, the network and the schedule."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import allrail
from allrail.scenario.fields import names, table

KINDS = ("ring", "switch", "fully_connected")

dimensions = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(KINDS),
            "size": st.sampled_from((2, 4)),
            "bandwidth": st.sampled_from(("25 GB/s", "100 GB/s")),
            "latency": st.sampled_from(("0 ns", "1 us")),
        }
    ),
    min_size=1,
    max_size=3,
)
tensors = st.sampled_from(
    [
        {"policy": row["name"], **({"credit": "8 MiB"} if "credit" in row["reads"] else {})}
        for row in table("tensor_policies")
    ]
)


def layers(sizes):
    """A chain of layers of so many parameters."""
    return {
        "layers": [
            {"name": f"layer {i}", "dense": {"inputs": size, "outputs": 1024}}
            for i, size in enumerate(sizes)
        ]
    }


def scenario(dims, sizes, batch, policy, tensor, **workload):
    return {
        "schema_version": 1,
        "fabric": {"dimensions": dims},
        "workload": {
            "model": layers(sizes),
            "batch_per_npu": batch,
            "compute": {"device": "a100"},
            "iterations": 3,
            **workload,
        },
        "schedule": {"policy": policy, "chunks": 4, "tensor": tensor},
    }


scenarios = st.builds(
    scenario,
    dimensions,
    st.lists(st.sampled_from((256, 4096, 16384)), min_size=1, max_size=6),
    st.sampled_from((1, 64, 4096)),
    st.sampled_from(names("policies")),
    tensors,
)
some = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@some
@given(scenarios)
def test_a_step_is_its_compute_its_exposed_communication_and_its_waiting(one):
    result = allrail.simulate_training(one)
    parts = result.compute_us + result.exposed_communication_us + result.waiting_us
    assert result.step_time_us == pytest.approx(parts, rel=1e-6)
    kinds = sum(us for _, us in result.exposed_us.items())
    assert result.exposed_communication_us == pytest.approx(kinds, rel=1e-6, abs=1e-6)
    for actor in result.actors:
        sum_of = actor.compute_us + actor.exposed_communication_us + actor.waiting_us
        assert result.step_time_us == pytest.approx(sum_of, rel=1e-6)
    assert sum(part.share for part in result.critical_path) == pytest.approx(1, abs=1e-6)


@some
@given(scenarios)
def test_a_step_is_between_its_bound_and_everything_one_after_the_other(one):
    result = allrail.simulate_training(one, timeline=True)
    assert result.step_time_us >= result.compute_us - 1e-6
    assert result.step_time_us >= result.bound_step_time_us - 1e-6
    last = len(result.steps_us) - 1
    asked = {
        (piece.name, piece.operation, piece.bytes)
        for piece in result.timeline
        if piece.track != "compute" and piece.iteration == last
    }
    alone = allrail.simulate_many(
        {
            "schema_version": 1,
            "fabric": one["fabric"],
            "collective": {"kind": operation, "size": f"{count} B"},
            "schedule": {"policy": one["schedule"]["policy"], "chunks": 4},
        }
        for _, operation, count in sorted(asked)
    )
    serial = result.compute_us + sum(each.time_us for each in alone)
    # A partition is a collective of its own, with its latency; what is packed waits for its cycle.
    policy = one["schedule"]["tensor"]["policy"]
    reads = next(row["reads"] for row in table("tensor_policies") if row["name"] == policy)
    if not {"partition", "cycle"} & set(reads):
        assert result.step_time_us <= serial * 1.001 + 1


@some
@given(scenarios)
def test_better_networks_and_schedules_are_no_slower(one):
    for dimension in one["fabric"]["dimensions"]:
        dimension["latency"] = "0 ns"
    step = allrail.simulate_training(one)
    infinite, ideal = allrail.what_ifs(one, ["infinite_bandwidth", "ideal_schedule"], result=step)
    compute = infinite.result.step_time_us
    assert compute >= step.compute_us - 1e-6
    policy = one["schedule"]["tensor"]["policy"]
    reads = next(row["reads"] for row in table("tensor_policies") if row["name"] == policy)
    if "cycle" not in reads:  # which is waited for, whatever the network
        assert compute == pytest.approx(step.compute_us, rel=1e-6)
    assert compute <= ideal.result.step_time_us + 1e-6
    assert ideal.result.step_time_us <= step.step_time_us * 1.001 + 1e-6


@some
@given(scenarios, st.integers(0, 3))
def test_the_same_seed_gives_the_same_step(one, seed):
    shaken = {**one, "seed": seed}
    shaken["workload"] = {**one["workload"], "jitter": {"deviation": 0.1}}
    first, again = (allrail.simulate_training(shaken).to_dict() for _ in range(2))
    first.pop("host"), again.pop("host")
    assert first == again


@some
@given(scenarios)
def test_more_iterations_give_the_same_steady_step(one):
    longer = {**one, "workload": {**one["workload"], "iterations": 5}}
    three, five = allrail.simulate_training(one), allrail.simulate_training(longer)
    assert five.step_time_us == pytest.approx(three.step_time_us, rel=0.02)
    assert len(five.steps_us) == 5


@some
@given(scenarios, st.sampled_from((1.5, 3.0)))
def test_a_straggler_slows_no_more_than_its_factor(one, factor):
    plain = allrail.simulate_training(one)
    slow = {
        **one,
        "workload": {**one["workload"], "stragglers": [{"ranks": [0], "factor": factor}]},
    }
    straggling = allrail.simulate_training(slow)
    assert straggling.step_time_us >= plain.step_time_us * 0.999
    assert straggling.step_time_us <= plain.step_time_us * factor * 1.001
    (cured,) = allrail.what_ifs(slow, ["no_straggler"], result=straggling)
    assert cured.result.step_time_us == pytest.approx(plain.step_time_us)
