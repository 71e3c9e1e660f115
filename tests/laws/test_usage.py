"""What is used while anything communicates lies between what is used on average and all."""

from __future__ import annotations

import pytest

import allrail

FABRIC = {
    "name": "two",
    "dimensions": [
        {"kind": "ring", "size": 4, "bandwidth": "20 Gb/s", "latency": "1 us"},
        {"kind": "ring", "size": 2, "bandwidth": "1 Gb/s", "latency": "2 us"},
    ],
}


@pytest.mark.parametrize("network_model", ["dims", "links", "flows"])
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("bandwidth", ["1 Gb/s", "20 Gb/s", "400 Gb/s"])
@pytest.mark.parametrize("tensor", ["fifo", "bytescheduler"])
def test_what_is_used_while_communicating_lies_between(network_model, lag, bandwidth, tensor):
    """Also of steps whose communication never rests, as with a lag."""
    result = allrail.simulate(
        {
            "schema_version": 1,
            "fabric": FABRIC,
            "workload": {
                "model": "resnet50",
                "batch_per_replica": 8,
                "compute": {"device": "a100"},
                "parallelism": {"dp": 8},
                "iterations": 4,
                "lag": lag,
            },
            "schedule": {"chunks": 4, **({} if lag else {"tensor": tensor})},
            "network_model": network_model,
        },
        sets={"fabric.dimensions[1].bandwidth": bandwidth},
    )
    meanwhile = result.utilisation_while_communicating
    assert meanwhile is not None
    assert result.utilisation <= meanwhile * (1 + 1e-9)
    # Bytes count to the step in which they are handed over.
    assert meanwhile <= 1.02
