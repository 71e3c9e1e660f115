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

    /// Smallest-first, or where that leaves gaps (few chunks that all go the same way) first come,
    /// first served.
    fn fixed_by(&self) -> &'static [Order] {
        &[Order::SMALLEST_FIRST, Order::FIFO]
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

    /// What no plan orders, such as a message, goes when it comes.
    fn is_next(&self, stage: &Waiting) -> bool {
        let order = self.orders.get(stage.collective as usize);
        order.and_then(VecDeque::front).is_none_or(|next| *next == stage.at)
    }
}

impl DimensionQueue for Planned {
    fn begin(&mut self, collective: u32, order: &[StageRef]) {
        let index = collective as usize;
        if self.orders.len() <= index {
            self.orders.resize(index + 1, VecDeque::new());
        }
        self.orders[index].clear();
        self.orders[index].extend(order);
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
        if let Some(order) = self.orders.get_mut(stage.collective as usize) {
            order.pop_front();
        }
        Some(stage)
    }

    fn withdraw(&mut self, collective: u32) -> u32 {
        let before = self.here.len();
        self.here.retain(|stage| stage.collective != collective);
        if let Some(order) = self.orders.get_mut(collective as usize) {
            order.clear();
        }
        u32::try_from(before - self.here.len()).expect("fewer than 2^32 stages wait")
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.here.clone()
    }
}
