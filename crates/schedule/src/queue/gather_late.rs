//! Reduce-scatters first, all-gathers when none waits.
//!
//! What sharded training does (FSDP, ZeRO): gradients are reduced and scattered in the order in which the
//! backward pass brings them, and gathered for the next forward pass. Here both halves are stages of one
//! all-reduce: a reduce-scatter goes before all else, in the order in which they come, whatever their
//! priority; an all-gather yields to every one that waits, and of several the one with the higher priority
//! goes, which is that of the tensor that the forward pass needs first.
//!
//! Bytes are those of the all-reduce. It helps where what is scattered early is what all would wait for; an
//! all-reduce that is one stage has no halves, and goes as an all-gather does.

use allrail_collective::{Operation, StageRef};

use super::ranked::Ranked;
use super::{DimensionQueue, QueuePolicy, Waiting};

pub(super) struct Policy;

impl QueuePolicy for Policy {
    fn tag(&self) -> &'static str {
        "gather_late"
    }

    fn about(&self) -> &'static str {
        "reduce-scatters as they come, all-gathers by priority when none waits"
    }

    fn queue(&self, _orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue> {
        Box::new(GatherLate::default())
    }

    fn urgency(&self, operation: Operation, priority: i64) -> i64 {
        match operation {
            Operation::ReduceScatter => i64::MAX,
            _ => priority.min(i64::MAX - 1),
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct GatherLate(Ranked);

impl DimensionQueue for GatherLate {
    fn push(&mut self, stage: Waiting) {
        let priority = Policy.urgency(stage.operation, stage.priority);
        self.0.push(Waiting { priority, ..stage }, |sequence| (0, sequence));
    }

    fn pop(&mut self) -> Option<Waiting> {
        self.0.pop()
    }

    fn withdraw(&mut self, collective: u32) -> u32 {
        self.0.withdraw(collective)
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.0.waiting()
    }
}
