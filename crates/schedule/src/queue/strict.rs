//! The planned order within a collective, and the order of issue among collectives: no stage of a later
//! one runs before the last stage that an earlier one has on the dimension.
//!
//! So what a dimension runs is a function of what is issued, in which order, and of nothing else. That is
//! what a transport needs that pairs the k-th launch of every rank: with it, ranks that issue the same
//! collectives in the same order never meet in different ones, however their clocks differ. Priorities count
//! for what is issued next, not here.

use std::collections::VecDeque;

use allrail_collective::StageRef;

use super::{DimensionQueue, Order, QueuePolicy, Waiting};

pub(super) struct Policy;

impl Order {
    /// Plans, and collectives in the order of issue.
    pub const STRICT: Self = Self(&Policy);
}

impl QueuePolicy for Policy {
    fn tag(&self) -> &'static str {
        "strict"
    }

    fn about(&self) -> &'static str {
        "the planned order, and collectives one after the other as issued: the same on every rank"
    }

    fn queue(&self, orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue> {
        let mut queue = Strict::default();
        for (collective, order) in (0u32..).zip(&orders) {
            queue.begin(collective, order);
        }
        Box::new(queue)
    }

    fn keeps_to_plans(&self) -> bool {
        true
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// As a planned order is.
    fn fixed_by(&self) -> &'static [Order] {
        &[Order::SMALLEST_FIRST, Order::FIFO]
    }
}

/// A stage in the order of a dimension.
struct Place {
    collective: u32,
    at: StageRef,
    here: Option<Waiting>,
    /// Its collective was withdrawn.
    gone: bool,
}

/// See the module.
#[derive(Default)]
pub struct Strict {
    /// What will run, in order.
    order: VecDeque<Place>,
    /// How many places were taken out in front.
    passed: u64,
    /// Of each collective: its first place, counted from the very first, and how many it has.
    places: Vec<(u64, usize)>,
    /// What no plan orders, such as a message, goes when it comes.
    loose: VecDeque<Waiting>,
}

impl Strict {
    /// The places of a collective that are left.
    fn places(&mut self, collective: u32) -> impl Iterator<Item = &mut Place> {
        let (first, count) = self.places.get(collective as usize).copied().unwrap_or((0, 0));
        let end = (first + count as u64).saturating_sub(self.passed) as usize;
        let start = first.saturating_sub(self.passed) as usize;
        let places = self.order.range_mut(start.min(end)..end);
        places.filter(move |place| place.collective == collective)
    }
}

impl DimensionQueue for Strict {
    fn begin(&mut self, collective: u32, order: &[StageRef]) {
        let index = collective as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, (0, 0));
        }
        self.places[index] = (self.passed + self.order.len() as u64, order.len());
        let places = order.iter().map(|at| Place { collective, at: *at, here: None, gone: false });
        self.order.extend(places);
    }

    fn push(&mut self, stage: Waiting) {
        let place = self.places(stage.collective).find(|place| place.at == stage.at);
        let Some(place) = place else {
            self.loose.push_back(stage);
            return;
        };
        place.here = Some(stage);
    }

    fn pop(&mut self) -> Option<Waiting> {
        while self.order.front().is_some_and(|place| place.gone) {
            self.order.pop_front();
            self.passed += 1;
        }
        let next = self.order.front().and_then(|place| place.here);
        if next.is_some() {
            self.order.pop_front();
            self.passed += 1;
        }
        next.or_else(|| self.loose.pop_front())
    }

    fn withdraw(&mut self, collective: u32) -> u32 {
        let before = self.loose.len();
        self.loose.retain(|stage| stage.collective != collective);
        let mut dropped = before - self.loose.len();
        for place in self.places(collective) {
            dropped += usize::from(place.here.take().is_some());
            place.gone = true;
        }
        u32::try_from(dropped).expect("fewer than 2^32 stages wait")
    }

    fn waiting(&self) -> Vec<Waiting> {
        let planned = self.order.iter().filter_map(|place| place.here);
        planned.chain(self.loose.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_collective::Operation;
    use allrail_core::Bytes;

    fn stage(collective: u32, chunk: u32) -> Waiting {
        Waiting {
            collective,
            at: StageRef { chunk, stage: 0 },
            priority: i64::from(collective),
            operation: Operation::AllReduce,
            buffer: Bytes::new(1),
            brought: Bytes::new(1),
        }
    }

    fn order(chunks: &[u32]) -> Vec<StageRef> {
        chunks.iter().map(|chunk| StageRef { chunk: *chunk, stage: 0 }).collect()
    }

    #[test]
    fn whatever_comes_first_the_order_of_issue_and_the_plan_decide() {
        let mut queue = Strict::default();
        // Numbers are given again.
        for _ in 0..3 {
            queue.begin(1, &order(&[1, 0]));
            queue.begin(0, &order(&[0]));
            for (collective, chunk) in [(0, 0), (1, 0)] {
                queue.push(stage(collective, chunk));
            }
            assert_eq!(queue.pop(), None, "the first is not here");
            queue.push(stage(1, 1));
            let run: Vec<Waiting> = std::iter::from_fn(|| queue.pop()).collect();
            assert_eq!(run, [stage(1, 1), stage(1, 0), stage(0, 0)]);
        }
    }

    #[test]
    fn what_is_withdrawn_holds_nothing_up() {
        let mut queue = Strict::default();
        queue.begin(0, &order(&[0, 1]));
        queue.begin(1, &order(&[0]));
        queue.push(stage(0, 1));
        queue.push(stage(1, 0));
        queue.push(stage(7, 0));
        assert_eq!(queue.waiting(), [stage(0, 1), stage(1, 0), stage(7, 0)]);
        assert_eq!(queue.withdraw(0), 1);
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some(stage(1, 0)), Some(stage(7, 0)), None]
        );
    }
}
