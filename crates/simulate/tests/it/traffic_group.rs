//! Broadcast, reduce-scatter and all-gather as traffic: cases computed by hand, laws over all algorithms.

use std::ops::ControlFlow;

use allrail_collective::grid;
use allrail_simulate::SimulateError;
use allrail_simulate::TrafficScenario;
use allrail_simulate::traffic::{TrafficResult, simulate};
use serde_json::{Value, json};

fn run(
    fabric: &Value,
    network_model: &str,
    traffic: &Value,
) -> Result<TrafficResult, SimulateError> {
    let scenario = json!({ "schema_version": 1, "fabric": fabric, "network_model": network_model,
                           "traffic": traffic });
    let scenario = TrafficScenario::from_json(&scenario.to_string())?;
    simulate(&scenario, &mut |_, _| ControlFlow::Continue(()))
}

fn ran(fabric: &Value, network_model: &str, traffic: &Value) -> TrafficResult {
    run(fabric, network_model, traffic)
        .unwrap_or_else(|error| panic!("{network_model} {traffic}: {error}"))
}

/// Cables of 50 GB/s and 20 ns.
fn torus(rows: u32, columns: u32) -> Value {
    json!({ "topology": "torus", "shape": [rows, columns], "planes": 1 })
}

/// On 4 × 4 NPUs 3.2 MB are 64 blocks, or 4 trees of 16 segments, of 1 µs each.
#[test]
fn times_by_hand() {
    let of = |pattern: &str, algorithm: &str| {
        let traffic = json!({ "pattern": pattern, "algorithm": algorithm, "size": "3200 KB" });
        ran(&torus(4, 4), "flows", &traffic)
    };
    for (pattern, algorithm, us) in [
        // 15 steps of a block on each of four rings.
        ("all_gather", "rings", 15.0 * 1.02),
        ("reduce_scatter", "rings", 15.0 * 1.02),
        // The same steps of twice as much, on two rings.
        ("all_gather", "ring", 15.0 * 2.02),
        // And of four times as much, on one.
        ("reduce_scatter", "ring_unidirectional", 15.0 * 4.02),
        // Its 128 blocks take 0.5 µs each: 3 steps of 2 of them along columns, then 3 of 8 along rows,
        // while the other half of the buffer goes along rows first.
        ("all_gather", "torus", 3.0 * 1.02 + 3.0 * 4.02),
        ("reduce_scatter", "torus", 3.0 * 4.02 + 3.0 * 1.02),
        // 16 segments follow each other down 15 hops.
        ("broadcast", "rings", 15.0 * 0.02 + (16.0 + 14.0) * 1.0),
        ("broadcast", "ring", 15.0 * 0.02 + (16.0 + 14.0) * 2.0),
        ("broadcast", "ring_unidirectional", 15.0 * 0.02 + (16.0 + 14.0) * 4.0),
        // Down 6 hops, 2 µs a segment of a sixteenth of half.
        ("broadcast", "hierarchical", 6.0 * 0.02 + (16.0 + 5.0) * 2.0),
    ] {
        let result = of(pattern, algorithm);
        let told = format!("{pattern} {algorithm}: {} us, by hand {us}", result.time_us);
        assert!((result.time_us - us).abs() < 1e-3, "{told}");
    }
}

#[test]
fn what_a_broadcast_counts() {
    let traffic = json!({ "pattern": "broadcast", "algorithm": "rings", "size": "3200 KB",
                          "root": 5 });
    let result = ran(&torus(4, 4), "flows", &traffic);
    // 15 NPUs receive 4 trees' 16 segments.
    assert_eq!((result.messages, result.steps), (15 * 4 * 16, None));
    assert_eq!((result.segments, result.segments_simulated), (Some(16), Some(16)));
    assert!((result.bytes_per_npu - 3_200_000.0 * 15.0 / 16.0).abs() < 1e-6);
    // The root has to send 3.2 MB over 200 GB/s.
    assert!((result.lower_bound_time_us - 16.0).abs() < 1e-9);
    let share = result.share_of_optimum.expect("a collective");
    assert!((share - 16.0 / 30.3).abs() < 1e-9, "{share}");
    let many = json!({ "pattern": "broadcast", "algorithm": "rings", "size": "3200 MB",
                       "segments": 10000 });
    let share = ran(&torus(4, 4), "flows", &many).share_of_optimum.expect("a collective");
    assert!(share > 0.998, "two disjoint rings fill all four links: {share}");
}

/// All that an algorithm does, on its own grid and elsewhere.
fn cases() -> Vec<(Value, Value)> {
    let fabrics = [
        torus(4, 4),
        torus(3, 5),
        json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [2, 2] }),
        json!({ "topology": "fat_tree", "npus": 12, "switch_radix": 8, "levels": 2, "planes": 1 }),
        json!({ "topology": "torus", "shape": [4, 4], "failed_links": [[0, 1]] }),
    ];
    let mut cases = Vec::new();
    for fabric in fabrics {
        for algorithm in grid::ALL {
            for pattern in ["broadcast", "reduce_scatter", "all_gather"] {
                let traffic = json!({ "pattern": pattern, "algorithm": algorithm.tag(),
                                      "size": "1 MiB" });
                cases.push((fabric.clone(), traffic));
            }
        }
    }
    cases
}

#[test]
fn none_beats_its_bound_and_all_carry_all_bytes() {
    let mut run_at_all = 0;
    for (fabric, traffic) in cases() {
        for network_model in ["flows", "packets"] {
            let Ok(result) = run(&fabric, network_model, &traffic) else { continue };
            run_at_all += 1;
            let told = format!("{network_model} {fabric} {traffic}: {} us", result.time_us);
            assert!(result.time_us >= result.lower_bound_time_us * (1.0 - 1e-9), "{told}");
            let share = result.share_of_optimum.expect("a collective");
            assert!(share > 0.0 && share <= 1.0 + 1e-9, "{told}: {share}");
            let least = f64::from(1 << 20) * f64::from(result.npus - 1) / f64::from(result.npus);
            // All but one NPU's part reaches every NPU; blocks are padded.
            let padding = result.bytes_per_npu / least;
            assert!((1.0 - 1e-9..1.02).contains(&padding), "{told}: {padding}");
        }
    }
    assert!(run_at_all > 120, "{run_at_all}");
}

/// A root is like any other NPU where all are alike.
#[test]
fn any_root_takes_as_long_on_a_torus() {
    for algorithm in ["rings", "ring", "torus", "hierarchical"] {
        let of = |root: u32| {
            let traffic = json!({ "pattern": "broadcast", "algorithm": algorithm, "size": "1 MiB",
                                  "root": root });
            ran(&torus(4, 4), "flows", &traffic).time_us
        };
        for root in [1, 7, 15] {
            assert!((of(root) / of(0) - 1.0).abs() < 1e-6, "{algorithm} from {root}");
        }
    }
}

#[test]
fn segments_that_are_skipped_do_not_change_the_answer_by_more_than_a_percent() {
    for (network_model, off) in [("flows", 1e-6), ("packets", 0.01)] {
        for algorithm in ["rings", "torus"] {
            let of = |skip: bool| {
                let traffic = json!({ "pattern": "broadcast", "algorithm": algorithm, "skip": skip,
                                      "size": "8 MiB", "segments": 90 });
                ran(&torus(4, 4), network_model, &traffic)
            };
            let (skipped, full) = (of(true), of(false));
            assert_eq!(full.segments_simulated, Some(90));
            assert!(skipped.segments_simulated < Some(40), "{algorithm}");
            let ratio = skipped.time_us / full.time_us;
            assert!((ratio - 1.0).abs() < off, "{network_model} {algorithm}: {ratio}");
            assert_eq!(skipped.bytes_per_npu, full.bytes_per_npu);
        }
    }
}

#[test]
fn what_an_algorithm_does_not_do_is_refused_by_its_field() {
    for (traffic, field, told) in [
        (
            json!({ "pattern": "all_gather", "algorithm": "tree", "size": "1 MiB" }),
            "algorithm",
            "shards",
        ),
        (
            json!({ "pattern": "broadcast", "algorithm": "in_network", "size": "1 MiB" }),
            "algorithm",
            "all_reduce",
        ),
        (json!({ "pattern": "broadcast", "size": "1 MiB" }), "algorithm", "missing"),
        (
            json!({ "pattern": "broadcast", "algorithm": "rings", "size": "1 MiB", "root": 16 }),
            "root",
            "0 to 15",
        ),
        (
            json!({ "pattern": "broadcast", "algorithm": "rings", "size": "8 B", "segments": 3 }),
            "segments",
            "2 B",
        ),
        (
            json!({ "pattern": "broadcast", "algorithm": "rings", "size": "8 B", "segments": 0 }),
            "segments",
            "nothing",
        ),
        (
            json!({ "pattern": "all_gather", "algorithm": "rings", "size": "8 B", "segments": 3 }),
            "segments",
            "`broadcast`",
        ),
        (
            json!({ "pattern": "all_reduce", "algorithm": "rings", "size": "8 B", "root": 3 }),
            "root",
            "`broadcast`",
        ),
        (
            json!({ "pattern": "reduce_scatter", "algorithm": "rings", "size": "8 B", "shape": [2, 9] }),
            "shape",
            "16 NPUs",
        ),
    ] {
        let report = run(&torus(4, 4), "flows", &traffic).expect_err("it is refused").report();
        assert_eq!(report.field, format!("traffic.{field}"), "{traffic}");
        assert!(report.why.contains(told), "{traffic}: {}", report.why);
        assert!(!report.hint.is_empty(), "{traffic}");
    }
    // The smallest buffer still goes, a byte a segment.
    let tiny = json!({ "pattern": "broadcast", "algorithm": "rings", "size": "1 B" });
    assert_eq!(ran(&torus(4, 4), "flows", &tiny).segments, Some(1));
}
