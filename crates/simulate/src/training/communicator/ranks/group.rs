//! A process group smaller than the job as one algorithm over all its ranks.
//!
//! What some libraries do with a communicator: a ring over its ranks in order, whatever networks join them.
//! Its chunks are those of any collective; each is one stage, and a message counts on the first dimension
//! on which its ranks differ.

use allrail_collective::dataflow::RankMessages;
use allrail_collective::{Operation, StageRef};
use allrail_core::{Bytes, Rank, Time};
use allrail_fabric::{Contention, Fabric, Kind};
use allrail_schedule::chunk::{Composition, Parameters};
use allrail_schedule::{Request, planner};

use super::messages::dimension;
use crate::SimulateError;
use crate::executors::lowered::{Carried, Lowered, MessageSteps, Outgoing};
use crate::executors::plan_messages;
use crate::executors::programs::Programs;
use crate::scenario::GroupSchedule;

/// The algorithm where none is named.
const USUAL: &str = "ring_unidirectional";

/// A collective of `bytes` among `ranks`, of a job on dimensions of `sizes`.
///
/// # Errors
/// The algorithm does not do it, or has too many messages.
pub(super) fn lower(
    request: &Request,
    groups: &GroupSchedule,
    sizes: &[u32],
    ranks: Vec<Rank>,
    operation: Operation,
    bytes: Bytes,
    programs: &mut Programs,
) -> Result<Lowered, SimulateError> {
    let mut one = request.fabric.dimensions[0].clone();
    // What joins the ranks is of no concern to the plan, which has one dimension.
    one.size = u32::try_from(ranks.len()).expect("fewer than 2^32 ranks");
    (one.kind, one.contention, one.in_network_reduction) =
        (Kind::Switch, Contention::Shared, false);
    one.reduction_bandwidth = None;
    let fabric = Fabric { dimensions: vec![one], ..request.fabric.clone() };
    let algorithm = groups.algorithms.get(&operation).map_or(USUAL, String::as_str);
    let request = Request {
        fabric: fabric.clone(),
        operation,
        size: bytes,
        dimensions: Vec::new(),
        algorithms: Some(vec![algorithm].into()),
        chunks: request.chunks_of(bytes),
        policy: "baseline".to_owned(),
        parameters: Parameters { composition: Composition::Merged, ..request.parameters.clone() },
        ..request.clone()
    };
    let plan = planner::plan(&request)?;
    let (_, works) = crate::lowering::work(&fabric, std::slice::from_ref(&plan))?;
    let mut lowered = plan_messages::lower(&plan, &works[0], &[0], request.order, programs)?;
    if let Carried::Messages(steps) = lowered.carried {
        let (sizes, delay) = (sizes.to_vec(), groups.endpoint_delay);
        lowered.carried = Carried::Messages(Box::new(Among { steps, ranks, sizes, delay }));
    }
    Ok(lowered)
}

/// The messages of an algorithm among ranks anywhere.
struct Among {
    steps: Box<dyn MessageSteps>,
    ranks: Vec<Rank>,
    sizes: Vec<u32>,
    delay: Time,
}

impl MessageSteps for Among {
    fn steps(&self, at: StageRef) -> u32 {
        self.steps.steps(at)
    }

    fn first(&self, at: StageRef) -> u64 {
        self.steps.first(at)
    }

    fn sends(&self, position: u32, at: StageRef, step: u32, out: &mut Vec<Outgoing>) {
        let before = out.len();
        self.steps.sends(position, at, step, out);
        let from = self.ranks[position as usize];
        for one in &mut out[before..] {
            one.dimension = dimension(&self.sizes, from, self.ranks[one.to as usize]);
        }
    }

    fn expected(&self, position: u32, at: StageRef, step: u32) -> u32 {
        self.steps.expected(position, at, step)
    }

    fn has_dataflow(&self) -> bool {
        self.steps.has_dataflow()
    }

    fn dataflow(&self, position: u32, at: StageRef) -> Option<&RankMessages> {
        self.steps.dataflow(position, at)
    }

    fn message(&self, position: u32, at: StageRef, number: u32) -> Outgoing {
        let one = self.steps.message(position, at, number);
        let [from, to] = [position, one.to].map(|position| self.ranks[position as usize]);
        Outgoing { dimension: dimension(&self.sizes, from, to), ..one }
    }

    fn combining(&self, position: u32, at: StageRef, number: u32) -> Time {
        self.steps.combining(position, at, number)
    }

    fn endpoint_delay(&self) -> Option<Time> {
        Some(self.delay)
    }

    fn reducing(&self, position: u32, at: StageRef, step: u32) -> Time {
        self.steps.reducing(position, at, step)
    }
}
