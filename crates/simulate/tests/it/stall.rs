//! A network model that loses a message: the run ends, and says who waits for what.

use std::ops::ControlFlow;

use crate::common::*;
use allrail_collective::{CollectivePlan, Operation};
use allrail_core::{Bytes, Time};
use allrail_fabric::{Fabric, Kind};
use allrail_network::{Dims, Event, Links, NetworkModel, Submission, TransferId};
use allrail_schedule::Order;
use allrail_simulate::driver::{self, Collectives};
use allrail_simulate::lowering::{Lowering, work};
use allrail_simulate::scenario::NetworkModelKind;
use allrail_simulate::{CollectiveScenario, SimulateError, plan};

/// Drops one delivery, counted from 0, and is otherwise the network model within.
struct Lossy {
    inner: Box<dyn NetworkModel>,
    lost: u32,
    seen: u32,
}

impl NetworkModel for Lossy {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        self.inner.submit(now, submission)
    }

    fn next_time(&self) -> Option<Time> {
        self.inner.next_time()
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        let event = self.inner.next_event(until)?;
        if matches!(event.1, Event::Delivered { .. }) {
            self.seen += 1;
            if self.seen == self.lost + 1 {
                return self.inner.next_event(until);
            }
        }
        Some(event)
    }

    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
        self.inner.cancel(now, transfer)
    }
}

fn plans(scenario: &CollectiveScenario) -> Vec<CollectivePlan> {
    plan(scenario).expect("a good scenario").plans
}

/// The text of the stall; `links` or else `dims`.
fn stall(fabric: &Fabric, plans: &[CollectivePlan], links: bool, lost: u32) -> String {
    let (_, works) = work(fabric, plans).expect("a planned plan");
    let starts = vec![Time::ZERO; plans.len()];
    let priorities = vec![0; plans.len()];
    let job = Collectives {
        plans,
        starts: &starts,
        priorities: &priorities,
        order: Order::PLANNED,
        active_chunks: None,
        send_ahead: Bytes::default(),
        endpoint_delay: Time::ZERO,
        timeline: false,
        until: Time::MAX,
    };
    let lowering = if links {
        Lowering::messages(fabric, plans, &works, NetworkModelKind::Links, job.order)
            .expect("a small fabric")
    } else {
        Lowering::stages(plans, &works, job.order)
    };
    let inner: Box<dyn NetworkModel> = if links {
        Box::new(Links::new(fabric))
    } else {
        Box::new(Dims::new(fabric.dimensions.len()))
    };
    let mut network_model = Lossy { inner, lost, seen: 0 };
    let error =
        driver::run(&job, &lowering, &mut network_model, &mut |_, _| ControlFlow::Continue(()))
            .expect_err("a message was lost");
    assert!(matches!(error, SimulateError::Stalled { .. }), "{error}");
    error.to_string()
}

fn two_dimensions() -> CollectiveScenario {
    let fabric = fabric(vec![
        exact(Kind::FullyConnected, 4, Time::from_ns(500)),
        exact(Kind::Ring, 3, Time::from_ns(500)),
    ]);
    let mut scenario = scenario(fabric, Operation::ReduceScatter, 48_000);
    scenario.schedule.chunks = Some(2);
    scenario
}

/// The first delivery is to a rank that then waits for one of its three peers; its other chunk, and
/// the peers of its second dimension, wait for it.
#[test]
fn a_lost_message_is_reported_with_who_waits_for_what() {
    let scenario = two_dimensions();
    let text = stall(&scenario.fabric, &plans(&scenario), true, 0);
    let blamed: Vec<&str> = text.lines().filter(|line| line.contains("waits for 1 of 3")).collect();
    assert_eq!(blamed.len(), 1, "{text}");
    for part in [
        "rank 1:",
        "chunk 0 of collective 0",
        "reduce_scatter on dim1",
        "step 0",
        "1 of 3 messages",
    ] {
        assert!(blamed[0].contains(part), "`{part}` is not in\n{text}");
    }
    assert!(text.starts_with("the simulation stalled at "), "{text}");
    // Its ring on dim2: both neighbours' messages come on without it.
    for rank in [5, 9] {
        let line = format!("rank {rank}: chunk 0 of collective 0, reduce_scatter on dim2, step 0,");
        assert!(text.contains(&line), "`{line}` is not in\n{text}");
    }
}

/// The last stage of all: every rank but one is done, and it alone is named.
#[test]
fn only_those_who_wait_are_named() {
    let mut scenario = two_dimensions();
    scenario.schedule.chunks = Some(1);
    // 12 NPUs with 3 peers each, then 12 with 2 messages in each of 2 steps.
    let deliveries = 12 * 3 + 12 * 2 * 2;
    let text = stall(&scenario.fabric, &plans(&scenario), true, deliveries - 1);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(
        lines[0].contains("reduce_scatter on dim2, step 1, waits for 1 of 2 messages"),
        "{text}"
    );
}

#[test]
fn a_lost_stage_in_dims_is_reported_with_its_dimension() {
    let scenario = two_dimensions();
    let text = stall(&scenario.fabric, &plans(&scenario), false, 1);
    let line = "chunk 1 of collective 0, reduce_scatter on dim1, step 0, waits for 1 of 1 message";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("chunk 0"), "it is done\n{text}");
}

/// In a planned order a chunk behind the lost one is not served, and says so.
#[test]
fn a_stage_that_waits_for_its_turn_is_told_from_one_that_waits_for_messages() {
    let mut scenario = two_dimensions();
    scenario.fabric = fabric(vec![exact(Kind::FullyConnected, 4, Time::from_ns(500))]);
    let mut second = scenario.clone();
    second.job[0].kind = Operation::AllGather;
    let plans = [plans(&scenario), plans(&second)].concat();
    let (_, works) = work(&scenario.fabric, &plans).expect("planned plans");
    let job = Collectives {
        plans: &plans,
        starts: &[Time::ZERO; 2],
        priorities: &[0; 2],
        order: Order::PLANNED,
        active_chunks: Some(1.into()),
        send_ahead: Bytes::default(),
        endpoint_delay: Time::ZERO,
        timeline: false,
        until: Time::MAX,
    };
    let mut network_model = Lossy { inner: Box::new(Dims::new(1)), lost: 1, seen: 0 };
    let lowering = Lowering::stages(&plans, &works, job.order);
    let text =
        driver::run(&job, &lowering, &mut network_model, &mut |_, _| ControlFlow::Continue(()))
            .expect_err("a stage was lost")
            .to_string();
    assert!(text.contains("chunk 1 of collective 0, reduce_scatter on dim1, step 0"), "{text}");
    for chunk in 0..2 {
        let line = format!("chunk {chunk} of collective 1, all_gather on dim1, waits for its turn");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn an_observer_can_break_a_run_off() {
    let fabric = fabric(vec![exact(Kind::Switch, 64, Time::from_ns(500))]);
    let mut scenario = in_links(&scenario(fabric, Operation::AllToAll, 64_000));
    scenario.schedule.chunks = Some(8);
    let mut calls = 0;
    let outcome =
        allrail_simulate::collectives::simulate(&scenario, None, false, &mut |done, total| {
            calls += 1;
            assert!(done <= total && total > 0);
            ControlFlow::Break(())
        });
    assert!(matches!(outcome, Err(SimulateError::Interrupted)), "{outcome:?}");
    assert_eq!(calls, 1);
}
