"""Columns of results by kind: the names of `--json` and of tables, and their types in polars."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from allrail.results.training_result import TrainingResult

COLLECTIVES = {
    "policy": "String",
    "order": "String",
    "chunks": "Int64",
    "network_model": "String",
    "calibrated": "Boolean",
    "npus": "Int64",
    "seed": "UInt64",
    "time_us": "Float64",
    "ideal_time_us": "Float64",
    "bound_time_us": "Float64",
    "error_low_us": "Float64",
    "error_high_us": "Float64",
    "utilisation": "Float64",
    "bytes_per_npu": "Float64",
    "algbw_GBps": "Float64",
    "busbw_GBps": "Float64",
    "simulated_as": "String",
}
TRAINING = {
    "workload": "String",
    "fabric": "String",
    "policy": "String",
    "order": "String",
    "chunks": "Int64",
    "tensor_policy": "String",
    "coordination": "String",
    "network_model": "String",
    "calibrated": "Boolean",
    "npus": "Int64",
    "seed": "UInt64",
    "iterations": "Int64",
    "what_if": "String",
    "step_time_us": "Float64",
    "first_step_time_us": "Float64",
    "error_low_us": "Float64",
    "error_high_us": "Float64",
    "compute_us": "Float64",
    "exposed_communication_us": "Float64",
    "waiting_us": "Float64",
    "bound_step_time_us": "Float64",
    "utilisation": "Float64",
    "memory_per_npu_bytes": "Int64",
    "global_batch": "Int64",
    "samples_per_s": "Float64",
    "tokens_per_s_per_npu": "Float64",
    "tflops_per_npu": "Float64",
    "mfu": "Float64",
    "hfu": "Float64",
    "train_steps": "Int64",
    "train_s": "Float64",
    "train_npu_hours": "Float64",
    "train_cost": "Float64",
    "train_energy_kwh": "Float64",
}
TRAFFIC = {
    "pattern": "String",
    "network_model": "String",
    "paths": "String",
    "algorithm": "String",
    "npus": "Int64",
    "planes": "Int64",
    "size_bytes": "Int64",
    "seed": "UInt64",
    "calibrated": "Boolean",
    "time_us": "Float64",
    "lower_bound_time_us": "Float64",
    "share_of_injection": "Float64",
    "share_of_optimum": "Float64",
    "bytes_per_npu": "Float64",
    "injection_gbps": "Float64",
    "phases_simulated": "Int64",
    "phases": "Int64",
    "sample_error": "Float64",
    "steps_simulated": "Int64",
    "steps": "Int64",
    "segments_simulated": "Int64",
    "segments": "Int64",
    "messages": "Int64",
    "packets": "Int64",
    "packet_hops": "Int64",
}


def rates(result: TrainingResult) -> dict[str, Any]:
    """Return what a step does a second, and what all of the training takes, by their columns.

    Args:
        result: Of a step.
    """
    row = {} if result.throughput is None else asdict(result.throughput)
    train = result.time_to_train
    if train is not None:
        row |= {
            "train_steps": train.steps,
            "train_s": train.time_s,
            "train_npu_hours": train.npu_hours,
            "train_cost": train.cost,
            "train_energy_kwh": train.energy_kwh,
        }
    return row
