//! The core of `priority` and `bytescheduler`: partitions wait in order of urgency and start while
//! the credit lasts.
//!
//! The order is (place, tensor, offset). The most urgent partition is never passed by: while it does
//! not fit into what is left of the credit, nothing starts. One that exceeds the whole credit goes
//! alone. Pushes and pulls have a queue and a credit each. A push gives its credit back when it has arrived,
//! though its pull begins only once all workers have pushed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use allrail_core::{Bytes, Time};

use super::flying::InFlight;
use super::{Action, CommTask, Cut, Event, Exchange, Leg, Piece, TensorScheduler, Tuning};

/// The partitions that wait for one leg, and how many bytes may be in flight on it.
struct Lane {
    leg: Leg,
    /// The most urgent first; no two are alike.
    waiting: BinaryHeap<Reverse<(u32, Piece)>>,
    credit: u64,
}

impl Lane {
    fn new(leg: Leg, credit: Bytes) -> Self {
        Self { leg, waiting: BinaryHeap::new(), credit: credit.count() }
    }

    /// The most urgent partition, if it may start beside what is in flight.
    fn take(&mut self, in_flight: u64) -> Option<Piece> {
        let bytes = self.waiting.peek()?.0.1.bytes.count();
        if in_flight > 0 && in_flight.saturating_add(bytes) > self.credit {
            return None;
        }
        self.waiting.pop().map(|Reverse((_, piece))| piece)
    }
}

/// A scheduler of partitions.
pub(super) struct Window {
    tasks: Vec<CommTask>,
    /// The first leg, and the pulls where there are servers.
    lanes: Vec<Lane>,
    /// What counts against the credit.
    in_flight: InFlight,
}

impl Window {
    /// Of these tasks. A credit of one byte lets one partition fly at a time.
    pub(super) fn new(tasks: Vec<CommTask>, exchange: Exchange, credit: Bytes) -> Self {
        let legs = exchange.legs();
        let lanes = legs.iter().map(|leg| Lane::new(*leg, credit)).collect();
        Self { tasks, lanes, in_flight: InFlight::new(legs.len()) }
    }

    fn ready(&mut self, tensor: u32, actions: &mut Vec<Action>) {
        let task = &mut self.tasks[tensor as usize];
        if task.notify_ready() {
            actions.push(Action::Done { tensor });
        }
        let place = task.place();
        let pieces = task.partitions().map(|piece| Reverse((place, piece)));
        self.lanes[0].waiting.extend(pieces);
    }

    fn start(&mut self, actions: &mut Vec<Action>) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            while let Some(piece) = lane.take(self.in_flight.bytes(index)) {
                let (leg, priority) = self.tasks[piece.tensor as usize].start(lane.leg);
                let operation = self.in_flight.start(index, piece);
                actions.push(Action::Start { operation, leg, pieces: piece.into(), priority });
            }
        }
    }
}

impl TensorScheduler for Window {
    fn on(&mut self, _now: Time, event: Event<'_>, actions: &mut Vec<Action>) {
        match event {
            Event::Ready { tensor } => self.ready(tensor, actions),
            // Partitions of all of them are ranked before any starts.
            Event::Together { tensors } => {
                for tensor in tensors {
                    self.ready(*tensor, actions);
                }
            }
            Event::Arrived { operation } => self.in_flight.arrived(operation),
            Event::Finished { operation } => {
                let (index, piece) = self.in_flight.end(operation);
                let task = &mut self.tasks[piece.tensor as usize];
                if task.notify_finish(&piece, self.lanes[index].leg) {
                    actions.push(Action::Done { tensor: piece.tensor });
                }
                if let Some(lane) = self.lanes.get_mut(index + 1) {
                    lane.waiting.push(Reverse((task.place(), piece)));
                }
            }
            Event::Timer { .. } => {}
        }
        self.start(actions);
    }

    fn retune(&mut self, tuning: Tuning) {
        if let Some(size) = tuning.partition {
            self.tasks.iter_mut().for_each(|task| task.recut(Cut::Size(size)));
        }
        for lane in &mut self.lanes {
            lane.credit = tuning.credit.map_or(lane.credit, Bytes::count);
        }
    }
}
