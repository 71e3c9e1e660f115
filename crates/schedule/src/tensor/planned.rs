//! What a policy has made of a step graph: tasks with their urgency and partitions, and, of one that chooses as
//! it goes, who is asked.

use std::collections::VecDeque;

use allrail_core::{Bytes, Time};

use super::flying::InFlight;
use super::window::Window;
use super::{Action, CommTask, Event, Exchange, Leg, Piece, TensorScheduler};

/// Tasks for one scheduler.
pub struct Planned {
    /// Of every tensor, in order; the lower its place, the more urgent.
    pub tasks: Vec<CommTask>,
    /// How much may be in flight on each leg; of no effect with a chooser.
    pub credit: Bytes,
    /// Who says what starts; none where it follows from the tasks.
    pub chooser: Option<Box<dyn Chooser>>,
}

impl Planned {
    /// A scheduler that carries it out.
    #[must_use]
    pub fn scheduler(self, exchange: Exchange) -> Box<dyn TensorScheduler> {
        match self.chooser {
            None => Box::new(Window::new(self.tasks, exchange, self.credit)),
            Some(chooser) => Box::new(Chosen::new(self.tasks, exchange, chooser)),
        }
    }
}

/// A task with partitions that wait for a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which tensor.
    pub tensor: u32,
    /// How many of its partitions wait.
    pub partitions: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// What a chooser is shown.
#[derive(Debug)]
pub struct Choice<'a> {
    /// Of which leg.
    pub leg: Leg,
    /// What waits for it: not empty, the most urgent first.
    pub offers: &'a [Offer],
    /// What has started on it and is not over.
    pub in_flight: Bytes,
    /// The time.
    pub now: Time,
}

/// Says what starts, one partition after the other: the part of a scheduler that is not this crate's.
pub trait Chooser: Send {
    /// The tensor whose next partition starts; none to wait for the next event. Asked again until then. An
    /// answer that is no offer starts nothing.
    fn choose(&mut self, choice: &Choice<'_>) -> Option<u32>;

    /// Nothing will happen any more, and these tensors are ready and not done.
    fn stalled(&mut self, tensors: &[u32]);
}

/// Partitions that wait for one leg.
struct Lane {
    leg: Leg,
    /// By tensor.
    waiting: Vec<VecDeque<Piece>>,
}

/// A scheduler that asks for each start.
struct Chosen {
    tasks: Vec<CommTask>,
    /// Tensors, the most urgent first.
    order: Vec<u32>,
    lanes: Vec<Lane>,
    in_flight: InFlight,
    open: Vec<bool>,
    chooser: Box<dyn Chooser>,
}

impl Chosen {
    fn new(tasks: Vec<CommTask>, exchange: Exchange, chooser: Box<dyn Chooser>) -> Self {
        let legs = exchange.legs();
        let lane = |leg: &Leg| Lane { leg: *leg, waiting: vec![VecDeque::new(); tasks.len()] };
        let mut order: Vec<u32> = (0..).zip(&tasks).map(|(index, _)| index).collect();
        order.sort_by_key(|index| (tasks[*index as usize].place(), *index));
        Self {
            order,
            lanes: legs.iter().map(lane).collect(),
            in_flight: InFlight::new(legs.len()),
            open: vec![false; tasks.len()],
            tasks,
            chooser,
        }
    }

    fn ready(&mut self, tensor: u32, actions: &mut Vec<Action>) {
        let task = &mut self.tasks[tensor as usize];
        if task.notify_ready() {
            actions.push(Action::Done { tensor });
            return;
        }
        self.open[tensor as usize] = true;
        self.lanes[0].waiting[tensor as usize].extend(task.partitions());
    }

    fn finished(&mut self, operation: super::OperationId, actions: &mut Vec<Action>) {
        let (index, piece) = self.in_flight.end(operation);
        let tensor = piece.tensor;
        if self.tasks[tensor as usize].notify_finish(&piece, self.lanes[index].leg) {
            self.open[tensor as usize] = false;
            actions.push(Action::Done { tensor });
        }
        if let Some(lane) = self.lanes.get_mut(index + 1) {
            lane.waiting[tensor as usize].push_back(piece);
        }
    }

    fn start(&mut self, now: Time, actions: &mut Vec<Action>) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            loop {
                let waits = |tensor: &u32| {
                    let waiting = &lane.waiting[*tensor as usize];
                    let bytes = waiting.iter().map(|piece| piece.bytes.count()).sum();
                    let partitions = waiting.len() as u64;
                    Offer { tensor: *tensor, partitions, bytes: Bytes::new(bytes) }
                };
                let offers: Vec<Offer> =
                    self.order.iter().map(waits).filter(|offer| offer.partitions > 0).collect();
                if offers.is_empty() {
                    break;
                }
                let in_flight = Bytes::new(self.in_flight.bytes(index));
                let choice = Choice { leg: lane.leg, offers: &offers, in_flight, now };
                let chosen = self.chooser.choose(&choice);
                let waiting = chosen.and_then(|tensor| lane.waiting.get_mut(tensor as usize));
                let Some(piece) = waiting.and_then(VecDeque::pop_front) else { break };
                let operation = self.in_flight.start(index, piece);
                // Of equal priority: the network serves what starts first.
                let (leg, _) = self.tasks[piece.tensor as usize].start(lane.leg);
                actions.push(Action::Start { operation, leg, pieces: piece.into(), priority: 0 });
            }
        }
    }
}

impl TensorScheduler for Chosen {
    fn on(&mut self, now: Time, event: Event<'_>, actions: &mut Vec<Action>) {
        match event {
            Event::Ready { tensor } => self.ready(tensor, actions),
            Event::Together { tensors } => {
                for tensor in tensors {
                    self.ready(*tensor, actions);
                }
            }
            Event::Arrived { operation } => self.in_flight.arrived(operation),
            Event::Finished { operation } => self.finished(operation, actions),
            Event::Timer { .. } => {}
        }
        self.start(now, actions);
    }

    fn stalled(&mut self) {
        let open = (0..).zip(&self.open).filter(|(_, open)| **open).map(|(index, _)| index);
        let open: Vec<u32> = open.collect();
        if !open.is_empty() {
            self.chooser.stalled(&open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cut, Tensor};
    use super::*;

    /// Starts the tensor with the most bytes left, two partitions at a time.
    struct Largest;

    impl Chooser for Largest {
        fn choose(&mut self, choice: &Choice<'_>) -> Option<u32> {
            let fits = choice.in_flight.count() < 8;
            let largest = choice.offers.iter().max_by_key(|offer| offer.bytes)?;
            fits.then_some(largest.tensor)
        }

        fn stalled(&mut self, _: &[u32]) {}
    }

    fn tasks() -> Vec<CommTask> {
        let tensor = |bytes| Tensor { bytes: Bytes::new(bytes), place: 0, group: None };
        let cut = |index, bytes| CommTask::new(index, &tensor(bytes), Cut::Size(Bytes::new(4)));
        vec![cut(0, 6), cut(1, 12)]
    }

    /// (tensor, bytes) of what starts, and tensors that are done.
    fn run(exchange: Exchange) -> (Vec<(Leg, u32, u64)>, Vec<u32>) {
        let planned =
            Planned { tasks: tasks(), credit: Bytes::new(1), chooser: Some(Box::new(Largest)) };
        let mut scheduler = planned.scheduler(exchange);
        let (mut started, mut done, mut flying) = (Vec::new(), Vec::new(), VecDeque::new());
        let mut actions = Vec::new();
        scheduler.on(Time::ZERO, Event::Together { tensors: &[0, 1] }, &mut actions);
        loop {
            for action in actions.drain(..) {
                match action {
                    Action::Start { operation, leg, pieces, priority } => {
                        assert_eq!(priority, 0);
                        started.push((leg, pieces[0].tensor, pieces[0].bytes.count()));
                        flying.push_back(operation);
                    }
                    Action::Done { tensor } => done.push(tensor),
                    Action::SetTimer { .. } => panic!("no timer is needed"),
                }
            }
            let Some(operation) = flying.pop_front() else { return (started, done) };
            scheduler.on(Time::ZERO, Event::Finished { operation }, &mut actions);
        }
    }

    #[test]
    fn starts_what_is_chosen() {
        let (started, done) = run(Exchange::AllReduce);
        let starts = [(1, 4), (1, 4), (0, 4), (1, 4), (0, 2)];
        assert_eq!(started, starts.map(|(tensor, bytes)| (Leg::Whole, tensor, bytes)));
        assert_eq!(done, [1, 0]);
    }

    #[test]
    fn pulls_follow_their_pushes() {
        let (started, done) = run(Exchange::ParameterServer);
        for leg in [Leg::Push, Leg::Pull] {
            let mut own: Vec<(u32, u64)> =
                started.iter().filter(|one| one.0 == leg).map(|one| (one.1, one.2)).collect();
            own.sort_unstable();
            assert_eq!(own, [(0, 2), (0, 4), (1, 4), (1, 4), (1, 4)]);
        }
        assert_eq!(done.len(), 2);
    }
}
