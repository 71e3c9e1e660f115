//! Collectives that share a fabric, worked by hand in both network models.
//!
//! On fully connected dimensions without latency, `direct` stages of one step take whole
//! milliseconds here and both network models must give the same.

use std::ops::ControlFlow;

use crate::common::*;
use allrail_collective::{Operation, SizeRange, StageRef};
use allrail_core::{Bytes, Time};
use allrail_fabric::Kind;
use allrail_schedule::{ActiveChunks, Order};
use allrail_simulate::collectives::simulate;
use allrail_simulate::result::SpanResult;
use allrail_simulate::scenario::{CollectiveOrder, NetworkModelKind};
use allrail_simulate::{CollectiveScenario, PlanFile, plan};

const NETWORK_MODELS: [NetworkModelKind; 2] = [NetworkModelKind::Dims, NetworkModelKind::Links];

/// Bytes that keep a dimension of five NPUs busy for a millisecond: a fifth to each peer, at 20 ps
/// per byte.
const MS: u64 = 5 * 50_000_000;

/// Four chunks of 1 ms each, scattered over one dimension.
fn four_ms() -> CollectiveScenario {
    let fabric = fabric(vec![exact(Kind::FullyConnected, 5, Time::ZERO)]);
    let mut scenario = scenario(fabric, Operation::ReduceScatter, 4 * MS);
    scenario.schedule.chunks = Some(4);
    scenario.schedule.order = Order::FIFO;
    scenario
}

/// When each collective is over, in microseconds.
fn finishes(scenario: &CollectiveScenario) -> Vec<f64> {
    run(scenario).collectives.iter().map(|collective| collective.finish_us).collect()
}

fn timeline(scenario: &CollectiveScenario, plan: Option<&PlanFile>) -> Vec<SpanResult> {
    simulate(scenario, plan, true, &mut |_, _| ControlFlow::Continue(()))
        .expect("a good scenario")
        .timeline
        .expect("asked for")
}

#[test]
fn the_collective_issued_first_goes_first_or_last_as_asked() {
    for network_model in NETWORK_MODELS {
        let mut scenario = four_ms();
        scenario.network_model = network_model;
        scenario.job.push(scenario.job[0].clone());
        scenario.job[1].start = Time::from_us(1_500);
        // ASTRA-sim's rule puts sizes before priorities.
        for order in Order::all().filter(|order| *order != Order::ASTRA_SIM) {
            scenario.schedule.order = order;
            scenario.schedule.collective_order = CollectiveOrder::Fifo;
            assert_eq!(finishes(&scenario), [4_000.0, 8_000.0], "{network_model:?} {order:?}");
            // Two chunks are served or begun when the second one comes; nothing is broken off.
            scenario.schedule.collective_order = CollectiveOrder::Lifo;
            // One that is strict runs them as they were issued, whatever the priorities; so does one to
            // which all reduce-scatters are as urgent.
            let urgency = |priority| order.urgency(Operation::ReduceScatter, priority);
            let as_issued = order.is_strict() || urgency(0) == urgency(1);
            let asked = if as_issued { [4_000.0, 8_000.0] } else { [8_000.0, 6_000.0] };
            assert_eq!(finishes(&scenario), asked, "{network_model:?} {order:?}");
        }
    }
}

#[test]
fn collectives_on_other_dimensions_do_not_affect_each_other() {
    let mut both = scenario(
        fabric(vec![
            exact(Kind::FullyConnected, 5, Time::from_ns(700)),
            exact(Kind::Ring, 4, Time::from_ns(20)),
        ]),
        Operation::AllReduce,
        1_000_000,
    );
    both.schedule.chunks = Some(5);
    both.job[0].dimensions = ids(&[0]);
    both.job.push(collective(Operation::AllGather, 3_000_000));
    both.job[1].dimensions = ids(&[1]);
    for network_model in NETWORK_MODELS {
        both.network_model = network_model;
        for limit in [None, Some(ActiveChunks::AtMost(1))] {
            both.schedule.active_chunks = limit;
            let alone = |i: usize| {
                let job = vec![both.job[i].clone()];
                finishes(&CollectiveScenario { job, ..both.clone() })[0]
            };
            assert_eq!(finishes(&both), [alone(0), alone(1)], "{network_model:?} {limit:?}");
        }
    }
}

#[test]
fn a_collective_that_starts_later_takes_as_long() {
    for network_model in NETWORK_MODELS {
        let mut scenario = four_ms();
        scenario.network_model = network_model;
        scenario.job[0].start = Time::from_us(123);
        let result = run(&scenario);
        assert_eq!(result.time_us, 4_000.0, "{network_model:?}");
        assert_eq!(result.collectives[0].time_us, 4_000.0);
        assert_eq!(result.collectives[0].start_us, 123.0);
        assert_eq!(result.collectives[0].finish_us, 4_123.0);
        assert!(result.bound_time_us <= result.time_us);
    }
}

/// One that starts when the first is long over finds an idle fabric.
#[test]
fn a_collective_after_another_is_not_delayed_by_it() {
    for network_model in NETWORK_MODELS {
        let mut scenario = four_ms();
        scenario.network_model = network_model;
        scenario.job.push(scenario.job[0].clone());
        scenario.job[1].start = Time::from_us(10_000);
        assert_eq!(finishes(&scenario), [4_000.0, 14_000.0], "{network_model:?}");
        assert_eq!(run(&scenario).time_us, 14_000.0);
    }
}

#[test]
fn two_collectives_send_the_bytes_and_messages_of_both() {
    let shape = vec![exact(Kind::Ring, 3, Time::from_ns(9)), exact(Kind::Switch, 4, Time::ZERO)];
    let mut both = in_links(&scenario(fabric(shape), Operation::AllReduce, 48_000));
    both.schedule.chunks = Some(4);
    both.job.push(collective(Operation::AllGather, 96_000));
    let alone = [0, 1].map(|i| {
        let job = vec![both.job[i].clone()];
        run(&CollectiveScenario { job, ..both.clone() })
    });
    let result = run(&both);
    assert_eq!(result.bytes_per_npu, alone[0].bytes_per_npu + alone[1].bytes_per_npu);
    assert_eq!(result.messages, alone[0].messages.zip(alone[1].messages).map(|(a, b)| a + b));
    for (together, alone) in result.collectives.iter().zip(&alone) {
        assert!(together.time_us >= alone.time_us);
    }
    assert!(result.time_us <= alone[0].time_us + alone[1].time_us);
}

/// (Chunk, start in microseconds) of the stages of rank 0 on the first dimension.
fn starts(spans: &[SpanResult]) -> Vec<(u32, f64)> {
    spans.iter().filter(|s| s.dimension == 0).map(|s| (s.chunk, s.start_us)).collect()
}

#[test]
fn chunks_may_have_unequal_sizes() {
    for network_model in NETWORK_MODELS {
        let mut scenario = four_ms();
        scenario.network_model = network_model;
        scenario.job[0].size = Bytes::new(6 * MS);
        scenario.schedule.chunks = Some(3);
        let mut file = plan(&scenario).expect("a good scenario");
        for (chunk, ms) in file.plans[0].chunks.iter_mut().zip([3, 1, 2]) {
            chunk.bytes = Bytes::new(ms * MS);
        }
        file.plans[0].check().expect("the same bytes in all");
        scenario.schedule.order = Order::SMALLEST_FIRST;
        let small = timeline(&scenario, Some(&file));
        assert_eq!(starts(&small), [(1, 0.0), (2, 1_000.0), (0, 3_000.0)], "{network_model:?}");
        scenario.schedule.order = Order::FIFO;
        let fifo = timeline(&scenario, Some(&file));
        assert_eq!(starts(&fifo), [(0, 0.0), (1, 3_000.0), (2, 4_000.0)], "{network_model:?}");
        assert_eq!(run_plan(&scenario, Some(&file)).time_us, 6_000.0);
    }
}

/// The baseline decides alike at every size, so a plan of a range must be the plan made there.
#[test]
fn a_plan_of_a_range_runs_at_every_size_of_it() {
    const CUT: u64 = 64 * 3;
    let mut scenario = four_ms();
    scenario.schedule.chunks = Some(3);
    scenario.job[0].size = Bytes::new(1000 * CUT);
    let mut file = plan(&scenario).expect("a good scenario");
    let range = SizeRange { from: Bytes::new(10 * CUT), to: Bytes::new(5000 * CUT) };
    file.plans[0].sizes = Some(range);
    let text = serde_json::to_string(&file).expect("plain data");
    assert_eq!(PlanFile::from_json(&text).expect("a right file"), file);
    for network_model in NETWORK_MODELS {
        scenario.network_model = network_model;
        for size in [10 * CUT, 999 * CUT, 1000 * CUT, 5000 * CUT] {
            scenario.job[0].size = Bytes::new(size);
            let shown = |spans: &[SpanResult]| format!("{spans:?}");
            let ran = shown(&timeline(&scenario, Some(&file)));
            assert_eq!(ran, shown(&timeline(&scenario, None)), "{network_model:?}");
        }
        for size in [10 * CUT - 1, 5000 * CUT + 1] {
            scenario.job[0].size = Bytes::new(size);
            let refused =
                simulate(&scenario, Some(&file), false, &mut |_, _| ControlFlow::Continue(()));
            let text = refused.expect_err("outside its range").to_string();
            let named = [range.to_string(), Bytes::new(size).to_string()];
            assert!(named.iter().all(|name| text.contains(name)), "{text}");
        }
    }
}

#[test]
fn a_planned_order_is_kept_in_every_network_model() {
    let shape = vec![
        exact(Kind::Ring, 4, Time::from_ns(700)),
        exact(Kind::FullyConnected, 3, Time::from_ns(20)),
        exact(Kind::Switch, 2, Time::from_ns(1_700)),
    ];
    let mut scenario = scenario(fabric(shape), Operation::AllReduce, 10_000_000);
    scenario.schedule.policy = "themis".into();
    scenario.schedule.chunks = Some(12);
    scenario.schedule.order = Order::PLANNED;
    let mut file = plan(&scenario).expect("a good scenario");
    // An order that no other policy would choose, and that makes progress: of two stages in turn
    // that are of different chunks and both first ones, the other one first.
    file.plans[0].dimension_order[0].swap(0, 1);
    file.plans[0].check().expect("it can be kept");
    for network_model in NETWORK_MODELS {
        scenario.network_model = network_model;
        let spans = timeline(&scenario, Some(&file));
        for (d, order) in (0..).zip(&file.plans[0].dimension_order) {
            let ran: Vec<StageRef> = spans
                .iter()
                .filter(|span| span.dimension == d)
                .map(|span| StageRef { chunk: span.chunk, stage: span.stage })
                .collect();
            assert_eq!(&ran, order, "{network_model:?} dim{}", d + 1);
        }
    }
}

#[test]
fn active_chunks_limits_how_many_stages_of_a_dimension_are_unfinished() {
    let one = ActiveChunks::AtMost(1);
    let two = ActiveChunks::AtMost(2);
    // Each chunk takes a millisecond to send and another to arrive: two fill the dimension.
    let fill = ActiveChunks::FILL;
    for (limit, ms) in
        [(None, 5_000.0), (Some(one), 8_000.0), (Some(two), 5_000.0), (Some(fill), 5_000.0)]
    {
        let mut scenario = four_ms();
        scenario.fabric.dimensions[0].latency = Time::from_us(1_000);
        scenario.schedule.active_chunks = limit;
        for network_model in NETWORK_MODELS {
            scenario.network_model = network_model;
            assert_eq!(run(&scenario).time_us, ms, "{network_model:?} {limit:?}");
        }
    }
}
