//! `send_ahead`: what links may have yet to send when a dimension chooses.
//!
//! A link sends what it was handed in that order. So where stages are handed over in the order in which
//! they come, nothing changes; where an urgent one comes later, it waits behind what was handed over.

use std::ops::ControlFlow;

use crate::common::*;
use allrail_collective::Operation;
use allrail_core::{Bytes, FieldError, Time};
use allrail_fabric::Kind;
use allrail_schedule::{ActiveChunks, Order, queue};
use allrail_simulate::TrainingScenario;
use allrail_simulate::collectives::simulate;
use allrail_simulate::result::SpanResult;
use allrail_simulate::scenario::{CollectiveOrder, NetworkModelKind};
use allrail_simulate::training::simulate as train;
use allrail_simulate::{CollectiveScenario, SimulateError, SimulationResult, plan, plan_key};
use proptest::prelude::*;
use serde_json::{Value, json};

/// More than anyone hands over.
const ALL: u64 = 1 << 60;

/// Bytes that keep a dimension of five NPUs busy for a millisecond (a fifth to each peer, at 20 ps per
/// byte), and what an NPU sends in it, to its four peers.
const MS: u64 = 5 * 50_000_000;
const SENT: u64 = 4 * 50_000_000;

fn ahead(scenario: &CollectiveScenario, bytes: u64) -> CollectiveScenario {
    let mut scenario = scenario.clone();
    scenario.schedule.send_ahead = Bytes::new(bytes);
    scenario
}

fn recorded(scenario: &CollectiveScenario) -> SimulationResult {
    simulate(scenario, None, true, &mut |_, _| ControlFlow::Continue(()))
        .unwrap_or_else(|error| panic!("{error}\n{scenario:?}"))
}

/// Four collectives of a millisecond each from the start on, and an urgent one of a millisecond at 1.5 ms.
fn one_link(network_model: NetworkModelKind) -> CollectiveScenario {
    let fabric = fabric(vec![exact(Kind::FullyConnected, 5, Time::ZERO)]);
    let mut scenario = scenario(fabric, Operation::ReduceScatter, MS);
    scenario.network_model = network_model;
    // What is issued last is the most urgent.
    scenario.schedule.collective_order = CollectiveOrder::Lifo;
    scenario.job = vec![scenario.job[0].clone(); 5];
    scenario.job[4].start = Time::from_us(1_500);
    scenario
}

fn urgent(scenario: &CollectiveScenario) -> f64 {
    run(scenario).collectives[4].finish_us
}

/// In `dims` the link is known to the byte. Without: two are sent by 2 ms, then the urgent one, over at 3.
/// With half a stage: the third may be chosen at 1.5 ms, when half of the second is left; the urgent one
/// has come by then and is chosen. With a little more, the third is chosen before it came, and goes before
/// it: 4 ms. A whole stage ahead, the same: two are handed over at 0, the third at 1 ms. Two stages
/// ahead, three at 0 and the fourth at 1 ms: 5 ms. With all, all four at 0.
#[test]
fn an_urgent_tensor_waits_behind_what_was_handed_over() {
    let scenario = one_link(NetworkModelKind::Dims);
    let worked = [
        (0, 3_000.0),
        (SENT / 2, 3_000.0),
        (SENT / 2 + 1, 4_000.0),
        (SENT, 4_000.0),
        (2 * SENT, 5_000.0),
        (ALL, 5_000.0),
    ];
    for (bytes, finish) in worked {
        let result = recorded(&ahead(&scenario, bytes));
        assert_eq!(result.collectives[4].finish_us, finish, "{bytes} bytes ahead");
        assert_eq!(urgent(&ahead(&scenario, bytes)), finish, "{bytes} bytes ahead");
        assert_eq!(result.time_us, 5_000.0, "the link never waits");
        // A span begins when the link begins with it: one at a time.
        let spans = result.timeline.expect("asked for");
        let begins: Vec<f64> = spans.iter().map(|span| span.start_us).collect();
        assert_eq!(begins, [0.0, 1_000.0, 2_000.0, 3_000.0, 4_000.0], "{bytes} bytes ahead");
    }
}

/// In `links` a message counts until it has left whole. Of a stage's four, all leave at its end: less than
/// a stage ahead is nothing ahead.
#[test]
fn links_count_message_by_message() {
    let scenario = one_link(NetworkModelKind::Links);
    let worked =
        [(0, 3_000.0), (SENT - 1, 3_000.0), (SENT, 4_000.0), (2 * SENT, 5_000.0), (ALL, 5_000.0)];
    for (bytes, finish) in worked {
        assert_eq!(urgent(&ahead(&scenario, bytes)), finish, "{bytes} bytes ahead");
    }
}

/// What waits in the queue counts against `active_chunks` with what was handed over: one at a time, nothing
/// is handed over early.
#[test]
fn a_limit_on_active_chunks_holds_for_what_is_handed_over() {
    for (limit, finish) in [(1, 3_000.0), (2, 4_000.0), (3, 5_000.0)] {
        for network_model in [NetworkModelKind::Dims, NetworkModelKind::Links] {
            let mut scenario = ahead(&one_link(network_model), ALL);
            scenario.schedule.active_chunks = Some(ActiveChunks::AtMost(limit));
            assert_eq!(urgent(&scenario), finish, "{network_model:?}, at most {limit} at once");
        }
    }
}

/// Four chunks that come at one time. Queues take all of them in before they choose; eager ones have handed
/// over by then what may be ahead.
#[test]
fn eager_queues_hand_over_at_the_event_that_makes_room() {
    let mut scenario = one_link(NetworkModelKind::Dims);
    scenario.job.truncate(1);
    scenario.job[0].size = Bytes::new(4 * MS);
    scenario.schedule.chunks = Some(4);
    for order in Order::all() {
        scenario.schedule.order = order;
        for bytes in [0, 1, SENT / 2, SENT, ALL] {
            let spans = recorded(&ahead(&scenario, bytes)).timeline.expect("asked for");
            let chunks: Vec<u32> = spans.iter().map(|span| span.chunk).collect();
            let eager = queue::queues(order, 1, &[])[0].is_eager();
            let first = match (eager, bytes) {
                (true, SENT) => vec![0, 1],
                (true, ALL) => vec![0, 1, 2, 3],
                (true, _) => vec![0],
                (false, _) => vec![],
            };
            assert_eq!(chunks[..first.len()], first, "{} {bytes}", order.tag());
            assert_eq!(spans.last().map(|span| span.end_us), Some(4_000.0));
        }
    }
}

/// A ring on which a step's latency is as long as its bytes take: in `links`, a rank waits for what it is
/// to send on, and bytes ahead fill the gap.
#[test]
fn bytes_ahead_hide_the_gap_between_stages() {
    let fabric = fabric(vec![exact(Kind::Ring, 4, Time::from_us(100))]);
    let mut scenario = in_links(&scenario(fabric, Operation::AllReduce, 80_000_000));
    scenario.schedule.chunks = Some(16);
    let times: Vec<u64> =
        [0, 1 << 20, 4 << 20, ALL].iter().map(|bytes| time(&ahead(&scenario, *bytes))).collect();
    assert!(times.windows(2).all(|pair| pair[1] <= pair[0]), "{times:?}");
    assert!(times[3] < times[0], "{times:?}");
}

#[test]
fn network_models_in_which_nothing_waits_in_order_refuse_it() {
    let read = |network_model: &str, send_ahead: &str| {
        let text = format!(
            r#"{{"schema_version": 1, "network_model": "{network_model}",
                "fabric": {{"topology": "torus", "shape": [4, 4]}},
                "collective": [{{"kind": "all_reduce", "size": "1 MB"}}],
                "schedule": {{"send_ahead": "{send_ahead}"}}}}"#
        );
        CollectiveScenario::from_json(&text)
    };
    for network_model in ["flows", "packets"] {
        let report = read(network_model, "64 KiB").expect_err("refused").report();
        assert_eq!(report.field, "schedule.send_ahead");
        assert_eq!(report.value, "64 KiB");
        assert!(report.why.contains(network_model), "{}", report.why);
        assert!(report.hint.contains("`dims` or `links`"), "{}", report.hint);
        assert!(read(network_model, "0 B").is_ok());
    }
    for network_model in ["dims", "links"] {
        assert!(read(network_model, "64 KiB").is_ok());
    }
}

/// A plan whose order was fixed with bytes ahead is another one.
#[test]
fn a_planned_order_of_links_is_fixed_with_what_is_sent_ahead() {
    let mut scenario = in_links(&scenario(platforms().remove(3), Operation::AllReduce, 8_000_000));
    scenario.schedule.chunks = Some(16);
    scenario.schedule.order = Order::PLANNED;
    let (with, without) = (ahead(&scenario, 1 << 20), scenario);
    let [key, other] = [&with, &without].map(|one| plan_key(one).expect("a good scenario"));
    assert_ne!(key, other);
    let file = plan(&with).expect("a good scenario");
    assert_eq!(file.plans[0].key, key);
    assert_eq!(run_plan(&with, Some(&file)).time_us, run(&with).time_us);
    // In `dims` the plan does not depend on it.
    let dims = |one: &CollectiveScenario| {
        let dims = CollectiveScenario { network_model: NetworkModelKind::Dims, ..one.clone() };
        plan_key(&dims).expect("a good scenario")
    };
    assert_eq!(dims(&with), dims(&without));
}

/// Four workers on one ring, twelve tensors.
fn step(network_model: &str, tensor: &Value, send_ahead: &str) -> TrainingScenario {
    let scenario = step_keys(network_model, tensor, send_ahead);
    TrainingScenario::from_json(&scenario.to_string()).unwrap_or_else(|error| panic!("{error}"))
}

fn step_keys(network_model: &str, tensor: &Value, send_ahead: &str) -> Value {
    let layer = |i: u32| json!({"name": format!("l{i}"), "dense": {"inputs": 1000, "outputs": 500 + 10 * i}});
    json!({
        "schema_version": 1,
        "fabric": {"name": "ring", "dimensions": [
            {"kind": "ring", "size": 4, "links": 2, "bandwidth": "1 GB/s", "latency": "7 us"},
        ]},
        "workload": {
            "model": {"layers": (0..12).map(layer).collect::<Vec<_>>()},
            "compute": {"forward": "5 ms", "backward": "11 ms"},
            "batch_per_replica": 8,
            "precision": "fp32",
            "iterations": 4,
        },
        "schedule": {"chunks": 1, "tensor": tensor, "send_ahead": send_ahead},
        "network_model": network_model,
    })
}

fn step_us(scenario: &TrainingScenario) -> f64 {
    train(scenario, false, &mut |_, _| ControlFlow::Continue(())).expect("it runs").step_time_us
}

/// With all handed over as it comes, nobody overtakes: priorities decide among what is ready at one time only,
/// and a step of whole tensors takes as long as under `fifo`, whose order is that of issue.
#[test]
fn with_all_ahead_a_priority_is_as_good_as_none() {
    let whole = json!({"policy": "bytescheduler", "partition": "1 TB", "credit": "1 TB"});
    let fifo = json!({"policy": "fifo", "barrier": false});
    for network_model in ["dims", "links"] {
        let [urgent, all, first_come] = [(&whole, "0 B"), (&whole, "1 PB"), (&fifo, "0 B")]
            .map(|(tensor, ahead)| step_us(&step(network_model, tensor, ahead)));
        assert!(urgent < 0.99 * first_come, "{network_model}: {urgent} {first_come}");
        assert_eq!(all, step_us(&step(network_model, &fifo, "1 PB")), "{network_model}");
        assert!(all > urgent, "{network_model}: {all} {urgent}");
    }
}

/// Servers have links of their own.
#[test]
fn parameter_servers_refuse_it() {
    let servers = json!({"policy": "bytescheduler", "exchange": "parameter_server"});
    let mut scenario = step_keys("dims", &servers, "0 B");
    let again = TrainingScenario::from_json(&scenario.to_string());
    assert!(again.is_ok(), "{again:?}");
    scenario["schedule"]["send_ahead"] = json!("64 KiB");
    let error = TrainingScenario::from_json(&scenario.to_string()).expect_err("refused");
    assert!(
        matches!(&error, SimulateError::Field(FieldError { field, .. }) if field == "schedule.send_ahead")
    );
}

fn any_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..100_000, 1u64..10_000_000, Just(ALL)]
}

fn times(spans: Option<Vec<SpanResult>>) -> Vec<(u32, u32, u32, f64, f64, f64)> {
    let of = |span: &SpanResult| {
        (span.dimension, span.chunk, span.stage, span.start_us, span.end_us, span.finish_us)
    };
    spans.expect("asked for").iter().map(of).collect()
}

proptest! {
    #![proptest_config(cases(200))]

    /// One collective in `dims`, first come, first served: every stage at the very same time.
    #[test]
    fn first_come_first_served_nothing_changes(
        fabric in any_fabric(4, 12),
        operation in any_operation(),
        policy in any_policy(),
        active_chunks in any_limit(),
        (size, chunks, bytes) in (1_000u64..10_000_000, 1u32..=24, any_bytes()),
    ) {
        let mut scenario = scenario(fabric, operation, size);
        (scenario.schedule.policy, scenario.schedule.chunks) = (policy, Some(chunks));
        (scenario.schedule.order, scenario.schedule.active_chunks) = (Order::FIFO, active_chunks);
        let (with, without) = (recorded(&ahead(&scenario, bytes)), recorded(&scenario));
        prop_assert_eq!(with.time_us, without.time_us);
        prop_assert_eq!(times(with.timeline), times(without.timeline));
    }

    /// Whatever the queue and the network model, all ends, all bytes are sent, and no dimension serves two at once.
    #[test]
    fn it_ends_and_bytes_are_conserved(
        fabric in any_fabric(3, 5),
        operation in any_operation(),
        order in any_order(),
        network_model in prop::sample::select(vec![NetworkModelKind::Dims, NetworkModelKind::Links]),
        (size, chunks, bytes) in (1_000u64..10_000_000, 1u32..=12, any_bytes()),
    ) {
        let mut scenario = scenario(fabric, operation, size);
        (scenario.schedule.order, scenario.schedule.chunks) = (order, Some(chunks));
        scenario.network_model = network_model;
        let (with, without) = (recorded(&ahead(&scenario, bytes)), recorded(&scenario));
        prop_assert_eq!(with.bytes_per_npu, without.bytes_per_npu);
        prop_assert_eq!(with.messages, without.messages);
        prop_assert!(with.time_us * (1.0 + 1e-9) >= with.bound_time_us);
        if network_model == NetworkModelKind::Dims {
            let spans = times(with.timeline);
            for (at, one) in spans.iter().enumerate() {
                let next = spans[at + 1..].iter().find(|next| next.0 == one.0);
                prop_assert!(next.is_none_or(|next| next.3 >= one.4 - 1e-6), "{one:?} {next:?}");
            }
        }
    }

    /// On one link, an urgent collective never begins earlier for more bytes ahead, where the others go in one
    /// order (among themselves, others may overtake too, and then there may be less before it); and with
    /// all ahead, the last issued is as good as the first.
    #[test]
    fn more_ahead_never_lets_an_urgent_one_start_earlier(
        sizes in prop::collection::vec(1u64..5_000_000, 1..8),
        (urgent, start) in (1u64..5_000_000, 1u64..200_000),
        mut aheads in prop::collection::vec(any_bytes(), 2..6),
        network_model in prop::sample::select(vec![NetworkModelKind::Dims, NetworkModelKind::Links]),
    ) {
        let mut scenario = one_link(network_model);
        let others = sizes.iter().map(|size| collective(Operation::ReduceScatter, *size));
        scenario.job = others.collect();
        let mut last = collective(Operation::ReduceScatter, urgent);
        last.start = Time::from_ns(start);
        scenario.job.push(last);
        let begins = |scenario: &CollectiveScenario| {
            let spans = recorded(scenario).timeline.expect("asked for");
            let of = spans.iter().find(|span| span.collective as usize == sizes.len());
            of.expect("it ran").end_us
        };
        aheads.push(0);
        aheads.sort_unstable();
        let begins: Vec<f64> = aheads.iter().map(|bytes| begins(&ahead(&scenario, *bytes))).collect();
        prop_assert!(begins.windows(2).all(|pair| pair[0] <= pair[1] + 1e-6), "{aheads:?} {begins:?}");

        // No two start at one time.
        for (at, one) in (0u64..).zip(&mut scenario.job[..sizes.len()]) {
            one.start = Time::from_ps(at);
        }
        let ends = |order| {
            let mut scenario = ahead(&scenario, ALL);
            scenario.schedule.collective_order = order;
            run(&scenario).collectives.iter().map(|one| one.finish_us).collect::<Vec<_>>()
        };
        prop_assert_eq!(ends(CollectiveOrder::Lifo), ends(CollectiveOrder::Fifo));
    }
}
