"""Smaller gradients, and parameters averaged now and then, as the simulator counts them.

Three layers on four NPUs, fp32. What an NPU sends of an all-reduce of s bytes is 2 s · 3/4. With
PowerSGD of rank 2 the layer of 512 × 256 takes 2 · 512 · 4 and 2 · 256 · 4 bytes, and its 512
biases 4 bytes each; with top-k of 1 %, ⌈5.12⌉ biases of 8 bytes from each of four ranks.
"""

from __future__ import annotations

import math

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.scenario.fields import names

SHAPES = [(512, 256), (384, 512), (4, 384)]
DENSE = [{"inputs": columns, "outputs": rows} for rows, columns in SHAPES]


def scenario(schedule=None, **workload):
    return {
        "schema_version": 1,
        "fabric": {
            "name": "four",
            "dimensions": [
                {"kind": "switch", "size": 4, "bandwidth": "100 MB/s", "latency": "1 us"}
            ],
        },
        "workload": {
            "model": {"layers": [{"name": f"l{i}", "dense": d} for i, d in enumerate(DENSE)]},
            "batch_per_replica": 8,
            "precision": "fp32",
            "optimizer": "none",
            "compute": {"device": "v100"},
            **workload,
        },
        "schedule": {"chunks": 1, **(schedule or {})},
    }


def simulated(*args, **workload):
    result = allrail.simulate(scenario(*args, **workload)).to_dict()
    return result, result["dimensions"][0]["bytes_per_npu"]


def top_k(numbers, share):
    slot = 8 * math.ceil(share * numbers)
    return min(4 * slot, 4 * numbers)


def low_rank(rows, columns, rank):
    return 4 * rank * (rows + columns)


EXPECTED = {
    "none": sum(4 * (n * m + n) for n, m in SHAPES),
    "fp16": sum(2 * (n * m + n) for n, m in SHAPES),
    "bf16": sum(2 * (n * m + n) for n, m in SHAPES),
    "top_k": sum(top_k(n * m, 0.01) + top_k(n, 0.01) for n, m in SHAPES),
    # Of the smallest, 2 · (4 + 384) numbers are more than half of 4 · 384: it travels as it is.
    "power_sgd": sum(low_rank(n, m, 2) + 4 * n for n, m in SHAPES[:2]) + 4 * (4 * 384 + 4),
}
SPECS = {
    "fp16": {"kind": "fp16"},
    "bf16": {"kind": "bf16"},
    "top_k": {"kind": "top_k", "share": 0.01},
    "power_sgd": {"kind": "power_sgd", "rank": 2},
}


def test_the_tests_have_every_kind():
    assert sorted(SPECS) == sorted(names("compressions"))


@pytest.mark.parametrize("kind", EXPECTED)
def test_bytes(kind):
    smaller = {"compression": SPECS[kind]} if kind in SPECS else {}
    _, sent = simulated(**smaller)
    assert sent == pytest.approx(EXPECTED[kind] * 2 * 3 / 4, abs=8)


@pytest.mark.parametrize("kind", SPECS)
def test_it_takes_the_device_time(kind):
    plain, _ = simulated()
    smaller, _ = simulated(compression=SPECS[kind])
    assert smaller["compute_us"] > plain["compute_us"]
    assert smaller["step_time_us"] < plain["step_time_us"]
    unknown = {"forward": "1 ms", "backward": "2 ms"}
    free, _ = simulated(compression=SPECS[kind], compute=unknown)
    assert free["compute_us"] == pytest.approx(3000)
    assert any("takes no time to compute" in note for note in free["notes"])
    assert not any("takes no time" in note for note in smaller["notes"])


@pytest.mark.parametrize("policy", names("tensor_policies"))
@pytest.mark.parametrize("kind", SPECS)
def test_every_tensor_scheduler_comes_to_the_end_with_it(kind, policy):
    """A bucket of first collectives does not wait for a second one that waits for them."""
    smaller = {"compression": SPECS[kind], "iterations": 3}
    _, sent = simulated({"tensor": {"policy": policy}}, **smaller)
    assert sent == pytest.approx(EXPECTED[kind] * 2 * 3 / 4, abs=64)
    # With a straggler, ranks are two classes, and each collective is still met by both.
    slow = [{"ranks": [1], "factor": 2.0}]
    result, _ = simulated({"tensor": {"policy": policy}}, stragglers=slow, **smaller)
    assert result["step_time_us"] > 0


def test_layers_without_shapes_are_squares_and_say_so():
    layers = {"layers": [{"name": "x", "parameters": 10_000, "flops": 1000}]}
    result, sent = simulated(model=layers, compression=SPECS["power_sgd"])
    assert sent == pytest.approx(2 * 3 / 4 * 4 * 2 * 200)
    assert any("1 layer of unknown shape as" in note for note in result["notes"])


def test_a_transformer_has_shapes():
    config = {
        "transformer": {
            "layers": 2,
            "hidden": 64,
            "heads": 4,
            "vocabulary": 1000,
            "sequence_length": 16,
        }
    }
    result, _ = simulated(model=config, compression=SPECS["power_sgd"])
    assert not any("unknown shapes" in note for note in result["notes"])


@pytest.mark.parametrize("every", [1, 2, 4])
def test_parameters_are_averaged_now_and_then(every):
    result, sent = simulated(every=every, iterations=5)
    assert sent == pytest.approx(EXPECTED["none"] * 2 * 3 / 4 / every, abs=8)
    plain, _ = simulated(iterations=5)
    if every > 1:
        assert result["step_time_us"] < plain["step_time_us"]
        # What averages is waited for, whatever the next pass needs first.
        crossing = {"tensor": {"policy": "bytescheduler"}}
        crossed, _ = simulated(crossing, every=every, iterations=2 * every + 1)
        whole, _ = simulated(every=every, iterations=2 * every + 1)
        assert crossed["step_time_us"] == pytest.approx(whole["step_time_us"], rel=0.05)


WRONG = [
    ({"compression": {"kind": "bf61"}}, "workload.compression.kind", "mean `bf16`?"),
    ({"compression": "bf16"}, "workload.compression", ""),
    ({"compression": {"kind": "top_k", "share": 0}}, "workload.compression.share", ""),
    ({"compression": {"kind": "top_k", "share": 1.5}}, "workload.compression.share", "at most 1"),
    ({"compression": {"kind": "top_k", "rank": 2}}, "workload.compression.rank", "leave it out"),
    ({"compression": {"kind": "power_sgd", "rank": 0}}, "workload.compression.rank", ""),
    (
        {"compression": {"kind": "bf16"}, "parallelism": {"zero": 1}},
        "workload.compression.kind",
        "gradient_precision",
    ),
    ({"every": 0}, "workload.every", ""),
    ({"every": 3}, "workload.every", "iterations: 7"),
    ({"every": 2, "iterations": 3, "parallelism": {"zero": 1}}, "workload.every", "leave"),
    ({"every": 2, "iterations": 3, "compression": {"kind": "bf16"}}, "workload.every", "leave"),
]


@pytest.mark.parametrize(("workload", "field", "hint"), WRONG)
def test_mistakes_are_named(workload, field, hint):
    with pytest.raises(InputError) as caught:
        simulated(**workload)
    assert caught.value.field == field
    assert hint in caught.value.hint
