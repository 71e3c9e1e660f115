//! A job of ours, to be written as another tool's.

use allrail_workload::{StepGraph, build};
use serde_json::{Value, json};

/// The graph of a small transformer (8 layers, width 64, 8 heads, 32 tokens) over some degrees.
pub(crate) fn small(parallelism: &Value, sizes: &[u32]) -> StepGraph {
    let job = json!({
        "model": {"transformer": {"layers": 8, "hidden": 64, "heads": 8, "vocabulary": 256,
                                  "positions": 32, "sequence_length": 32}},
        "batch_per_replica": 8,
        "parallelism": parallelism,
        "optimizer": "none",
        "compute": {"peak": "1 GFLOP/s", "efficiency": 1.0},
    });
    let workload = serde_json::from_value(job).expect("a workload");
    build(&workload, sizes).unwrap_or_else(|error| panic!("{error}; {}", error.hint)).graph
}
