//! The smallest chunk first as ASTRA-sim's code does it (`Sys::insert_stream`, `SCF`).
//!
//! One list. A reduce-scatter or all-gather goes behind all at the front that bring less than it does:
//! before those that bring as much, so of equals the last comes first, and whatever the collectives'
//! priorities. An all-to-all, and an all-reduce in one stage, goes behind all at the front of its own
//! or a higher priority.
//!
//! Eager: of stages that end at one time, that on the lowest dimension is taken first, and its chunk goes
//! on before the next is looked at. There, a stage ends when the last of its NPUs is told so, and the
//! innermost dimension's last NPU has the lowest number.
//!
//! Cost: the length of the list a stage.

use std::collections::VecDeque;

use allrail_collective::{Operation, StageRef};

use super::{DimensionQueue, Order, QueuePolicy, Waiting};

pub(super) struct Policy;

impl Order {
    /// The smallest chunk first by ASTRA-sim's rules.
    pub const ASTRA_SIM: Self = Self(&Policy);
}

impl QueuePolicy for Policy {
    fn tag(&self) -> &'static str {
        "astra_sim"
    }

    fn about(&self) -> &'static str {
        "as ASTRA-sim's SCF: by what an NPU brings, last come first, whatever the priority"
    }

    fn queue(&self, _orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue> {
        Box::new(AstraSim::default())
    }
}

/// See the module.
#[derive(Default)]
pub struct AstraSim(VecDeque<Waiting>);

impl DimensionQueue for AstraSim {
    fn is_eager(&self) -> bool {
        true
    }

    fn push(&mut self, stage: Waiting) {
        let by_size = matches!(stage.operation, Operation::ReduceScatter | Operation::AllGather);
        let precedes = |other: &Waiting| {
            if by_size { other.brought >= stage.brought } else { other.priority < stage.priority }
        };
        let place = self.0.iter().position(precedes).unwrap_or(self.0.len());
        self.0.insert(place, stage);
    }

    fn pop(&mut self) -> Option<Waiting> {
        self.0.pop_front()
    }

    fn withdraw(&mut self, collective: u32) -> u32 {
        let before = self.0.len();
        self.0.retain(|stage| stage.collective != collective);
        u32::try_from(before - self.0.len()).expect("fewer than 2^32 stages wait")
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.0.iter().copied().collect()
    }
}
