//! What the search of `search` expects of a schedule in `links`, against that network model.

use std::ops::ControlFlow;

use crate::common::*;
use allrail_collective::Operation;
use allrail_core::DimensionId;
use allrail_schedule::Order;
use allrail_schedule::chunk::{self, Parameters, Problem, expected_in_links};
use allrail_schedule::evaluate::Work;
use allrail_schedule::scheduled::model_of;
use allrail_simulate::CollectiveScenario;
use allrail_simulate::collectives::simulate;
use allrail_simulate::scenario::NetworkModelKind;

/// With topology-aware algorithms on dimensions of powers of two, one rank stands for all. (Where
/// much happens at the same picosecond, ties may fall otherwise: these platforms have no such.)
#[test]
fn one_rank_message_by_message_ends_when_all_do_in_links() {
    for (fabric, chunks) in platforms().into_iter().flat_map(|f| [(f.clone(), 3), (f, 12)]) {
        for policy in chunk::ALL.iter().map(|policy| policy.tag()) {
            let mut scenario = scenario(fabric.clone(), Operation::AllReduce, chunks << 22);
            scenario.schedule.chunks = Some(u32::try_from(chunks).expect("few"));
            scenario.schedule.order = Order::SMALLEST_FIRST;
            scenario.schedule.policy = policy.to_owned();
            scenario.network_model = NetworkModelKind::Links;
            let (expected, links) = both(&scenario);
            assert!(
                (expected / links - 1.0).abs() < 1e-6,
                "{policy} on {fabric:?}: {expected} us expected, {links} us in links"
            );
        }
    }
}

/// What is expected, and what `links` gives, in microseconds.
fn both(scenario: &CollectiveScenario) -> (f64, f64) {
    let file = allrail_simulate::plan(scenario).expect("plans");
    let plan = &file.plans[0];
    let result = simulate(scenario, Some(&file), false, &mut |_, _| ControlFlow::Continue(()));
    let model = model_of(plan, &scenario.fabric).expect("modelled");
    let bytes: Vec<_> = plan.chunks.iter().map(|chunk| chunk.bytes).collect();
    let stages = plan.chunks.iter().map(|chunk| chunk.stages.as_slice());
    let work = Work::new(&model, bytes.iter().copied().zip(stages)).expect("short");
    let ids: Vec<DimensionId> = scenario.fabric.ids().collect();
    let problem = Problem {
        model: &model,
        operation: Operation::AllReduce,
        dimensions: &ids,
        chunks: &bytes,
        order: Order::SMALLEST_FIRST,
        active_chunks: None,
        parameters: &Parameters::default(),
        seed: 0,
        watch: &|_, _| {},
    };
    let expected = expected_in_links(&problem, &work).expect("alike chunks");
    (expected.as_us(), result.expect("runs").time_us)
}
