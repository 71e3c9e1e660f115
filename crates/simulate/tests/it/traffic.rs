//! Traffic on small networks: one body on both network models, the laws that every result keeps, and that
//! what is skipped or sampled is what was left out.

use std::ops::ControlFlow;

use allrail_core::{Bytes, EventQueue, Time};
use allrail_network::{Event, NetworkModel, Submission, TransferId};
use allrail_simulate::SimulateError;
use allrail_simulate::TrafficScenario;
use allrail_simulate::traffic::driver::carry_out;
use allrail_simulate::traffic::lists::Lists;
use allrail_simulate::traffic::{TrafficResult, simulate};
use serde_json::{Value, json};

const NETWORK_MODELS: [&str; 2] = ["flows", "packets"];

fn torus() -> Value {
    json!({ "topology": "torus", "shape": [4, 4], "planes": 2 })
}

fn mesh() -> Value {
    json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [2, 2] })
}

fn run(
    fabric: &Value,
    network_model: &str,
    traffic: &Value,
) -> Result<TrafficResult, SimulateError> {
    let scenario = json!({ "schema_version": 1, "fabric": fabric, "network_model": network_model, "seed": 7,
                           "traffic": traffic });
    let scenario = TrafficScenario::from_json(&scenario.to_string())?;
    simulate(&scenario, &mut |_, _| ControlFlow::Continue(()))
}

fn ran(fabric: &Value, network_model: &str, traffic: &Value) -> TrafficResult {
    run(fabric, network_model, traffic)
        .unwrap_or_else(|error| panic!("{network_model} {traffic}: {error}"))
}

fn patterns() -> Vec<Value> {
    vec![
        json!({ "pattern": "all_to_all", "size": "32 KiB" }),
        json!({ "pattern": "all_to_all", "size": "32 KiB", "phases": 3, "phase_barrier": true }),
        json!({ "pattern": "all_to_all", "size": "32 KiB", "phase_barrier": false, "window": 2 }),
        json!({ "pattern": "uniform", "size": "32 KiB" }),
        json!({ "pattern": "permutation", "size": "1 MiB" }),
        json!({ "pattern": "incast", "size": "64 KiB", "fan_in": 5, "destination": 3 }),
        json!({ "pattern": "all_reduce", "size": "4 MiB", "algorithm": "rings" }),
        json!({ "pattern": "reduce_scatter", "size": "4 MiB", "algorithm": "torus" }),
        json!({ "pattern": "all_gather", "size": "4 MiB", "algorithm": "rings" }),
        json!({ "pattern": "broadcast", "size": "4 MiB", "algorithm": "rings", "root": 3 }),
        json!({ "pattern": "trace", "messages": [["0 ns", 0, 5, "64 KiB"], ["0 ns", 3, 5, "9 B"],
                                                 ["5 us", 5, 0, "1 MiB"]] }),
    ]
}

#[test]
fn no_pattern_beats_its_bound_and_runs_repeat() {
    for fabric in [torus(), mesh()] {
        for network_model in NETWORK_MODELS {
            for traffic in patterns() {
                let result = ran(&fabric, network_model, &traffic);
                let told = format!("{network_model} {traffic}: {} us", result.time_us);
                assert!(result.time_us >= result.lower_bound_time_us * (1.0 - 1e-9), "{told}");
                assert!(result.share_of_injection > 0.0, "{told}");
                assert!(result.share_of_injection <= 1.0 + 1e-9, "{told}");
                let again = ran(&fabric, network_model, &traffic);
                let text = |mut result: TrafficResult| {
                    result.host = Default::default();
                    serde_json::to_string(&result).expect("plain data")
                };
                assert_eq!(text(result), text(again), "{told}");
            }
        }
    }
}

#[test]
fn network_models_carry_the_same_messages() {
    for traffic in patterns().iter().filter(|traffic| traffic["pattern"] != "uniform") {
        let [flows, packets] =
            NETWORK_MODELS.map(|network_model| ran(&mesh(), network_model, traffic));
        assert_eq!(flows.messages, packets.messages, "{traffic}");
        assert!((flows.bytes_per_npu - packets.bytes_per_npu).abs() < 1e-6, "{traffic}");
        assert!(flows.packets.is_none() && packets.packets.is_some());
    }
}

#[test]
fn a_share_is_bytes_over_what_the_cables_carry() {
    let result = ran(&torus(), "packets", &json!({ "pattern": "permutation", "size": "1 MiB" }));
    assert_eq!((result.planes, result.npus), (2, 16));
    // Two planes of four cables of 400 Gb/s.
    assert!((result.injection_gbps - 3200.0).abs() < 1e-9);
    let expected = f64::from(1 << 20) * 8e-3 / 3200.0 / result.time_us;
    assert!((result.share_of_injection / expected - 1.0).abs() < 1e-9);
    let each = result.npu_bandwidths_gbps.expect("each NPU's");
    let slowest = each.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(each.len(), 16);
    // The last one to finish sets the time.
    assert!((slowest / (f64::from(1 << 20) * 8e-3 / result.time_us) - 1.0).abs() < 1e-9);
}

#[test]
fn sampled_phases_are_scaled_and_said() {
    for network_model in NETWORK_MODELS {
        let of = |phases: Value| {
            let traffic = json!({ "pattern": "all_to_all", "size": "256 KiB", "phases": phases,
                                  "phase_barrier": true });
            ran(&mesh(), network_model, &traffic)
        };
        let (all, some) = (of(Value::Null), of(json!(12)));
        assert_eq!((all.phases, all.phases_simulated), (Some(15), Some(15)));
        assert_eq!((some.phases, some.phases_simulated), (Some(15), Some(12)));
        assert!(some.notes.iter().any(|note| note.contains("12 of 15 phases")));
        assert_eq!(all.bytes_per_npu, some.bytes_per_npu);
        assert!((some.time_us / all.time_us - 1.0).abs() < 0.25, "{network_model}");
    }
}

#[test]
fn steps_that_are_skipped_do_not_change_the_answer_by_more_than_a_percent() {
    for (algorithm, shape) in [("rings", [8, 4]), ("torus", [4, 24])] {
        let fabric = json!({ "topology": "torus", "shape": shape });
        let of = |skip: bool| {
            let traffic = json!({ "pattern": "all_reduce", "size": "32 MiB", "skip": skip,
                                  "algorithm": algorithm });
            ran(&fabric, "packets", &traffic)
        };
        let (skipped, full) = (of(true), of(false));
        assert_eq!(full.steps, full.steps_simulated);
        assert!(skipped.steps_simulated < skipped.steps, "{algorithm}");
        let ratio = skipped.time_us / full.time_us;
        assert!((ratio - 1.0).abs() < 0.01, "{algorithm}: {ratio}");
        assert!((skipped.bytes_per_npu / full.bytes_per_npu - 1.0).abs() < 1e-3, "{algorithm}");
    }
}

#[test]
fn a_window_of_one_is_never_faster() {
    let of = |window: u32| {
        let traffic = json!({ "pattern": "all_to_all", "size": "16 KiB", "window": window });
        ran(&mesh(), "packets", &traffic).time_us
    };
    assert!(of(1) > of(8));
}

#[test]
fn an_observer_can_stop_it() {
    let scenario = json!({ "schema_version": 1, "fabric": torus(), "network_model": "packets",
                           "traffic": { "pattern": "permutation", "size": "64 MiB" } });
    let scenario = TrafficScenario::from_json(&scenario.to_string()).expect("a scenario");
    let outcome = simulate(&scenario, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(outcome, Err(SimulateError::Interrupted)));
}

#[test]
fn what_does_not_fit_is_refused_by_its_field() {
    let wide = json!({ "topology": "torus", "shape": [96, 4] });
    let cases = [
        (torus(), "flows", json!({ "pattern": "all_to_all" }), "traffic.size"),
        (torus(), "flows", json!({ "pattern": "all_to_all", "size": "0 B" }), "traffic.size"),
        (
            torus(),
            "packets",
            json!({ "pattern": "all_to_all", "size": "9 B", "paths": "ecmp" }),
            "traffic.paths",
        ),
        (
            torus(),
            "flows",
            json!({ "pattern": "all_to_all", "size": "9 B", "phases": 16 }),
            "traffic.phases",
        ),
        (
            torus(),
            "flows",
            json!({ "pattern": "incast", "size": "9 B", "destination": 16 }),
            "traffic.destination",
        ),
        (
            torus(),
            "flows",
            json!({ "pattern": "trace", "messages": [["1 ns", 0, 1, "9 B"],
                                                                    ["0 ns", 0, 1, "9 B"]] }),
            "traffic.messages[1].time",
        ),
        (
            wide,
            "flows",
            json!({ "pattern": "all_reduce", "size": "1 MiB", "algorithm": "rings" }),
            "traffic.algorithm",
        ),
        (
            torus(),
            "flows",
            json!({ "pattern": "all_reduce", "size": "1 MiB", "algorithm": "rings",
                                   "shape": [3, 5] }),
            "traffic.shape",
        ),
    ];
    for (fabric, network_model, traffic, field) in cases {
        let error = run(&fabric, network_model, &traffic).expect_err("it is refused");
        let report = error.report();
        assert_eq!(report.field, field, "{traffic}");
        assert!(!report.hint.is_empty(), "{traffic}");
    }
}

/// Takes messages and delivers all but every `loses`-th.
#[derive(Default)]
struct Lossy {
    events: EventQueue<Event>,
    loses: u64,
    taken: u64,
}

impl NetworkModel for Lossy {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        self.taken += 1;
        if !self.taken.is_multiple_of(self.loses) {
            let event = Event::Delivered { tag: submission.tag };
            self.events.push(now + Time::from_ns(5), 0, event);
        }
        TransferId(self.taken)
    }

    fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        self.events.next_time().filter(|time| *time <= until).and_then(|_| self.events.pop())
    }

    fn cancel(&mut self, _: Time, _: TransferId) -> bool {
        false
    }
}

#[test]
fn a_network_model_that_loses_a_message_is_a_stall_and_not_a_result() {
    let shift = |npu: u32, k: u32| Some((npu + k + 1) % 8);
    let run = |loses: u64| {
        let mut network_model = Lossy { loses, ..Lossy::default() };
        let mut lists = Lists::new(8, 3, Bytes::new(64), None, &shift);
        carry_out(&mut network_model, &mut lists, &mut |_, _| ControlFlow::Continue(()))
    };
    let Err(SimulateError::Stalled { waits, .. }) = run(20) else { panic!("one message is lost") };
    assert!(waits.contains("1 of 24 messages") || waits.contains("5 of 24 messages"), "{waits}");
    let carried = run(1000).expect("none is lost");
    // Three phases, one after another.
    assert_eq!((carried.messages, carried.end), (24, Time::from_ns(15)));
}

/// In an exchange a message waits for what its NPU receives, not only for what it sends.
#[test]
fn an_exchange_counts_what_has_arrived() {
    use allrail_simulate::traffic::driver::Demand;
    let shift = |npu: u32, k: u32| Some((npu + k + 1) % 4);
    let mut lists = Lists::new(4, 3, Bytes::new(64), Some(1), &shift).exchanges();
    let mut out = Vec::new();
    lists.due(Time::ZERO, &mut out);
    assert_eq!(out.len(), 4);
    let first = out[0];
    out.clear();
    assert!(lists.wants_sent());
    lists.sent(Time::ZERO, first.tag, &mut out);
    assert!(out.is_empty(), "nothing has arrived at NPU 0");
    // NPU 3's first message is for NPU 0.
    lists.delivered(Time::ZERO, 3 << 32, &mut out);
    assert_eq!(out.iter().map(|m| (m.source, m.destination)).collect::<Vec<_>>(), [(0, 2)]);
}
