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
            "batch_per_replica": batch,
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
    result = allrail.simulate(one)
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
    result = allrail.simulate(one, timeline=True)
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
    step = allrail.simulate(one)
    infinite, ideal = allrail.what_if(one, ["infinite_bandwidth", "ideal_schedule"], result=step)
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
    first, again = (allrail.simulate(shaken).to_dict() for _ in range(2))
    first.pop("host"), again.pop("host")
    assert first == again


@some
@given(scenarios)
def test_more_iterations_give_the_same_steady_step(one):
    longer = {**one, "workload": {**one["workload"], "iterations": 5}}
    three, five = allrail.simulate(one), allrail.simulate(longer)
    assert five.step_time_us == pytest.approx(three.step_time_us, rel=0.02)
    assert len(five.steps_us) == 5


@some
@given(scenarios, st.sampled_from((1.5, 3.0)))
def test_a_straggler_slows_no_more_than_its_factor(one, factor):
    plain = allrail.simulate(one)
    slow = {
        **one,
        "workload": {**one["workload"], "stragglers": [{"ranks": [0], "factor": factor}]},
    }
    straggling = allrail.simulate(slow)
    assert straggling.step_time_us >= plain.step_time_us * 0.999
    assert straggling.step_time_us <= plain.step_time_us * factor * 1.001
    (cured,) = allrail.what_if(slow, ["no_straggler"], result=straggling)
    assert cured.result.step_time_us == pytest.approx(plain.step_time_us)


@pytest.mark.parametrize("iterations", [2, 3, 4])
def test_with_a_lag_a_step_is_no_shorter_than_its_computing(iterations):
    """Two iterations are under way and may end together: one alone would be measured as nothing."""
    one = transformer({"tp": 2, "zero": 2, "microbatches": 4}, 8, {"policy": "fusion"}, "100 GB/s")
    one["workload"] |= {"lag": 1, "iterations": iterations}
    result = allrail.simulate(one)
    (plain,) = allrail.simulate({**one, "workload": {**one["workload"], "lag": 0}}).actors
    # At its ends the window cuts iterations that are under way.
    assert result.compute_us == pytest.approx(plain.compute_us, rel=0.1)
    assert result.step_time_us >= result.compute_us - 1e-6
    assert len(result.steps_us) % 2 == 1, "one, and pairs"
    assert not result.beyond_peak


LAYOUTS = (
    {"tp": 2},
    {"tp": 4, "sp": True},
    {"tp": 8, "sp": True, "map": {"tp": [0, 1]}},
    {"ep": 4},
    {"tp": 2, "ep": 4, "sp": True},
    {"tp": 4, "zero": 3},
    {"zero": 3, "shard": 4, "microbatches": 4},
    {"tp": 4, "sp": True, "async_tp": True},
    {"cp": 4},
    {"tp": 2, "cp": 2, "context": "all_gather"},
)


def transformer(layout, batch, tensor, bandwidth):
    shape = {"layers": 2, "hidden": 256, "heads": 8, "vocabulary": 1024, "sequence_length": 64}
    if layout.get("ep", 1) > 1:
        shape["experts"] = {"count": 8, "top_k": 2}
    dims = [
        {"kind": "switch", "size": 4, "bandwidth": bandwidth, "latency": "1 us"},
        {"kind": "ring", "size": 2, "bandwidth": "25 GB/s", "latency": "2 us"},
    ]
    one = scenario(dims, (), batch, "baseline", tensor, parallelism=layout)
    one["workload"]["model"] = {"transformer": shape}
    return one


transformers = st.builds(
    transformer,
    st.sampled_from(LAYOUTS),
    st.sampled_from((1, 8)),
    tensors,
    st.sampled_from(("2 GB/s", "100 GB/s")),
)


def on_path(result, what):
    return sum(part.time_us for part in result.critical_path if part.what == what)


@some
@given(st.one_of(transformers, scenarios))
def test_one_actor_without_stragglers_waits_for_nobody(one):
    result = allrail.simulate(one)
    assert len(result.actors) == 1
    assert result.waiting_us == pytest.approx(0, abs=1e-6)
    assert on_path(result, "waiting") == pytest.approx(0, abs=1e-6)
    # What overlaps is on the path as communication, and in the step's parts as compute.
    last = result.steps_us[-1]
    if result.steps_us[-1] == pytest.approx(result.step_time_us, rel=1e-9):
        assert on_path(result, "compute") <= result.compute_us + 1e-6
        assert last - on_path(result, "compute") >= result.exposed_communication_us - 1e-6


collectives = st.builds(
    lambda kind, size, purpose: {kind: size, "over": "all", "for": purpose},
    st.sampled_from(("reduce_scatter", "all_gather", "all_to_all", "all_reduce")),
    st.sampled_from(("1 MB", "64 MB")),
    st.sampled_from(("tensor", "expert", "data")),
)
chains = st.lists(
    st.one_of(collectives, st.sampled_from(({"compute": "1 ms"}, {"compute": "7 us"}))), min_size=1
)


@some
@given(dimensions, chains)
def test_a_chain_s_critical_path_is_its_parts(dims, chain):
    ranks = [{f"axis{i}": one["size"]} for i, one in enumerate(dims)]
    axes = [axis for one in ranks for axis in one]
    steps = {"ranks": ranks, "groups": {"all": axes}, "steps": {"one": chain}}
    one = scenario(dims, (), 1, "themis", {"policy": "fifo"})
    one["workload"] = {"model": {"steps": steps}, "iterations": 2}
    result = allrail.simulate(one)
    on = dict.fromkeys(("tensor", "expert", "data"), 0.0)
    for part in result.critical_path:
        if part.what == "communication":
            on[part.purpose] += part.time_us
    assert on == pytest.approx({purpose: result.exposed_us[purpose] for purpose in on})
    assert on_path(result, "compute") == pytest.approx(result.compute_us)
    assert result.waiting_us == on_path(result, "waiting") == 0


@settings(some, max_examples=10)
@given(
    st.sampled_from(({"pp": 2}, {"pp": 2, "microbatches": 8}, {"pp": 2, "tp": 2, "sp": True})),
    st.sampled_from((8, 16)),
)
def test_a_job_s_parts_are_the_means_of_its_stages(layout, batch):
    result = allrail.simulate(transformer(layout, batch, {"policy": "fifo"}, "100 GB/s"))
    ranks = sum(actor.ranks for actor in result.actors)
    assert len(result.actors) == layout["pp"]

    def mean(of):
        return pytest.approx(sum(actor.ranks * of(actor) for actor in result.actors) / ranks)

    assert result.compute_us == mean(lambda actor: actor.compute_us)
    assert result.waiting_us == mean(lambda actor: actor.waiting_us)
    for purpose, us in result.exposed_us.items():
        assert us == mean(lambda actor, purpose=purpose: actor.exposed_us[purpose])
    for actor in result.actors:
        kinds = sum(us for _, us in actor.exposed_us.items())
        parts = actor.compute_us + kinds + actor.waiting_us
        assert parts == pytest.approx(result.step_time_us, rel=1e-6)
    assert result.waiting_us > 0, "a pipeline has bubbles"
    assert result.worst_actor.compute_us <= result.compute_us + 1e-6


CUTS = (
    {"cp": 4},
    {"cp": 4, "context": "all_gather"},
    {"tp": 4, "sp": True, "async_tp": True},
    {"zero": 3, "shard": 4, "microbatches": 4},
    {"zero": 3, "reshard": False, "microbatches": 4, "prefetch": 2},
    {"pp": 2, "schedule": "zero_bubble", "microbatches": 4},
    {"pp": 2, "schedule": "dual_pipe", "microbatches": 4, "ep": 2},
    {"ep": 8, "expert_nodes": 1, "capacity_factor": 1.5},
    {"pp": 2, "zero": 1, "overlap_gradients": False, "overlap_parameters": False},
)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_layout_takes_about_as_long_in_every_network_model(cut):
    one = transformer(cut, 8, {"policy": "fifo"}, "100 GB/s")
    link = {"bandwidth": "50 GB/s", "latency": "1 us"}
    one["fabric"] = {"topology": "torus", "shape": [4, 2], "link": link}
    network_models = ("dims", "links", "flows", "packets")
    results = [
        allrail.simulate({**one, "network_model": network_model})
        for network_model in network_models
    ]
    for result in results:
        for whole in (result, *result.actors):
            parts = whole.compute_us + whole.exposed_communication_us + whole.waiting_us
            assert parts == pytest.approx(result.step_time_us, rel=1e-6)
        assert sum(part.share for part in result.critical_path) == pytest.approx(1, abs=1e-6)
        path = sum(part.time_us for part in result.critical_path)
        assert path == pytest.approx(result.steps_us[-1], rel=1e-6)
    steps = [result.step_time_us for result in results]
    # Most of it is compute; what is sent meets other messages, or does not.
    assert max(steps) <= 1.25 * min(steps)


@pytest.mark.parametrize("network_model", ["dims", "links", "flows", "packets"])
@pytest.mark.parametrize("trace", ["100 Gb/s", "400 Gb/s"])
def test_no_dimension_carries_more_than_it_can(trace, network_model):
    """Stages talk over traces of a board alone, which are four times as wide as its cables."""
    mesh = {
        "topology": "hammingmesh",
        "board": [2, 2],
        "grid": [2, 2],
        "planes": 1,
        "link": {"bandwidth": "100 Gb/s", "latency": "20 ns"},
        "board_link": {"bandwidth": trace, "latency": "1 ns"},
    }
    one = transformer({"tp": 2, "dp": 8}, 16, {"policy": "fifo"}, "100 GB/s")
    result = allrail.simulate({**one, "fabric": mesh, "network_model": network_model})
    assert all(0 <= dimension.utilisation <= 1 + 1e-9 for dimension in result.dimensions)
