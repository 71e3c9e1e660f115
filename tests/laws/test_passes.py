"""A step by pass: the parts add up to the step, whatever is trained and wherever it runs."""

from __future__ import annotations

import pytest

import allrail

FABRIC = {
    "name": "small",
    "dimensions": [
        {"kind": "switch", "size": 4, "bandwidth": "20 GB/s", "latency": "1 us"},
        {"kind": "ring", "size": 4, "bandwidth": "5 GB/s", "latency": "1 us"},
    ],
}
TRANSFORMER = {
    "layers": 8,
    "hidden": 256,
    "heads": 8,
    "vocabulary": 1024,
    "sequence_length": 64,
}
LAYOUTS = {
    "data": {"dp": 16},
    "barrier": {"dp": 16, "zero": 1},
    "sharded": {"dp": 16, "zero": 3},
    "tensor": {"tp": 4, "dp": 4},
    "pipeline": {"pp": 4, "dp": 4, "microbatches": 4},
    "recomputed": {"tp": 4, "pp": 2, "dp": 2, "microbatches": 2, "recompute": "full"},
}
NETWORK_MODELS = ("dims", "links", "flows")


def step(layout, *, network_model="dims", tensor="ddp", **workload):
    return allrail.simulate(
        {
            "schema_version": 1,
            "fabric": FABRIC,
            "workload": {
                "model": {"transformer": TRANSFORMER},
                "batch_per_replica": 8,
                "parallelism": LAYOUTS[layout],
                "compute": {"peak": "1 TFLOP/s", "memory_bandwidth": "1 TB/s"},
                "iterations": 3,
                **workload,
            },
            "schedule": {"chunks": 4, "tensor": tensor},
            "network_model": network_model,
        }
    )


def adds_up(result):
    parts = list(result.passes.values())
    for name, whole in (
        ("time_us", result.step_time_us),
        ("compute_us", result.compute_us),
        ("exposed_us", result.exposed_communication_us),
        ("waiting_us", result.waiting_us),
    ):
        assert sum(getattr(one, name) for one in parts) == pytest.approx(whole, abs=1e-3), name
    for one in parts:
        assert one.time_us == pytest.approx(one.compute_us + one.exposed_us + one.waiting_us)


@pytest.mark.parametrize("tensor", ["fifo", "ddp", "bytescheduler"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_passes_add_up(layout, tensor):
    adds_up(step(layout, tensor=tensor))


@pytest.mark.parametrize("network_model", NETWORK_MODELS)
@pytest.mark.parametrize("layout", ["barrier", "pipeline", "recomputed"])
def test_passes_add_up_in_every_network_model(layout, network_model):
    adds_up(step(layout, network_model=network_model))


@pytest.mark.parametrize(
    "disturbed",
    [
        {"stragglers": [{"ranks": [3], "factor": 2.0}]},
        {"jitter": {"deviation": 0.1}},
        {"exchange_slowdown": 0.5},
        {"lag": 1},
        {"every": 2},
        {"iterations": 1},
    ],
    ids=lambda one: next(iter(one)),
)
def test_passes_add_up_when_ranks_differ(disturbed):
    adds_up(step("data", **disturbed))
    if "lag" not in disturbed and "every" not in disturbed:
        adds_up(step("pipeline", tensor="bytescheduler", **disturbed))


def test_what_is_exchanged_counts_to_its_pass():
    data, barrier, sharded = (step(name).passes for name in ("data", "barrier", "sharded"))
    # Gradients alone wait behind the backward pass.
    assert data.backward.exposed_us > 0
    assert data.forward.exposed_us == pytest.approx(0, abs=1e-3)
    # ZeRO 1 gathers what it has updated; ZeRO 3 gathers in the forward pass.
    assert barrier.update.exposed_us + barrier.forward.exposed_us > 0
    assert sharded.forward.exposed_us > 0
    # What a backward pass computes again is its own.
    twice, once = (step("recomputed"), step("tensor"))
    assert twice.passes.backward.compute_us / twice.passes.forward.compute_us == pytest.approx(
        1 + once.passes.backward.compute_us / once.passes.forward.compute_us, rel=0.02
    )


def test_the_next_iteration_is_not_this_one():
    """Without a barrier two iterations overlap: the parts are of steady steps all the same."""
    one, four = (
        step("data", tensor="bytescheduler", iterations=2),
        step("data", tensor="bytescheduler", iterations=8),
    )
    for name in ("forward", "backward", "update"):
        assert one.passes[name].compute_us == pytest.approx(four.passes[name].compute_us, rel=1e-6)


def test_a_step_is_shown_by_pass(folder, allrail_cli):
    import json

    import yaml

    tree = dict(step("tensor").raw)
    assert set(tree["passes"]) == {"forward", "backward", "update", "other"}
    (folder / "step.yaml").write_text(
        yaml.safe_dump(
            {
                "schema_version": 1,
                "fabric": FABRIC,
                "workload": {"model": "resnet50", "compute": {"device": "a100"}},
            }
        )
    )
    told = allrail_cli("simulate", "step.yaml", "--out", "out")
    assert told.status == 0, told.stderr
    [line] = [line for line in told.stdout.splitlines() if line.startswith("passes_us")]
    assert [word for word in line.split() if word.isalpha()] == ["forward", "backward", "update"]
    result = json.loads((folder / "out" / "result.json").read_text())
    [one] = [row["result"]["passes"] for row in result["results"]] if "results" in result else [{}]
    rows = (folder / "out" / "passes.csv").read_text().splitlines()
    assert len(rows) == 5
    assert f"{one['forward']['time_us']}" in rows[1]
