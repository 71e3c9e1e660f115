//! A fixed order per collective (Themis §4.6): a stage waits for its turn even if the dimension
//! idles, so that all ranks run the same stages in the same order whatever the jitter.
//!
//! Among collectives, the one with the highest priority whose next stage is here goes first, then
//! the one that was submitted first.

use std::collections::VecDeque;

use allrail_collective::StageRef;

use super::{DimensionQueue, Order, QueuePolicy, Waiting};

pub(super) struct Policy;

impl Order {
    /// The order that a deterministic simulation of the plan fixed (Themis §4.6).
    pub const PLANNED: Self = Self(&Policy);
}

impl QueuePolicy for Policy {
    fn tag(&self) -> &'static str {
        "planned"
    }

    fn about(&self) -> &'static str {
        "the order that a deterministic simulation of the plan fixed, on every rank alike"
    }

    fn queue(&self, orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue> {
        Box::new(Planned::new(orders))
    }

    fn keeps_to_plans(&self) -> bool {
        true
    }

    fn while_planning(&self) -> Option<Order> {
        Some(Order::SMALLEST_FIRST)
    }
}

/// See the module.
pub struct Planned {
    /// What is left of each collective's order.
    orders: Vec<VecDeque<StageRef>>,
    here: Vec<Waiting>,
}

impl Planned {
    /// `orders[collective]`: the stages of that collective on this dimension.
    #[must_use]
    pub fn new(orders: Vec<Vec<StageRef>>) -> Self {
        Self { orders: orders.into_iter().map(VecDeque::from).collect(), here: Vec::new() }
    }

    fn is_next(&self, stage: &Waiting) -> bool {
        self.orders[stage.collective as usize].front() == Some(&stage.at)
    }
}

impl DimensionQueue for Planned {
    fn begin(&mut self, collective: u32, order: &[StageRef]) {
        let index = collective as usize;
        if self.orders.len() <= index {
            self.orders.resize(index + 1, VecDeque::new());
        }
        self.orders[index] = order.iter().copied().collect();
    }

    fn push(&mut self, stage: Waiting) {
        self.here.push(stage);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let (place, _) = self
            .here
            .iter()
            .enumerate()
            .filter(|(_, stage)| self.is_next(stage))
            .min_by_key(|(_, stage)| (std::cmp::Reverse(stage.priority), stage.collective))?;
        let stage = self.here.swap_remove(place);
        self.orders[stage.collective as usize].pop_front();
        Some(stage)
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.here.clone()
    }
}
