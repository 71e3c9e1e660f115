//! Messages that are no plan's: of one algorithm over a process group, and lone ones.

use std::sync::Arc;

use allrail_collective::{StageRef, Steps};
use allrail_core::{Bytes, Rank, Time};

use crate::executors::lowered::{MessageSteps, Outgoing};

/// The dimension on which a message counts: the first on which its ranks differ.
pub(super) fn dimension(sizes: &[u32], from: Rank, to: Rank) -> u32 {
    let (mut from, mut to) = (from.0, to.0);
    for (d, size) in (0u32..).zip(sizes) {
        if from % size != to % size {
            return d;
        }
        from /= size;
        to /= size;
    }
    0
}

/// One algorithm over all ranks of a process group, on a graph: its ports are never taken.
pub(super) struct Whole {
    pub(super) steps: Arc<dyn Steps>,
    pub(super) ranks: Vec<Rank>,
    pub(super) sizes: Vec<u32>,
}

impl MessageSteps for Whole {
    fn steps(&self, _: StageRef) -> u32 {
        self.steps.steps()
    }

    fn first(&self, _: StageRef) -> u64 {
        0
    }

    fn sends(&self, position: u32, _: StageRef, step: u32, out: &mut Vec<Outgoing>) {
        let mut sends = Vec::new();
        self.steps.sends(position, step, &mut sends);
        let from = self.ranks[position as usize];
        out.extend(sends.into_iter().map(|(to, bytes)| Outgoing {
            to,
            heard_by: to,
            dimension: dimension(&self.sizes, from, self.ranks[to as usize]),
            bytes,
            last_on_link: false,
        }));
    }

    fn expected(&self, position: u32, _: StageRef, step: u32) -> u32 {
        self.steps.expected(position, step)
    }
}

/// A lone message: its sender's stage, over when it has come.
pub(super) struct Lone {
    pub(super) bytes: Bytes,
    pub(super) dimension: u32,
    pub(super) exclusive: bool,
    pub(super) delay: Option<Time>,
}

impl MessageSteps for Lone {
    fn steps(&self, _: StageRef) -> u32 {
        1
    }

    fn first(&self, _: StageRef) -> u64 {
        0
    }

    fn sends(&self, _: u32, _: StageRef, _: u32, out: &mut Vec<Outgoing>) {
        let (bytes, dimension) = (self.bytes, self.dimension);
        out.push(Outgoing { to: 1, heard_by: 0, dimension, bytes, last_on_link: self.exclusive });
    }

    fn expected(&self, _: u32, _: StageRef, _: u32) -> u32 {
        1
    }

    fn endpoint_delay(&self) -> Option<Time> {
        self.delay
    }
}
