//! The plans of a job's collectives, where a policy or an order asks for runs of each.
//!
//! As for a collective alone ([`crate::finalists`]), but always in `links`, on the dimensions of the collective's
//! group: in `flows` and `packets` too, where a step has thousands of collectives and a run of each on the whole
//! graph would take longer than the step. Plans of the same stages share what was found for the first, whatever
//! their bytes.

use std::ops::ControlFlow;

use allrail_collective::{CollectivePlan, Stage, StageRef};
use allrail_core::Bytes;
use allrail_fabric::Dimension;
use allrail_network::flows::Splitting;
use allrail_network::packets::Settings as PacketSettings;
use allrail_schedule::{Request, planner};

use crate::SimulateError;
use crate::finalists;
use crate::judge::Judge;
use crate::network_model_settings::NetworkModelSettings;
use crate::runs::Runs;
use crate::scenario::NetworkModelKind;

/// The algorithms of a plan, and the stages of its chunks.
type Shape = (Vec<String>, Vec<Vec<Stage>>);

/// What was found.
struct Found {
    dimensions: Vec<Dimension>,
    /// Of each finalist.
    shapes: Vec<Shape>,
    /// Which of them is the best.
    best: usize,
    order: Vec<Vec<StageRef>>,
}

/// Plans that were judged so far.
#[derive(Default)]
pub(super) struct Judged {
    found: Vec<Found>,
    /// What links may have yet to send when a port chooses.
    pub(super) send_ahead: Bytes,
}

fn shape(plan: &CollectivePlan) -> Shape {
    (plan.algorithms.clone(), plan.chunks.iter().map(|chunk| chunk.stages.clone()).collect())
}

impl Judged {
    /// The plan of a collective.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub(super) fn plan(&mut self, request: &Request) -> Result<CollectivePlan, SimulateError> {
        let dimensions = &request.fabric.dimensions;
        // `links` knows no switch that reduces.
        let reduces = dimensions.iter().any(|dimension| dimension.in_network_reduction);
        if reduces || !finalists::applies(request, NetworkModelKind::Links)? {
            return Ok(planner::plan(request)?);
        }
        let mut plans = planner::finalists(request, &|_, _| {})?;
        let shapes: Vec<Shape> = plans.iter().map(shape).collect();
        let known = |found: &&Found| found.dimensions == *dimensions && found.shapes == shapes;
        if let Some(found) = self.found.iter().find(known) {
            let plan = plans.swap_remove(found.best);
            return Ok(CollectivePlan { dimension_order: found.order.clone(), ..plan });
        }
        let network_model = NetworkModelSettings {
            kind: NetworkModelKind::Links,
            topology: None,
            packets: PacketSettings::default(),
            paths: Splitting::Minimal,
            send_ahead: self.send_ahead,
            seed: request.seed,
        };
        let go_on = &mut |_, _| ControlFlow::Continue(());
        let mut runs = Runs::new(go_on);
        let mut judge = Judge { request, network_model: &network_model, runs: &mut runs };
        let plan = finalists::choose(&mut judge, &plans, false)?.plan;
        let best = shapes.iter().position(|one| *one == shape(&plan)).unwrap_or(0);
        self.found.push(Found {
            dimensions: dimensions.clone(),
            shapes,
            best,
            order: plan.dimension_order.clone(),
        });
        Ok(plan)
    }
}
