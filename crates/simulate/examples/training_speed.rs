//! How fast training steps are simulated in `dims`. Prints figures; nothing fails on a time.
//!
//! `cargo run --release --locked -p allrail-simulate --example training_speed`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::ops::ControlFlow;
use std::time::Instant;

use allrail_simulate::TrainingScenario;
use allrail_simulate::training::simulate;
use serde_json::{Value, json};

fn switch(size: u32, bandwidth: &str, latency: &str) -> Value {
    json!({"kind": "switch", "size": size, "bandwidth": bandwidth, "latency": latency})
}

/// As many layers and gradients as ResNet-152 has convolutions, with sizes as there.
fn like_resnet152() -> Value {
    let parameters =
        [9408u64, 4096, 36_864, 16_384, 65_536, 131_072, 589_824, 262_144, 2_359_296, 1_048_576];
    let layers: Vec<Value> = (0..156)
        .map(|i| {
            json!({"name": format!("convolution{i}"), "flops": 148_000_000u64,
                   "parameters": parameters[i % parameters.len()], "output": 200_000u64})
        })
        .collect();
    json!({"model": {"layers": layers}, "batch_per_replica": 32, "compute": {"device": "a100"},
           "iterations": 1})
}

fn gpt3() -> Value {
    json!({"model": {"transformer": {"layers": 96, "hidden": 12288, "heads": 96,
                                     "vocabulary": 51200, "sequence_length": 2048}},
           "batch_per_replica": 24,
           "parallelism": {"tp": 8, "pp": 12, "dp": 128, "microbatches": 24},
           "compute": {"device": "a100"}, "iterations": 1})
}

fn main() {
    let hetero = json!({"name": "3D-SW_SW_SW_hetero", "dimensions": [
        switch(16, "1600 Gb/s", "700 ns"),
        switch(8, "800 Gb/s", "700 ns"),
        switch(8, "400 Gb/s", "1700 ns"),
    ]});
    let cluster = json!({"name": "8 x 12 x 128", "dimensions": [
        switch(8, "2400 Gb/s", "700 ns"),
        switch(12, "400 Gb/s", "1700 ns"),
        switch(128, "400 Gb/s", "1700 ns"),
    ]});
    let cases = [
        (
            "ResNet-152's shape, 1,024 NPUs, Themis",
            hetero,
            like_resnet152(),
            json!({"policy": "themis", "order": "smallest_first"}),
        ),
        (
            "GPT-3 175B, TP 8 x PP 12 x DP 128, 24 microbatches",
            cluster,
            gpt3(),
            json!({"policy": "baseline"}),
        ),
    ];
    for (name, fabric, workload, schedule) in cases {
        let scenario = json!({"schema_version": 1, "fabric": fabric, "workload": workload,
                              "schedule": schedule, "network_model": "dims"});
        let scenario = TrainingScenario::from_json(&scenario.to_string()).expect("a good scenario");
        let mut best = f64::MAX;
        let mut step = 0.0;
        for _ in 0..5 {
            let begin = Instant::now();
            let go_on = &mut |_, _| ControlFlow::Continue(());
            step = simulate(&scenario, false, go_on).expect("it runs").step_time_us;
            best = best.min(begin.elapsed().as_secs_f64());
        }
        println!("{name}: {:.1} ms for a step of {:.1} ms", best * 1e3, step / 1e3);
    }
}
